"""`braid why-not`: why a row is missing, as people and programs read it.

In: an answer. Out: lines; or one JSON object.
Rule: the answer first, then how it came to that; a value is shown where it decides. What of the answer is not all that
was asked for is said.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from braid.errors import BraidError
from braid.expr.user import Functions
from braid.face.tabular import cell, json_line, seen, time_option, time_text
from braid.store import ObjectStore
from braid.topics.store_value import Store
from braid.why.asking import Answer, Answered, Input, asked

EXAMPLES = 3  # of each reason
WIDTH = 100
MARKS = {"given": "✓", "waiting": "…", "missing": "✗", "unread": "…"}


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
) -> Answer:
    """What became of the records of a key, of one record, or of all of a time."""
    if [key, input, since].count(None) != 2:
        raise BraidError(f"what of {query} is asked?", "--key KEY, or --input TOPIC:PARTITION:OFFSET, or --since TIME")
    if until is not None and since is None:
        raise BraidError("--until needs --since", "--since TIME --until TIME")
    place = None if input is None else Input.of(input)
    first = None if since is None else time_option("--since", since)
    last = None if until is None else time_option("--until", until)
    made = asked(store, query, functions, parent, values)
    if place is not None:
        return made.of_input(place)
    if key is not None:
        return made.of_key(key)
    assert first is not None
    return made.of_time(first, last)


def print_answer(answer: Answer, by_reason: bool, as_json: bool) -> None:
    """Prints an answer; `by_reason`: how many records had which, and some of each."""
    if as_json:
        click.echo(json_line(counted(answer) if by_reason else document(answer)))
        return
    for line in summary(answer) if by_reason else lines(answer):
        click.echo(seen(line))


# ------------------------------------------------------------------- as a program reads it


def document(answer: Answer) -> dict[str, Any]:
    return {
        "query": answer.query,
        "records": [_record(x) for x in answer.records],
        "more": answer.left,
        "judged": answer.judged,
        "read": answer.read,
        "batches": answer.batches,
        "whole": answer.whole,
    }


def counted(answer: Answer) -> dict[str, Any]:
    found = _by_reason(answer)
    reasons = [
        {
            "reason": r,
            "outcome": some[0].verdict.outcome,
            "count": len(some),
            "examples": [_record(x) for x in some[:EXAMPLES]],
        }
        for r, some in found.items()
    ]
    return {"query": answer.query, "records": len(answer.records), "reasons": reasons, "batches": answer.batches}


def _record(x: Answered) -> dict[str, Any]:
    v = x.verdict
    return {
        "topic": x.at.topic,
        "partition": x.at.partition,
        "offset": x.at.offset,
        "timestamp": x.at.time,
        "source": x.source,
        "key": x.key,
        "value": x.value,
        "batch": x.batch,
        "outcome": v.outcome,
        "reason": v.reason,
        "text": v.text,
        "hint": v.hint,
        "steps": [{"what": s.what, "text": s.text, "batch": s.batch} for s in x.steps],
    }


def _by_reason(answer: Answer) -> Mapping[str, Sequence[Answered]]:
    """The records by reason: most first, those that gave rows at the top."""
    found: dict[str, list[Answered]] = {}
    for x in answer.records:
        found.setdefault(x.verdict.reason, []).append(x)
    return dict(sorted(found.items(), key=lambda r: (r[1][0].verdict.outcome != "given", -len(r[1]), r[0])))


# ------------------------------------------------------------------- as people read it


def lines(answer: Answer) -> Iterator[str]:
    """Each record, its verdict, its steps."""
    for i, x in enumerate(answer.records):
        if i:
            yield ""
        yield from _lines_of(x)
    yield ""
    if answer.left:
        yield f"… and {answer.left:,} earlier records; --input asks for one of them"
    yield _judged(answer)


def _judged(answer: Answer) -> str:
    end = f"of {answer.read:,} that {answer.query} has read in {answer.batches:,} batch{'es' * (answer.batches != 1)}"
    why = f" ({answer.whole})" if answer.whole is not None and answer.judged == answer.read else ""
    return f"judged by the definitions of its joins: {answer.judged:,} records {end}{why}"


def _lines_of(x: Answered) -> Iterator[str]:
    key = f", key {x.key}" if x.key is not None else ""
    at = f" at {time_text(x.at.time)}" if x.batch is not None or x.at.time else ""
    yield f"{x.at}{at}{key}"
    if x.value:
        shown = " ".join(f"{name}={cell(v)}" for name, v in x.value.items())
        yield f"  {textwrap.shorten(shown, WIDTH - 4, placeholder=' …')}"
    yield from textwrap.wrap(
        f"{MARKS[x.verdict.outcome]} {x.verdict.text}", WIDTH, initial_indent="  ", subsequent_indent="    "
    )
    if x.verdict.hint is not None:
        yield from textwrap.wrap(f"hint: {x.verdict.hint}", WIDTH, initial_indent="    ", subsequent_indent="    ")
    if len(x.steps) > 1:
        for s in x.steps:
            yield f"    · {s.text}"


def summary(answer: Answer) -> Iterator[str]:
    """How many records gave rows, and why the others did not."""
    total, found = len(answer.records), _by_reason(answer)
    given = sum(len(some) for some in found.values() if some[0].verdict.outcome == "given")
    yield f"{answer.query}: {given:,} of {total:,} records of this time gave rows"
    wide = max((len(f"{len(some):,}") for some in found.values()), default=1)
    for reason, some in found.items():
        share = 100 * len(some) / max(total, 1)
        yield ""
        yield f"{len(some):>{wide},}  {reason}  ({share:.0f} %)"
        for x in some[:EXAMPLES] if some[0].verdict.outcome != "given" else ():
            key = f" (key {x.key})" if x.key is not None else ""
            yield from textwrap.wrap(
                f"{x.at}{key}: {x.verdict.text}",
                WIDTH,
                initial_indent=" " * (wide + 2),
                subsequent_indent=" " * (wide + 4),
            )
    yield ""
    yield _judged(answer)
