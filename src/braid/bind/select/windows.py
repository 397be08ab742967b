"""Windows of a grouped query: the groups in their windows, and when each is closed.

In: a window as written, its grace, the words of the dialect. Out: the groups in their windows, the bounds by name.
Rule: a window for which no grace is written takes rows until a day after its begin, or until its end if that is later;
a session until a day after its end, or until the gap is over: Kafka Streams' rule, on which ksqlDB and Lenses run.
(docs/rules/ksqldb.md, "Windows"; docs/rules/lenses.md, "Windows of groups")
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from braid.bind.bound import Windowing
from braid.errors import Span, SqlError
from braid.expr import user
from braid.expr.nodes import Col
from braid.plan.groups import Aggregate, Aggregation, Sessions, TimeWindows
from braid.plan.windows import KINDS, Fixed, FixedKind, Made
from braid.sql import ast
from braid.types import Scalar

DAY = 86_400_000
MANY = 1_000  # windows of one row, from which on it is said how many


@dataclass(frozen=True, slots=True)
class Words:
    """How a dialect writes windows: the `clause`, its word for each kind, and that for the advance of hopping ones."""

    clause: str
    kinds: Mapping[str, str]
    advance: str


@dataclass(frozen=True, slots=True)
class Windowed:
    """`windows` of a `kind`, open for so long a `grace` (ms) after their end. `prefix`: before the names of its plan
    columns."""

    kind: str
    windows: Fixed | Made
    grace: int
    span: Span
    words: Words
    prefix: str = ""

    @staticmethod
    def of(w: ast.Window, words: Words, grace: int | None = None, prefix: str = "") -> Windowed:
        """`grace`: where none is written, if it is not the usual one."""
        windows = KINDS[w.kind].of({name: length.ms for name, length in w.lengths})
        if w.grace is not None:
            grace = w.grace.ms
        return Windowed(w.kind, windows, usual_grace(windows) if grace is None else grace, w.span, words, prefix)

    @property
    def windowing(self) -> Windowing:
        return Windowing(self.kind, self.windows.span if self.windows.sized else None)

    @property
    def bounds(self) -> tuple[Col, Col]:
        """Of a group."""
        return Col(f"{self.prefix}.WINDOWSTART", Scalar.BIGINT), Col(f"{self.prefix}.WINDOWEND", Scalar.BIGINT)

    def groups(self, of: Aggregate) -> Aggregate:
        """Groups of a stream, each in its windows."""
        if not isinstance(self.windows, FixedKind):
            self._check_merging(of.aggregations)
            return Sessions(of.input, of.keys, of.aggregations, self.windows, self.grace, *self.bounds)
        of_rows = Col(f"{self.prefix}.START", Scalar.BIGINT), Col(f"{self.prefix}.END", Scalar.BIGINT)
        rows = TimeWindows(of.input, self.windows, self.grace, *of_rows)
        return Aggregate(rows, (*of.keys, *zip(self.bounds, of_rows, strict=True)), of.aggregations)

    def _check_merging(self, aggregations: tuple[Aggregation, ...]) -> None:
        apart = next((a.function for a in aggregations if a.code is not None and not user.merges(a.code)), None)
        if apart is not None:
            words = self.words
            others = " or ".join(word for kind, word in words.kinds.items() if issubclass(KINDS[kind], FixedKind))
            what = f"{words.clause} {words.kinds[self.kind]} puts {self.windows.called} together, which {apart} cannot"
            raise SqlError(what, self.span, f"write its method merge, or {others}")

    @property
    def notices(self) -> Iterator[str]:
        if isinstance(self.windows, FixedKind) and self.windows.most >= MANY:
            most = f"each row is in {self.windows.most:,} windows, and goes into each"
            yield f"{most}: a longer {self.words.advance} makes fewer"


def usual_grace(windows: Fixed | Made) -> int:
    return max(DAY - windows.span, 0)


def check_over_stream(w: ast.Window, over_table: bool, word: str) -> None:
    if over_table:
        hint = f"leave {word} out: the rows of a table are its current ones"
        raise SqlError("windows group the rows of streams", w.span, hint)
