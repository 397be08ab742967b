"""How a query stands, in words: the live line of `braid run`, the summary.

In: `Progress`. Out: lines for people.
Rule: short; figures that are of no use to a reader at a terminal stand in the metrics only (`docs/metrics.md`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from braid.errors import BraidError
from braid.face import iso

if TYPE_CHECKING:
    from braid.spark.query import Progress

PARTS_SHOWN = 3  # of a batch's time
LEAST = 0.05  # of it
SHARE_FROM = 1000  # records from which a share of drops ends a run that is up
# What times of the years 1995 to 2100 are in other units: no such number of milliseconds is a likely time.
UNITS = {"seconds": (790_000_000, 4_103_000_000), "microseconds": (79 * 10**13, 4_103_000_000_000_000)}
UNITS["nanoseconds"] = (UNITS["microseconds"][0] * 1000, UNITS["microseconds"][1] * 1000)


@dataclass(frozen=True, slots=True)
class MaxDrops:
    """How many rows a query may drop: a number, or a share of the records it has read in this run."""

    rows: int | None = None
    share: float | None = None

    @staticmethod
    def of(text: str) -> MaxDrops:
        number = re.fullmatch(r"([0-9]{1,18})|([0-9]{1,3}(?:\.[0-9]{1,6})?)%", text.strip(), re.ASCII)
        if number is None or (number[2] is not None and float(number[2]) > 100):
            raise BraidError(f"--max-drops {text}: it takes a number of rows or a share", "--max-drops 0, or 1%")
        return MaxDrops(rows=int(number[1])) if number[1] else MaxDrops(share=float(number[2]) / 100)

    def exceeded(self, dropped: int, read: int, over: bool) -> bool:
        """`over`: the run has read all; before that a share of few records says nothing."""
        if self.rows is not None:
            return dropped > self.rows
        assert self.share is not None
        return (over or read >= SHARE_FROM) and dropped > self.share * read

    def __str__(self) -> str:
        return str(self.rows) if self.rows is not None else f"{(self.share or 0) * 100:g}%"


def line(name: str, p: Progress) -> str:
    if p.batch < 0:
        return f"{name}  first batch …"
    dropped = sum(p.drops.values())
    return (
        f"{name}  in {p.rows_in_per_second:,.0f}/s  out {p.rows_out_per_second:,.0f}/s  batch {p.batch}"
        f" {p.batch_ms:.0f} ms{_where(p)}  state {p.state_rows:,} rows {p.state_bytes / 2**20:.1f} MiB"
        f"  drops {dropped:,}  lag {p.lag:,}{''.join(f'  hot: {told}' for told in hot(p))}"
    )


def _where(p: Progress) -> str:
    """Where the last batch's time went, the largest parts of it."""
    if p.last is None:
        return ""
    parts = [f"{name} {share:.0%}" for name, share in list(p.last.shares().items())[:PARTS_SHOWN] if share >= LEAST]
    return f" ({', '.join(parts)})" if parts else ""


def hot(p: Progress) -> list[str]:
    """Hot buckets, stage by stage."""
    keys = p.last.shape.keys if p.last is not None else {}
    return [
        f"bucket {h.bucket} of stage {n} has {h.share:.0%} of its rows (spread by {keys.get(n) or 'nothing'})"
        for n, h in sorted(p.hot.items())
    ]


def summed(name: str, p: Progress) -> str:
    if not p.rows_in and not p.rows_out:
        return f"{name}: nothing new, state {p.state_rows:,} rows"
    drops = ", ".join(f"{n:,} {reason}" for reason, n in sorted(p.drops.items()))
    text = f"{name}: {p.rows_in:,} records in, {p.rows_out:,} out, state {p.state_rows:,} rows"
    return text + (f"; dropped {drops} (braid drops {name})" if drops else "")


def warnings(name: str, p: Progress) -> Iterator[str]:
    """What a reader of the summary should not miss: why rows were dropped, and times that cannot be meant."""
    for reason, row in sorted(p.totals.first.items()):
        why = f": {row.message}" if row.message else ""
        yield f"{name}: first {reason}: {row.topic} partition {row.partition} offset {row.offset}{why}"
    leaps, late = p.totals.leaps, p.totals.first.get("late")
    leap = leaps.furthest.get(late.topic) if late is not None and late.topic is not None else None
    if late is not None and leap is not None:
        yield (
            f"{name}: {p.drops['late']:,} of {p.rows_in:,} records were late; the furthest that one moved the clock:"
            f" {late.topic} partition {leap.partition} offset {leap.offset}, from {iso.text(leap.before)}"
            f" to {iso.text(leap.time)} ({_span(leap.time - leap.before)})"
        )
    for topic, highest in sorted(leaps.highest.items()):
        for unit, (low, high) in UNITS.items():
            if low <= highest < high:
                yield (
                    f"{name}: the times of {topic} look like {unit}: {highest:,} was read as milliseconds, so as"
                    f" {iso.text(highest)}"
                )
    for told in hot(p):
        yield f"{name}: hot keys: {told}; see docs/metrics.md"


def _span(ms: int) -> str:
    """A length of time in the largest unit that it has one of."""
    for unit, size in (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000), ("s", 1000)):
        if ms >= size:
            return f"{ms / size:,.1f} {unit}"
    return f"{ms} ms"


def summary_lines(done: Mapping[str, Progress]) -> Sequence[str]:
    """The summary's lines, for the demo."""
    return [summed(name, p) for name, p in done.items()]
