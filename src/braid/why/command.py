"""`braid why-not`: why a row is missing.

In: what is asked of a query, as options or as a line of the prompt. Out: an answer; it, printed.
Rule: one of key, place and time is asked for.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

import click

from braid.errors import BraidError
from braid.expr.user import Functions
from braid.face.tabular import json_line, seen, time_option
from braid.store import ObjectStore
from braid.topics.store_value import Store
from braid.why.asking import Input, asked
from braid.why.words import Answer, counted, document

OPTIONS = ("--key", "--input", "--since", "--until")


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a query: a key, a record, or a time. `values`: whether keys and values are shown; `file`: its
    statements and their dialect, where the store does not keep them."""

    key: str | None = None
    input: str | None = None
    since: str | None = None
    until: str | None = None
    values: bool = True
    file: tuple[str, str] | None = None


def why_not(
    store: Store, query: str, what: Question, functions: Functions, parent: ObjectStore | None = None
) -> Answer:
    """What became of the records of a key, of one record, or of all of a time."""
    if [what.key, what.input, what.since].count(None) != 2:
        raise BraidError(f"what of {query} is asked?", "--key KEY, or --input TOPIC:PARTITION:OFFSET, or --since TIME")
    if what.until is not None and what.since is None:
        raise BraidError("--until needs --since", "--since TIME --until TIME")
    place = None if what.input is None else Input.of(what.input)
    first = None if what.since is None else time_option("--since", what.since)
    last = None if what.until is None else time_option("--until", what.until)
    made = asked(store, query, functions, parent, what.values, what.file)
    if place is not None:
        return made.of_input(place)
    if what.key is not None:
        return made.of_key(what.key)
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
    return why_not(store, query, Question(**more), functions)  # type: ignore[arg-type]


def print_answer(answer: Answer, as_json: bool) -> None:
    """Prints an answer."""
    if as_json:
        click.echo(json_line(counted(answer) if answer.by_reason else document(answer)))
    else:
        click.echo(seen(str(answer)))
