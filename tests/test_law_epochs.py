"""The law for queries whose rows come in epochs: several records an epoch, cut between epochs in any way."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import datetime
from itertools import groupby, pairwise
from typing import Any, Literal

import pytest

from braid.expr.nodes import Cast, Col, Expr, Lit
from braid.expr.typing import call
from braid.lower.lower import lower
from braid.plan import logical
from braid.plan.epochs import (
    NOW,
    AsOfJoin,
    Bound,
    Changes,
    Clocked,
    Coalesce,
    Compare,
    EmitOnClose,
    Equalities,
    OnTime,
    RegularJoin,
    TemporalFilter,
    TemporalJoin,
    Union,
    Windows,
)
from braid.plan.follows import Rules, follows
from braid.plan.groups import Aggregation
from braid.plan.logical import Filter, Node, Output, Project, Query, Sink, Source, SourceColumn
from braid.plan.over import RANGE, RANKS, ROWS, Frame, Ordered, Over, Top, Windowed
from braid.plan.watermarks import cleaned, progress
from braid.plan.windows import Hopping
from braid.records.encoding import Encoding
from braid.stage.local import LocalQuery
from braid.types import Column, Decimal, Scalar
from cuts import Batch, seq_cuts, some
from histories import History, Raw, aggregate, col, expected, integer, random_history, source
from law import Told, by_reference, chunks_of, difference, lines_of, ran

pytestmark = pytest.mark.heavy

DELAY = 10
SHAPES = (
    "regular",
    "asof",
    "temporal",
    "regular-regular",
    "asof-temporal",
    "regular-temporal",
    "temporal-asof",
    "windows",
    "bounded",
    "closing",
    "grouped",
    "over",
    "semi",
    "union",
    "shared",
    "now",
    "one group",
)


def table(rng: random.Random, alias: str) -> Node:
    """An append-only source, or the changes of a table."""
    kind: Literal["stream", "table"] = rng.choice(["stream", "table", "table"])
    read = source(alias, rng.choice(["a", "p", "z"]) + alias.lower(), kind, partitions=1)
    if kind == "stream":
        row_id = SourceColumn(f"{alias}.ID", "ROWOFFSET", Column("ROWOFFSET", Scalar.BIGINT), "rowoffset")
        read = replace(read, columns=(*read.columns, row_id))
    made: Node = read if kind == "stream" else Changes(read)
    if rng.random() < 0.2:
        made = Filter(made, call("gt", [col(made, f"{alias}.N"), integer(0)]))
    return made


def random_query(rng: random.Random, shape: str) -> Query:
    if shape in ("bounded", "closing"):
        root = _bounded(rng)
        waits = watermark_of(root) if shape == "closing" else None
        return view(rng, root if waits is None else EmitOnClose(root, *waits))
    if shape == "windows":
        return view(rng, _windows(rng, table(rng, "A")))
    if shape == "grouped":
        return _grouped(rng)
    if shape == "over":
        return view(rng, _over(rng))
    if shape == "semi":
        return view(rng, _semi(rng))
    if shape == "union":
        return _union(rng)
    if shape == "shared":
        return _shared(rng)
    if shape == "now":
        return view(rng, _now(rng))
    if shape == "one group":
        return _one_below(rng)
    root = table(rng, "A")
    for alias, join in zip("BCD", shape.split("-"), strict=False):
        root = JOINS[join](rng, root, table(rng, alias))
    return view(rng, root)


def _ids(root: Node) -> list[Col]:
    """What tells the rows of sources apart, as far as a node has them."""
    ids = [f"{s.alias}.{'K' if s.kind == 'table' else 'ID'}" for s in logical.sources(root)]
    return [c for name in ids for c in root.schema if c.name == name]


def view(rng: random.Random, root: Node) -> Query:
    """A materialized view: some columns, and the key of its rows."""
    key = _ids(root)
    key += [c for c in root.schema if c.name.endswith(".PART")]
    key += [root.start] if isinstance(root, Windows) else []
    others = [c for c in root.schema if c not in key and not c.name.endswith("ROWTIME")]
    some_of = [c for c in others if rng.random() < 0.7]
    outputs = tuple((Col(f"O{i}", c.type), c) for i, c in enumerate([*key, *some_of]))
    keys = tuple(c for c, _ in outputs[: len(key)])
    project = Project(root, outputs)
    named = tuple(Output(c.name, c) for c, _ in outputs)
    kind: logical.Kind = "stream" if root.mode == "append" else "table"
    sink = Sink("OUT", "out", kind, named[: len(key)], named[len(key) :], Encoding(), whole_key=True)
    return Query("OUT", "risingwave", "", Coalesce(project, keys), sink)


def _keys(rng: random.Random, left: Node, right: Node) -> Equalities:
    lefts = [c for c in left.schema if c.type == Scalar.INT]
    rights = [c for c in right.schema if c.type == Scalar.INT]
    count = rng.choice([1, 1, 1, 2, 0])
    return Equalities(
        tuple(rng.choice(lefts) for _ in range(count)),
        tuple(rng.choice(rights) for _ in range(count)),
        tuple(rng.random() < 0.3 for _ in range(count)),
    )


def _residual(rng: random.Random, left: Node, right: Node) -> Expr | None:
    if rng.random() < 0.5:
        return None
    l = rng.choice([c for c in left.schema if c.type == Scalar.INT])
    r = rng.choice([c for c in right.schema if c.type == Scalar.INT])
    term = call(rng.choice(["lt", "le", "gt", "ne"]), [l, r])
    match rng.choice(["plain", "fails", "saved", "both"]):
        case "plain":
            return term
        case "fails":
            term = call("lt", [_failing(l), r])
        case "saved":
            term = call("lt", [call("COALESCE", [_failing(call("sub", [l, r])), integer(-1)]), r])
        case "both":
            term = call("and", [call("lt", [_failing(r), l]), term])
    return term


def _failing(e: Expr) -> Expr:
    """It fails where `e` is even."""
    return call("div", [integer(10), call("mod", [e, integer(2)])])


def _regular(rng: random.Random, left: Node, right: Node) -> Node:
    how: logical.How = rng.choice(["inner", "left", "right", "full", "full"])
    return RegularJoin(left, right, how, _keys(rng, left, right), _residual(rng, left, right))


def _as_of(rng: random.Random, left: Node, right: Node) -> Node:
    numbers = [[c for c in x.schema if c.type == Scalar.INT] for x in (left, right)]
    ids = right.schema
    order = [c for c in ids if c.name.endswith(".ID")] or [c for c in ids if c.name.endswith(".K")]
    compare: Compare = rng.choice(["lt", "le", "ge", "gt"])
    how: Literal["inner", "left"] = rng.choice(["inner", "left"])
    at = [rng.choice(x) if rng.random() < 0.7 else _failing(rng.choice(x)) for x in numbers]
    return AsOfJoin(left, right, how, _keys(rng, left, right), at[0], compare, at[1], tuple(order))


def _temporal(rng: random.Random, left: Node, right: Node) -> Node:
    how: Literal["inner", "left"] = rng.choice(["inner", "left"])
    return TemporalJoin(left, right, how, _keys(rng, left, right), _residual(rng, left, right))


JOINS: dict[str, Callable[[random.Random, Node, Node], Node]] = {
    "regular": _regular,
    "asof": _as_of,
    "temporal": _temporal,
}


def watermark_of(node: Node) -> tuple[Expr, tuple[Bound, ...]] | None:
    """The first column that has a watermark, and what it is."""
    known = progress(node)
    return next(((c, known[c.name]) for c in node.schema if c.name in known), None)


def _windows(rng: random.Random, node: Node) -> Node:
    """Windows of a time that may be null."""
    number = call("mul", [col(node, "A.N"), integer(rng.choice([1, 7, 100]))])
    time = call("shift", [Lit(datetime(1969, 12, 31, 23, 59, 59), Scalar.TIMESTAMP), number])
    slide = rng.choice([1000, 5000, 100_000])
    bounds = Col("A.window_start", Scalar.TIMESTAMP), Col("A.window_end", Scalar.TIMESTAMP)
    null_time: Literal["keep", "drop"] = rng.choice(["keep", "drop"])
    windows = Hopping(slide * rng.choice([1, 1, 3]), slide, rng.choice([0, 300]))
    return Windows(node, time, windows, *bounds, null_time)


def _timed(rng: random.Random, alias: str) -> Node:
    """What is on time of a source with a watermark."""
    read = source(alias, f"t{alias.lower()}", "stream", partitions=rng.choice([1, 1, 2]))
    row_id = SourceColumn(f"{alias}.ID", "ROWOFFSET", Column("ROWOFFSET", Scalar.BIGINT), "rowoffset")
    time = next(c.col for c in read.columns if c.place == "rowtime")
    part = SourceColumn(f"{alias}.PART", "ROWPARTITION", Column("ROWPARTITION", Scalar.INT), "rowpartition")
    mark = call("sub", [time, Lit(DELAY, Scalar.BIGINT)])
    read = replace(read, columns=(*read.columns, row_id, part), watermark=mark, end="lift")
    return OnTime(read, time, Bound(alias, time, time))


def _grouped(rng: random.Random) -> Query:
    """Groups of rows that come and go, with their least and largest values, and with sums that would leave something
    behind; a group without rows is gone, or there is one."""
    rows = table(rng, "A")
    joined = rng.random() < 0.5
    if joined:
        rows = _regular(rng, rows, table(rng, "B"))
    values = [c for c in rows.schema if c.name.endswith((".V", ".N", ".ROWTIME"))]
    calls: list[tuple[str, Expr | None]] = [("COUNT", None), ("SUM", col(rows, "A.N"))]
    calls += [(rng.choice(["MIN", "MAX"]), rng.choice(values)) for _ in range(rng.choice([0, 1, 2, 4]))]
    in_order = not joined and rows.mode == "append"  # of others it is open which sums on the way are too large
    narrow = Decimal(38, rng.choice([1, 37]) if in_order else 1)
    exact = Cast(col(rows, "A.N"), narrow)
    calls += [(f, exact) for f in ("SUM", "AVG") if rng.random() < 0.5]
    tenths = call("div", [Cast(col(rows, "A.N"), Scalar.DOUBLE), Lit(10.0, Scalar.DOUBLE)])
    if (
        not joined and rng.random() < 0.5
    ):  # within an epoch rows of a join have no order, and the last digits of a sum follow it
        calls += [(f, tenths) for f in ("SUM", "AVG") if rng.random() < 0.5]
    one = rng.random() < 0.3
    keys = [call("COALESCE", [col(rows, "A.N"), integer(0)]), call("is_null", [col(rows, "A.N")])]
    groups = aggregate(rows, [integer(0) if one else rng.choice(keys)], calls)
    types = [(a, replace(a.output, type=a.arg.type)) for a in groups.aggregations[2:] if a.arg is not None]
    made = (*groups.aggregations[:2], *(replace(a, output=c) for a, c in types))
    groups = replace(groups, aggregations=made, rows=made[0].output if any(a.leaves for a in made) else None)
    standing = Filter(groups, call("gt", [groups.aggregations[0].output, Lit(0, Scalar.BIGINT)]))
    root = Changes(groups if one else standing)
    project = Project(root, tuple((Col(f"O{i}", c.type), c) for i, c in enumerate(root.schema)))
    outputs = tuple(Output(c.name, c) for c in project.schema)
    sink = Sink("OUT", "out", "table", outputs[:1], outputs[1:], Encoding(), whole_key=True)
    return Query("OUT", "risingwave", "", Coalesce(project, (outputs[0].expr,)), sink)


def _one_below(rng: random.Random) -> Query:
    """A group of all rows, below a condition, a join or another group: it has its row before any has come."""
    rows = table(rng, "A")
    calls: list[tuple[str, Expr | None]] = [("COUNT", None), ("SUM", col(rows, "A.N"))]
    made: Node = aggregate(rows, [integer(0)], calls)
    count = made.schema[1]
    if rng.random() < 0.5:
        made = Filter(made, call(rng.choice(["lt", "gt", "ne"]), [count, Lit(rng.randint(0, 2), Scalar.BIGINT)]))
    made = Changes(made)
    key = [made.schema[0]]
    if rng.random() < 0.7:
        other = table(rng, "B")
        n = call("COALESCE", [col(other, "B.N"), integer(0)])
        on = Equalities((Cast(n, Scalar.BIGINT),), (count,), (False,))
        made = RegularJoin(other, made, rng.choice(["inner", "left", "right", "full"]), on)
        key = [*_ids(made), *key]
    outputs = tuple((Col(f"O{i}", c.type), c) for i, c in enumerate(dict.fromkeys([*key, *made.schema])))
    keys = tuple(c for c, _ in outputs[: len(key)])
    named = tuple(Output(c.name, c) for c, _ in outputs)
    sink = Sink("OUT", "out", "table", named[: len(key)], named[len(key) :], Encoding(), whole_key=True)
    return Query("OUT", "risingwave", "", Coalesce(Project(made, outputs), keys), sink)


def _semi(rng: random.Random) -> Node:
    """The rows that have a partner, or none; perhaps of rows that are such, or by watermarks."""
    root = table(rng, "A")
    if rng.random() < 0.3:
        made = _bounded(rng)
        join = next(x for x in made.walk() if isinstance(x, RegularJoin))
        return cleaned(replace(join, how="left", gives=rng.choice(["matched", "unmatched"]), clean=()))
    for alias in "BC"[: rng.choice([1, 1, 2])]:
        join = _regular(rng, root, table(rng, alias))
        assert isinstance(join, RegularJoin)
        root = replace(join, how="left", gives=rng.choice(["matched", "unmatched"]))
    return root


def _now(rng: random.Random) -> Node:
    """Rows whose time has come, or has not gone by: of one table, of a join, behind a watermark, or filtered twice."""
    root = _timed(rng, "A") if rng.random() < 0.3 else table(rng, "A")
    if rng.random() < 0.4:
        root = rng.choice([_regular, _temporal])(rng, root, table(rng, "B"))
    read = [s for s in logical.sources(root) if s.watermark is None]
    apart = tuple(
        replace(s, alias=f"{s.alias}~now", watermark=None, columns=()) for s in logical.sources(root) if s not in read
    )
    clocks = tuple(s.alias for s in (*read, *apart))
    root = Clocked(root, apart, ()) if apart else root
    n = call("mul", [col(root, "A.N"), integer(rng.choice([0, 1, 7]))])
    time = call("add", [col(root, "A.ROWTIME"), Cast(n, Scalar.BIGINT)])
    value = call("shift", [Lit(datetime(1970, 1, 1), Scalar.TIMESTAMP), time])
    for _ in range(rng.choice([1, 1, 2])):
        behind = Lit(rng.choice([0, -1, -DELAY, DELAY]), Scalar.BIGINT)
        now = call("shift", [NOW, behind]) if behind.value else NOW
        compare: Compare = rng.choice(["gt", "ge", "lt", "le", "gt"])
        root = TemporalFilter(root, value, compare, now, clocks)
    return root


def _over(rng: random.Random) -> Node:
    """Calls over rows that come and go, or only come: ranks, of which perhaps the first are read, other rows, and
    aggregates over frames."""
    rows = table(rng, "A")
    if rng.random() < 0.3:
        rows = _regular(rng, rows, table(rng, "B"))
    key = tuple(_ids(rows))
    n = col(rows, "A.N")
    whole, exact = Col("A.whole", Scalar.BIGINT), Col("A.exact", Decimal(38, 0))
    tenths, near = Col("A.tenths", Scalar.DOUBLE), Col("A.near", Scalar.INT)
    tenth = call("div", [Cast(n, Scalar.DOUBLE), Lit(10.0, Scalar.DOUBLE)])
    by = rng.choice([0, 1, 3])
    made = [(whole, Cast(n, Scalar.BIGINT)), (exact, Cast(n, Decimal(38, 0))), (tenths, tenth),
            (near, call(rng.choice(["sub", "add"]), [n, integer(by)]))]  # fmt: skip
    rows = Project(rows, (*((c, c) for c in rows.schema), *made))
    for i in range(rng.choice([1, 1, 2])):
        rows = _calls(rng, rows, key, f"A.over{i}")
    return rows


def _calls(rng: random.Random, rows: Node, key: tuple[Col, ...], name: str) -> Node:
    plain = [c for c in rows.schema if c.name.endswith((".V", ".N", ".tenths"))]
    n, near = col(rows, "A.N"), col(rows, "A.near")
    partition = tuple(rng.sample(plain, rng.choice([0, 1, 1, 2])))
    ranges = rng.random() < 0.3
    values = [n] if ranges else rng.sample([*plain, col(rows, "A.ROWTIME")], rng.choice([0, 1, 1, 2]))
    if rng.random() < 0.3:
        key = (*values, *key)
    order = tuple(Ordered(c, rng.random() < 0.5, rng.random() < 0.5) for c in values)
    calls: list[Windowed] = []
    for i in range(rng.choice([1, 1, 2, 3, 4])):
        function = rng.choice(["ROW_NUMBER", "RANK", "DENSE_RANK", "LAG", "LEAD", "FIRST_VALUE", "LAST_VALUE", "COUNT",
                               "SUM", "SUM", "AVG", "MIN", "MAX"])  # fmt: skip
        frame = _frame(rng, near if ranges else None)
        arg, t, options = rng.choice(plain), None, ()
        match function:
            case "ROW_NUMBER" | "RANK" | "DENSE_RANK":
                arg, t = None, Scalar.BIGINT
            case "COUNT":
                arg, t = rng.choice([None, arg]), Scalar.BIGINT
            case "LAG" | "LEAD":
                options = (rng.choice([0, 1, 1, 3]),)
            case "SUM":
                arg = col(rows, rng.choice(["A.whole", "A.exact", "A.tenths"]))
            case "AVG":
                arg = col(rows, rng.choice(["A.exact", "A.tenths"]))
                t = Scalar.DOUBLE if arg.type is Scalar.DOUBLE else Decimal(38, 16)
        output = Col(f"{name}_{i}", t or arg.type)
        calls.append(Windowed(Aggregation(output, function, arg, options), frame))
    node: Node = Over(rows, partition, order, key, tuple(calls))
    ranks = [c.aggregation.output for c in calls if c.function in RANKS]
    if ranks and rng.random() < 0.7:
        most = rng.choice([1, 1, 2, 3, 7])
        backwards = all(c.looks_back for c in calls)
        node = replace(node, top=Top(ranks[0], most)) if backwards and rng.random() < 0.9 else node
        node = Filter(node, call("le", [ranks[0], Lit(most, Scalar.BIGINT)]))
    return node


def _frame(rng: random.Random, near: Col | None) -> Frame:
    if near is not None and rng.random() < 0.7:
        return Frame(RANGE, *rng.choice([(near, 0), (near, None), (0, near), (None, near)]))
    if rng.random() < 0.5:
        return Frame(RANGE, *rng.choice([(None, 0), (None, None), (0, 0), (0, None)]))
    low, high = sorted(rng.sample(range(-3, 4), 2))
    return Frame(ROWS, rng.choice([low, None]), rng.choice([high, None]))


def _union(rng: random.Random) -> Query:
    """The rows of two or three tables, sources and joins, as they are, in groups or joined."""
    parts = []
    for n, alias in enumerate("ABC"[: rng.choice([2, 2, 3])]):
        rows = table(rng, alias)
        if rng.random() < 0.2 and n == 0:
            rows = _regular(rng, rows, table(rng, "D"))
        values = [c for c in rows.schema if c.type == Scalar.INT]
        keys = _ids(rows)
        places = [next((k for k in keys if k.type == t), Lit(None, t)) for t in (Scalar.INT, Scalar.BIGINT)]
        second = next((k for k in keys if k not in places), Lit(None, Scalar.INT))
        second = second if second.type == Scalar.INT else Cast(second, Scalar.INT)
        of = (rng.choice(values), integer(n), *places, second)
        parts.append(Project(rows, tuple((Col(f"U.{c}", e.type), e) for c, e in zip("NPIBS", of, strict=True))))
    key = tuple(c for c in parts[0].schema if c.name != "U.N")
    root: Node = Union(tuple(parts), key)
    if rng.random() < 0.4:
        calls: list[tuple[str, Expr | None]] = [("COUNT", None), ("SUM", col(root, "U.P")), ("MAX", col(root, "U.I"))]
        root = aggregate(root, [call("COALESCE", [col(root, "U.N"), integer(0)])], calls)
        root = Changes(Filter(root, call("gt", [root.aggregations[0].output, Lit(0, Scalar.BIGINT)])))
    elif rng.random() < 0.5:
        other = table(rng, "E")
        root = _regular(rng, root, other) if rng.random() < 0.7 else _regular(rng, other, root)
    project = Project(root, tuple((Col(f"O{i}", c.type), c) for i, c in enumerate(root.schema)))
    known = [*(key if "U.P" in {c.name for c in root.schema} else root.row_key[:1]), *_ids(root)]
    key_columns = [c for c, e in project.outputs if e in known]
    outputs = [Output(c.name, c) for c in project.schema]
    keys_of, values_of = ([o for o in outputs if (o.expr in key_columns) is so] for so in (True, False))
    kind: logical.Kind = "stream" if root.mode == "append" else "table"
    sink = Sink("OUT", "out", kind, tuple(keys_of), tuple(values_of), Encoding(), whole_key=True)
    return Query("OUT", "risingwave", "", Coalesce(project, tuple(key_columns)), sink)


def again(x: Any) -> Any:
    """The same under other names: what is read once more."""
    if isinstance(x, Source | Bound):
        x = replace(x, alias=f"{x.alias}2")
    if isinstance(x, Col | SourceColumn):
        return replace(x, name=x.name.replace(".", "2.", 1) if x.name[1:2] == "." else f"{x.name}2")
    if isinstance(x, tuple):
        return tuple(map(again, x))
    if is_dataclass(x) and not isinstance(x, type | Column):
        return replace(x, **{f.name: again(getattr(x, f.name)) for f in fields(x)})
    return x


def _shared(rng: random.Random) -> Query:
    """A part that is read twice: joined with itself, beside its groups, or all rows of both, each perhaps filtered."""
    root: Node
    match rng.choice(["join", "join", "watermarks", "over", "windows"]):
        case "join":
            root = JOINS[rng.choice([*JOINS])](rng, table(rng, "A"), table(rng, "B"))
        case "watermarks":
            root = _bounded(rng)
        case "over":
            root = _over(rng)
        case _:
            root = _windows(rng, _regular(rng, table(rng, "A"), table(rng, "B")))
    parts = [root, again(root)]
    for i, name in enumerate(("A.N", "A2.N")):
        if rng.random() < 0.3:
            parts[i] = Filter(parts[i], call("gt", [col(parts[i], name), integer(rng.choice([0, 2]))]))
    if rng.random() < 0.3:
        parts.reverse()
    made = _regular(rng, *parts)
    assert isinstance(made, RegularJoin)
    return view(rng, replace(made, on=_keys(rng, *parts)) if made.on.left else made)


def _bounded(rng: random.Random) -> Node:
    """A join of two sources that watermarks clean: by an equality of times, or by a range."""
    left, right = _timed(rng, "A"), _timed(rng, "B")
    a, b = col(left, "A.ROWTIME"), col(right, "B.ROWTIME")
    how: logical.How = rng.choice(["inner", "left", "right", "full"])
    k = (col(left, "A.N"),), (col(right, "B.N"),)
    if rng.random() < 0.4:
        return cleaned(RegularJoin(left, right, how, Equalities((*k[0], a), (*k[1], b), (False, False)), None))
    late = call("add", [b, Lit(rng.choice([0, 10]), Scalar.BIGINT)])
    within = call("and", [call("ge", [a, b]), call("le", [a, late])])
    if rng.random() < 0.3:
        within = call("and", [call("lt", [_failing(rng.choice([*k[0], *k[1]])), integer(5)]), within])
    return cleaned(RegularJoin(left, right, how, Equalities(*k, (rng.random() < 0.3,)), within))


def in_epochs(history: History, size: int) -> History:
    """The history with `size` records an epoch."""
    topics = {
        name: [[replace(r, seq=r.seq // size) for r in records] for records in partitions]
        for name, partitions in history.topics.items()
    }
    moments = tuple(replace(m, seq=m.seq // size) for m in history.moments)
    return replace(history, topics=topics, moments=moments)


def check(shape: str, seed: int, whole: bool = True) -> None:
    """`whole`: cut at every record, too, else at a few in a row."""
    rng = random.Random(f"{shape} {seed}")
    query = random_query(rng, shape)
    history = in_epochs(random_history(rng, query, explicit=True, length=rng.randint(10, 40)), rng.choice([1, 1, 2, 5]))
    want = by_reference(query, history)
    cuts = seq_cuts(rng, history)
    for i, cut in enumerate(cuts if whole else some(rng, cuts)):
        buckets = rng.choice([1, 2, 4])
        got, _ = ran(query, history, cut, buckets, rng)
        assert got == want, difference(got.all, want.all, f"{shape} {seed}: cut {i}, {buckets} buckets, {query.root}")


def check_by_another_key(shape: str, seed: int, whole: bool = True) -> bool:
    """The rows of a view by other columns that tell them apart; `follows` says which. Whether there were any."""
    rng = random.Random(f"{shape} {seed} by another key")
    query = random_query(rng, shape)
    project = query.root.inputs[0]
    assert isinstance(project, Project)
    columns = [c for c, _ in project.outputs]
    wanted, known = [o.name for o in query.sink.key], {c.name: c for c in columns}
    key = Rules(follows(project, lambda _: ())).least(rng.sample([*known], len(known)), wanted)
    assert key is not None
    if not key or {*key} == {*wanted}:  # one group has one row, whatever its key
        return False
    history = in_epochs(random_history(rng, query, explicit=True, length=rng.randint(10, 40)), rng.choice([1, 1, 2, 5]))
    history = _keyed_by_place(query, history)
    if shape != "closing":  # what went out for good is known by its key only
        _check_apart(query, history, key)
    only_rows = rng.random() < 0.3
    root = Coalesce(project, tuple(known[name] for name in key), only_rows)
    outputs = [Output(name, c) for name, c in known.items()]
    keys, values = [o for o in outputs if o.name in key], [o for o in outputs if o.name not in key]
    kind: logical.Kind = "stream" if root.mode == "append" else "table"
    keys.sort(key=lambda o: key.index(o.name))
    other = replace(query, root=root, sink=replace(query.sink, kind=kind, key=tuple(keys), values=tuple(values)))
    want = by_reference(other, history)
    cuts = seq_cuts(rng, history)
    for i, cut in enumerate(cuts if whole else some(rng, cuts)):
        got, _ = ran(other, history, cut, rng.choice([1, 2, 4]), rng)
        assert got == want, difference(got.all, want.all, f"{shape} {seed} by {key}: cut {i}, {root}")
    return True


def _keyed_by_place(query: Query, history: History) -> History:
    """With a key of its own for each record of a stream, as rows of an append-only table have."""
    streams = {s.topic for s in logical.sources(query.root) if s.kind == "stream"}
    topics = {
        name: [
            [replace(r, key=1000 * number + n if name in streams else r.key) for n, r in enumerate(records)]
            for number, records in enumerate(partitions)
        ]
        for name, partitions in history.topics.items()
    }
    return replace(history, topics=topics)


def _check_apart(query: Query, history: History, by: Sequence[str]) -> None:
    """After each epoch no two rows that stand are equal in all of `by`."""
    stands, names = dict[object, Mapping[str, object]](), [o.name for o in query.sink.key]
    for _, records in groupby(expected(query, history).records, lambda r: r.time):
        for n, r in enumerate(records):
            at = (r.time, n) if query.root.mode == "append" else r.key
            if r.values is None:
                stands.pop(at, None)
            else:
                stands[at] = dict(zip(names, r.key or (None,), strict=True)) | r.values
        apart = {tuple(row[name] for name in by) for row in stands.values()}
        assert len(apart) == len(stands), f"{by}: {query.root}"


@pytest.mark.parametrize("shape", SHAPES)
def test_law(shape: str) -> None:
    check(shape, 0, whole=False)


@pytest.mark.parametrize("worth", [0, float("inf")])
def test_law_of_rows_that_are_one(worth: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a group in an epoch as one row, however few they are, and never."""
    _one_row(worth, monkeypatch)
    for seed in range(3):
        check("grouped", seed, whole=False)


