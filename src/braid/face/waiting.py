"""Rows that wait, in words.

In: a query's `Waiting`. Out: a line each: how many wait, for whose clock, until when, and what lets them go.
Rule: a number that is no count is called so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from braid.face.tabular import time_text
from braid.stage.waiting import Source, Waiting

END = "--end says that none will come, and lets all go"


def lines(name: str, found: Iterable[Waiting], end: str = "") -> Sequence[str]:
    """`end`: what else lets rows go at this door."""
    return [_line(name, one, end) for one in found]


def count(found: Iterable[Waiting]) -> str:
    """How many wait in all."""
    found = list(found)
    return f"{'' if all(one.exact for one in found) else 'up to '}{sum(one.rows for one in found):,}"


def _line(name: str, w: Waiting, end: str) -> str:
    rows = f"{name}: {count([w])} row{'s' * (w.rows != 1)} wait{'s' * (w.rows == 1)} for {w.waits_for}"
    go = f"; {end}" if end else ""
    if not w.exact:
        return f"{rows}{go}"
    shown = time_text if w.moments else str
    never = f"{w.never:,} of them for ever, as they have no time" if w.never else ""
    if w.first is None or w.last is None:
        return f"{rows} for ever, as no clock passes what has no time{go}"
    last = f" (the last of them {shown(w.last)})" if w.last != w.first else ""
    until = f"until {_clock(w, shown)} {'reaches' if w.reached else 'passes'} {shown(w.first)}{last}"
    held = [text for source in w.sources if (text := _held_up(source, shown))]
    return "; ".join([f"{rows} {until}", *([never] if never else []), *held]) + go


def _clock(w: Waiting, shown: Callable[[int], str]) -> str:
    names = " and ".join(source.name for source in w.sources)
    return f"the clock of {names}, {'not begun' if w.now is None else f'now {shown(w.now)}'},"


def _held_up(source: Source, shown: Callable[[int], str]) -> str:
    if source.lacking:
        return f"{source.lacking} partition{'s' * (source.lacking != 1)} of {source.name} must show a record first"
    if source.now is None:
        return f"{source.name} has shown no record"
    if source.behind is not None:
        partition, time = source.behind
        return f"{source.name} is held up by its partition {partition}, at {shown(time)}"
    return ""
