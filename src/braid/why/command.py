"""`braid why-not`: why a row is missing.

In: what is asked of a query, as options or as a line of the prompt. Out: an answer; it, printed.
Rule: one of key, place and time is asked for.
"""

from __future__ import annotations

import shlex

import click

from braid.errors import BraidError
from braid.expr.user import Functions
from braid.face.tabular import json_line, seen, time_option
from braid.store import ObjectStore
from braid.topics.store_value import Store
from braid.why.asking import Answer, Input, asked
from braid.why.words import counted, document

OPTIONS = ("--key", "--input", "--since", "--until")


def why_not(
    store: Store,
    query: str,
    *,
    key: str | None = None,
    input: str | None = None,
    since: str | None = None,
    until: str | None = None,
    functions: Functions,
    parent: ObjectStore | None = None,
    values: bool = True,
    file: tuple[str, str] | None = None,
) -> Answer:
    """What became of the records of a key, of one record, or of all of a time."""
    if [key, input, since].count(None) != 2:
        raise BraidError(f"what of {query} is asked?", "--key KEY, or --input TOPIC:PARTITION:OFFSET, or --since TIME")
    if until is not None and since is None:
        raise BraidError("--until needs --since", "--since TIME --until TIME")
    place = None if input is None else Input.of(input)
    first = None if since is None else time_option("--since", since)
    last = None if until is None else time_option("--until", until)
    made = asked(store, query, functions, parent, values, file)
    if place is not None:
        return made.of_input(place)
    if key is not None:
        return made.of_key(key)
    assert first is not None
    return made.of_time(first, last)


def why_not_of(store: Store, line: str, functions: Functions) -> Answer:
    """The same of a line of the prompt: NAME --key KEY."""
    usage = "write .why-not NAME --key KEY, --input TOPIC:PARTITION:OFFSET, or --since TIME [--until TIME]"
    try:
        query, *rest = shlex.split(line)
    except ValueError:
        raise BraidError(".why-not needs a query, and what is asked of it", usage) from None
    given = dict(zip(rest[::2], rest[1::2], strict=False))
    if len(rest) % 2 or not given or given.keys() - set(OPTIONS):
        raise BraidError(f"what of {query} is asked?", usage)
    more = {name.removeprefix("--"): value for name, value in given.items()}
    return why_not(store, query, functions=functions, **more)  # type: ignore[arg-type]


def print_answer(answer: Answer, as_json: bool) -> None:
    """Prints an answer."""
    if as_json:
        click.echo(json_line(counted(answer) if answer.by_reason else document(answer)))
    else:
        click.echo(seen(str(answer)))
