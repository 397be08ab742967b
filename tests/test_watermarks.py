"""Which columns have a watermark, what cleans a join, and what a watermark is after an epoch."""

from __future__ import annotations

import numpy as np
import pytest

from braid.bind.program import Program
from braid.expr.nodes import Col, Expr, Lit
from braid.expr.typing import call
from braid.lower.lower import lower
from braid.operators.changes import NEVER
from braid.operators.clocks import FOREVER
from braid.operators.on_close import EmitOnClose
from braid.operators.regular import Regular
from braid.operators.watermarks import Watermark
from braid.plan.epochs import Equalities, RegularJoin, Windows
from braid.plan.logical import Node, Output, Project, Source, SourceColumn
from braid.plan.watermarks import cleaned, clocked, inherited, progress
from braid.plan.windows import Hopping
from braid.records.encoding import Encoding
from braid.types import Column, Scalar

SECOND = 1_000_000
MINUTE = 60 * SECOND


def timed(alias: str, watermark: bool = True) -> Source:
    columns = tuple(
        SourceColumn(f"{alias}.{n}", n, Column(n, t), "value")
        for n, t in (("id", Scalar.INT), ("ts", Scalar.TIMESTAMP))
    )
    ts = columns[1].col
    mark = call("shift", [ts, Lit(-20_000, Scalar.BIGINT)]) if watermark else None
    return Source(alias, alias, alias, "stream", columns, Encoding(), end="lift", watermark=mark)


def ts(alias: str) -> Col:
    return Col(f"{alias}.ts", Scalar.TIMESTAMP)


def later(e: Expr, ms: int) -> Expr:
    return call("shift", [e, Lit(ms, Scalar.BIGINT)])


def joined(left: Node, right: Node, residual: Expr | None, *pairs: tuple[Expr, Expr]) -> RegularJoin:
    on = Equalities(tuple(a for a, _ in pairs), tuple(b for _, b in pairs), (False,) * len(pairs))
    return cleaned(RegularJoin(left, right, "inner", on, residual))


def windows(alias: str, slide: int) -> Windows:
    start, end = (Col(f"{alias}.window_{x}", Scalar.TIMESTAMP) for x in ("start", "end"))
    return Windows(timed(alias), ts(alias), Hopping(MINUTE, slide), start, end, "keep")


def test_two_bounds_clean_both_sides_and_one_side_keeps_its_watermark() -> None:
    within = call("and", [call("ge", [ts("a"), ts("b")]), call("le", [ts("a"), later(ts("b"), 60_000)])])
    join = joined(timed("a"), timed("b"), within)
    assert [(c.side, c.value) for c in join.clean] == [("left", ts("a")), ("right", later(ts("b"), 60_000))]
    assert set(progress(join)) == {"a.ts"}


def test_one_bound_cleans_the_larger_side_only() -> None:
    assert [c.side for c in joined(timed("a"), timed("b"), call("lt", [ts("a"), ts("b")])).clean] == ["right"]


def test_an_equality_of_watermarks_comes_first() -> None:
    join = joined(timed("a"), timed("b"), call("ge", [ts("a"), ts("b")]), (ts("a"), ts("b")))
    assert [c.side for c in join.clean] == ["left", "right"]
    assert join.clean[0].bounds == join.clean[1].bounds
    assert set(progress(join)) == {"a.ts", "b.ts"}


def test_without_a_watermark_on_both_sides_nothing_is_cleaned() -> None:
    assert joined(timed("a"), timed("b", watermark=False), call("ge", [ts("a"), ts("b")])).clean == ()


def test_windows_keep_a_watermark_of_their_bounds() -> None:
    left, right = windows("a", MINUTE), windows("b", MINUTE)
    join = joined(left, right, None, (left.start, right.start))
    assert {c.side for c in join.clean} == {"left", "right"}
    assert set(progress(left)) == {"a.ts", "a.window_start", "a.window_end"}


def test_the_watermark_of_a_window_is_the_begin_of_the_first_that_a_row_can_get() -> None:
    at = np.array([NEVER, 10 * MINUTE + 50 * SECOND, FOREVER], dtype=np.int64)
    for slide, begin in ((MINUTE, 10 * MINUTE), (20 * SECOND, 10 * MINUTE)):
        node = windows("a", slide)
        (start,), (end,) = (progress(node)[c.name] for c in (node.start, node.end))
        for bound, want in ((start, begin), (end, begin + MINUTE)):
            w = Watermark(0, bound.column, bound.value, bound.slide, bound.offset, bound.ahead)
            assert w.of(at).tolist() == [NEVER, want, FOREVER]


def test_a_view_passes_its_watermarks_on_under_new_names() -> None:
    source, t, number = timed("a"), Col("v.t", Scalar.TIMESTAMP), Col("v.id", Scalar.INT)
    project = Project(source, ((t, ts("a")), (number, source.columns[0].col)))
    passed = inherited(project, [Output("t", t), Output("id", number)])
    assert [name for name, _ in passed.columns] == ["t"]
    read = clocked(timed("r", watermark=False), "r", passed)
    ((bound,),) = progress(read).values()
    assert set(progress(read)) == {"r.t"}
    assert (bound.alias, bound.column.name) == ("r~a", "r~a.a.ts")


TIMED = """
CREATE TABLE l (k INT, t {t}, WATERMARK FOR t AS t - {step}) APPEND ONLY;
CREATE TABLE r (k INT, t {t}, WATERMARK FOR t AS t - {step}) APPEND ONLY;
CREATE MATERIALIZED VIEW pairs AS SELECT l.k FROM l JOIN r ON l.k = r.k AND {on};
CREATE MATERIALIZED VIEW padded AS SELECT coalesce(l.t, r.t) AS t FROM l FULL JOIN r ON l.k = r.k AND {on}
  EMIT ON WINDOW CLOSE;
CREATE MATERIALIZED VIEW groups AS SELECT t + {step} AS t, count(*) AS n FROM l GROUP BY t + {step}
  EMIT ON WINDOW CLOSE;
"""


@pytest.mark.parametrize("on", ["l.t BETWEEN r.t AND r.t + {step}", "r.t + {step} >= l.t AND l.t >= r.t"])
@pytest.mark.parametrize(
    ("t", "step", "ticks"),
    [
        ("BIGINT", "5", 5),
        ("BIGINT", "5::smallint", 5),
        ("TIMESTAMP", "INTERVAL '5' SECOND", 5 * SECOND),
        ("TIMESTAMPTZ", "INTERVAL '1 minute 5 seconds'", 65 * SECOND),
        ("DATE", "5", 5 * 1440 * MINUTE),
        ("INT", "5", None),  # a sum beyond its range is told of each pair, so they are looked for
    ],
)
def test_what_is_a_constant_ahead_is_known_in_each_type(t: str, step: str, ticks: int | None, on: str) -> None:
    """As SQL says it: each type has sums of its own. Lost, a join looks at all rows of a key, and keeps one side."""
    program = Program("risingwave")
    list(program.statements(TIMED.format(t=t, step=step, on=on.format(step=step))))
    steps = {
        name: [x.operator for stage in lower(q).stages for x in stage.steps] for name, q in program.queries.items()
    }
    for name in ("pairs", "padded"):
        (join,) = (x for x in steps[name] if isinstance(x, Regular))
        assert all(join.clean), name
        assert (None if join.band is None else (join.band.low, join.band.high)) == (
            None if ticks is None else (0, ticks)
        )
    assert all(any(isinstance(x, EmitOnClose) for x in steps[name]) for name in ("padded", "groups"))
