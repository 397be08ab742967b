"""How a query stands, in words: the live line of `braid run`, the summary.

In: `Progress`. Out: lines for people.
Rule: short; figures that are of no use to a reader at a terminal stand in the metrics only (`docs/metrics.md`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from braid.spark.query import Progress

PARTS_SHOWN = 3  # of a batch's time
LEAST = 0.05  # of it


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
    if not p.rows_in:
        return f"{name}: nothing new, state {p.state_rows:,} rows"
    drops = ", ".join(f"{n:,} {reason}" for reason, n in sorted(p.drops.items()))
    text = f"{name}: {p.rows_in:,} records in, {p.rows_out:,} out, state {p.state_rows:,} rows"
    return text + (f"; dropped {drops} (braid drops {name})" if drops else "")


def summary_lines(done: Mapping[str, Progress]) -> Sequence[str]:
    """The summary's lines, for the demo."""
    return [summed(name, p) for name, p in done.items()]
