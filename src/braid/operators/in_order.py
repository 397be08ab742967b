"""Entries of groups in an order: the first or the last ones of some groups are read without the others.

In: entries with weights, each batch. Out: of some groups in each run so many of the first or last entries.
Rule: runs are in order of the hash, then in the order of who keeps them. What lies before the last entry that is read
of every run is known; whoever needs more reads more. So what is read follows what is asked for, whatever a group holds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from braid.operators.arrangement import LEVEL_0, Arrangement, Run
from braid.operators.base import State
from braid.operators.changes import DIFF, NEVER
from braid.operators.multiset import TICK, netted
from braid.operators.ranges import Ints, expand, hashes_of, rows_at, same_keys, spans

GROUP = "_g"


class InOrder(Arrangement):
    """`expires`: the number by which groups are forgotten, made of their key."""

    __slots__ = ("_clean", "_expires", "_passed")

    def __init__(self, state: State, name: str, keys: Sequence[str], expires: pl.Expr | None) -> None:
        super().__init__(state, name, keys, time=TICK)
        kept = state.manifest.get(name, {})
        self._expires = expires
        self._passed: int = kept.get("passed", NEVER)
        self._clean: int = kept.get("clean", 0)  # rows after all of them became one run

    def close(self) -> None:
        super().close()
        if self._expires is not None:
            self.state.manifest[self.name] |= {"passed": self._passed, "clean": self._clean}

    def pass_by(self, limit: int) -> None:
        """Groups below `limit` are forgotten, once that frees half of what is held."""
        self._passed = max(self._passed, limit)
        if self.rows > 2 * self._clean + LEVEL_0:
            self.unite()
            self._clean = self.rows

    def _seen(
        self, groups: pl.DataFrame, some: Ints, many: Ints | None, last: bool = False
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Of some of the groups (hash, key) in each run the `many` first (or last) entries, or all; and the outermost
        of those where there are more. Both with the number of their group."""
        wanted = rows_at(groups, some)
        h, seen, edges = hashes_of(wanted), list[pl.DataFrame](), list[pl.DataFrame]()
        for stored in map(self._read, self.runs):
            start, stop = spans(hashes_of(stored), h)
            if many is not None:
                cut = np.flatnonzero(stop - start > many[some])
                if last:
                    start = np.maximum(start, stop - many[some])
                else:
                    stop = np.minimum(stop, start + many[some])
                edge = start[cut] if last else stop[cut] - 1
                edges.append(rows_at(stored, edge).with_columns(pl.Series(GROUP, some[cut])))
            which, place = expand(start, stop)
            same = same_keys(wanted, which, stored, place, self.keys)
            seen.append(rows_at(stored, place[same]).with_columns(pl.Series(GROUP, some[which[same]])))
        return pl.concat(seen), pl.concat(edges) if edges else seen[0].clear()

    def _arranged(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Netted entries as a run has them."""
        raise NotImplementedError

    def _merged(self, runs: Sequence[Run], oldest: bool) -> Run | None:
        rows = pl.concat([self._read(r) for r in runs])
        before = rows.height
        if self._expires is not None:
            rows = rows.filter(self._expires >= self._passed)
        rows = self._arranged(netted(rows, [c for c in rows.columns if c != DIFF]))
        self.expired += before - rows.height
        return self._run(rows) if rows.height else None
