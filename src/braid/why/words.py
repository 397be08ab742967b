"""An answer, as people and programs read it.

In: an answer. Out: lines; or what becomes one JSON object.
Rule: the answer first, then how it came to that; a value is shown where it decides. What of the answer is not all that
was asked for is said.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from braid.face.tabular import cell, time_text
from braid.why.reasons import At, Outcome, Verdict
from braid.why.what_if import WhatIf

EXAMPLES = 3  # of each reason
WIDTH = 100
MARKS = {"given": "✓", "waiting": "…", "missing": "✗", "unread": "…"}


@dataclass(frozen=True, slots=True)
class Step:
    """What a step said of a record, in words."""

    what: str
    text: str


@dataclass(frozen=True, slots=True)
class Answered:
    """A record that was asked for."""

    at: At
    source: str
    key: str | None
    value: Mapping[str, object] | None
    batch: int | None
    verdict: Verdict
    steps: Sequence[Step] = ()
    what_if: WhatIf | None = None  # where changes were looked for


class Judged(Protocol):
    """What was judged for an answer."""

    @property
    def query(self) -> str: ...
    @property
    def judged(self) -> int: ...
    @property
    def read(self) -> int: ...
    @property
    def batches(self) -> int: ...
    @property
    def whole(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Answer:
    """`judged`: so many records were; `read`: of so many; `left`: asked for and not shown; `span`: of which time."""

    query: str
    records: Sequence[Answered]
    judged: int
    read: int
    batches: int
    whole: str | None
    left: int = 0
    by_reason: bool = False
    notes: Sequence[str] = ()
    span: str = ""

    def __str__(self) -> str:
        return "\n".join(summary(self) if self.by_reason else lines(self))

    def document(self) -> dict[str, Any]:
        """What `braid why-not --json` prints."""
        return counted(self) if self.by_reason else document(self)


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
        "notes": answer.notes,
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
    made = {"query": answer.query, "span": answer.span, "records": len(answer.records), "reasons": reasons}
    return made | {"batches": answer.batches, "notes": answer.notes}


def _record(x: Answered) -> dict[str, Any]:
    v = x.verdict
    return {
        **x.at.document(),
        "source": x.source,
        "key": x.key,
        "value": x.value,
        "batch": x.batch,
        "outcome": v.outcome,
        "reason": v.reason,
        "text": v.text,
        "hint": v.hint,
        "steps": [{"what": s.what, "text": s.text} for s in x.steps],
        "what_if": None if x.what_if is None else _what_if(x.what_if),
    }


def _what_if(x: WhatIf) -> dict[str, Any]:
    changes = [{"kind": c.kind, "text": c.text} for c in x.changes]
    return {"changes": changes, "complete": not x.cut}


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
    yield from (f"note: {note}" for note in answer.notes)
    if answer.left:
        yield f"… and {answer.left:,} earlier records; --input asks for one of them"
    yield judged(answer)


def judged(answer: Judged) -> str:
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
    if x.verdict.hint is not None and not _is_said_better(x):
        yield from textwrap.wrap(f"hint: {x.verdict.hint}", WIDTH, initial_indent="    ", subsequent_indent="    ")
    for text in () if x.what_if is None else _would_have(x.what_if, x.verdict.outcome):
        yield from textwrap.wrap(f"what if: {text}", WIDTH, initial_indent="    ", subsequent_indent="    ")
    if len(x.steps) > 1:
        for s in x.steps:
            yield f"    · {s.text}"


_GUESSED = ("late", "outside the window", "expired")  # of these the hint is a change that nobody has tried


def _is_said_better(x: Answered) -> bool:
    """Whether a hint is not needed: what it supposes was tried."""
    if x.what_if is None or (x.what_if.cut and not x.what_if.changes):
        return False
    return x.verdict.reason in _GUESSED


def _would_have(x: WhatIf, outcome: Outcome) -> Iterator[str]:
    """The changes that would have made a row, each by itself."""
    made = "given it a partner" if outcome == "given" else "made a row"
    yield from (f"{c.text} would have {made}" for c in x.changes)
    if x.cut:
        yield "not all changes were tried: --what-if SECONDS gives more time"
    elif not x.changes:
        yield f"no other window, grace period, time, order, key or constant of a condition alone would have {made}"


def summary(answer: Answer) -> Iterator[str]:
    """How many records gave rows, and why the others did not."""
    total, found = len(answer.records), _by_reason(answer)
    given = sum(len(some) for some in found.values() if some[0].verdict.outcome == "given")
    yield f"{answer.query}: {given:,} of {total:,} records {answer.span} gave rows"
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
    yield from (f"note: {note}" for note in answer.notes)
    yield judged(answer)