def _one_row(worth: float, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("aggregate", "folding"):
        monkeypatch.setattr(f"braid.operators.{module}.WORTH", worth)


def test_law_by_another_key() -> None:
    assert sum(check_by_another_key(shape, seed, whole=False) for shape in SHAPES for seed in (0, 2003)) > 5


@pytest.mark.law
@pytest.mark.parametrize("shape", SHAPES)
def test_law_by_another_key_at_length(shape: str) -> None:
    found = [check_by_another_key(shape, seed) for seed in range(1000, 1050)]
    assert any(found) or shape == "grouped"  # whose key alone tells its rows apart


@pytest.mark.law
@pytest.mark.parametrize("worth", [0, float("inf")])
def test_law_of_rows_that_are_one_at_length(worth: float, monkeypatch: pytest.MonkeyPatch) -> None:
    _one_row(worth, monkeypatch)
    for seed in range(1000, 1100):
        check("grouped", seed, whole=False)


@pytest.mark.law
@pytest.mark.parametrize("shape", SHAPES)
def test_law_at_length(shape: str) -> None:
    for seed in range(1000, 1050):
        check(shape, seed)


# ---------------------------------------------------- one run gives what two give


def _falling(rng: random.Random) -> History:
    """A topic of one partition whose records often have one time, or an earlier one than those before them; so have
    their values."""
    now, made = 100, list[Raw]()
    value = 0
    for seq in range(rng.randint(10, 40)):
        now += rng.choice([0, 0, 0, 1, 5, -3, -20])
        value += rng.choice([0, 1, 3, 12])
        n = None if rng.random() < 0.1 else value - rng.choice([0, 0, 2, DELAY - 1, DELAY + 1, 25])
        made.append(Raw(seq, rng.choice([1, 2]), {"V": rng.choice("ab"), "N": n}, max(now, 0)))
    return History({"ta": [made]}, False, (), ends=False)


def _closing_alone(rng: random.Random) -> Query:
    """EMIT ON WINDOW CLOSE over one source: its rows, or groups of them."""
    read = source("A", "ta", "stream", partitions=1)
    row_id = SourceColumn("A.ID", "ROWOFFSET", Column("ROWOFFSET", Scalar.BIGINT), "rowoffset")
    value = col(read, "A.N")
    read = replace(read, columns=(*read.columns, row_id), watermark=call("sub", [value, integer(DELAY)]), end="lift")
    root: Node = OnTime(read, value, Bound("A", value, value))
    if rng.random() < 0.3:
        waits = watermark_of(root)
        assert waits is not None
        return view(rng, EmitOnClose(root, *waits))
    keys = [call("COALESCE", [value, integer(0)]), *([col(read, "A.V")] if rng.random() < 0.5 else [])]
    groups = aggregate(root, keys, [("COUNT", None), ("SUM", value)])
    made = Changes(groups)
    root = EmitOnClose(made, made.schema[0], progress(made)[made.schema[0].name])
    outputs = tuple(Output(c.name, c) for c in root.schema)
    sink = Sink("OUT", "out", "stream", outputs[: len(keys)], outputs[len(keys) :], Encoding(), whole_key=True)
    return Query("OUT", "risingwave", "", Coalesce(root, tuple(o.expr for o in outputs[: len(keys)])), sink)


def check_runs(seed: int) -> int:
    """Each run reads what is there; a later one goes on with what has come. However the records fall into runs, what
    goes out is the same, once and for good. How many rows that is."""
    rng = random.Random(f"runs {seed}")
    query, history = _closing_alone(rng), _falling(rng)
    count = len(history.topics["ta"][0])
    want = by_reference(query, history)
    keys = [line[0] for line in want.lines]
    assert len(set(keys)) == len(keys) and all(line[1] is not None for line in want.lines)
    for cuts in ([], sorted(rng.sample(range(1, count), 3)), range(1, count)):
        plan, told = lower(query), Told([], [])
        local = LocalQuery(plan, 1, rng.choice([1, 2, 4]))
        for first, last in pairwise([0, *cuts, count]):
            if rng.random() < 0.3:
                local.restore(local.snapshot())
            made = local.run(chunks_of(plan, history, Batch({("ta", 0): (first, last)})))
            told.lines.extend(lines_of(made.records))
            told.drops.extend((r, t, "") for r, t in made.dropped.select("reason", "timestamp").iter_rows())
        of = f"runs {seed}: cut at {[*cuts]}, {query.root}"
        assert sorted(told.drops) == want.drops, of
        assert sorted(told.lines, key=repr) == sorted(want.lines, key=repr), difference(told.lines, want.lines, of)
        assert [x[2] for x in told.lines] == [x[2] for x in want.lines], of
    return len(keys)


def test_one_run_gives_what_two_give() -> None:
    assert sum(check_runs(seed) for seed in range(10)) > 15


@pytest.mark.law
def test_one_run_gives_what_two_give_at_length() -> None:
    for seed in range(1000, 1100):
        check_runs(seed)
