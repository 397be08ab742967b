"""Random queries and random histories of their topics, and the order a history is processed in.

In: a `random.Random`. Out: logical plans, records with all that goes wrong in practice (late, tied, null, idle, far in
the future), the events for `braid.reference`, and cuts of a history into batches.
Rule: nothing here knows how a query runs. A test says: `expected(query, history)` is what every cut must give.

    rng = random.Random(seed)
    query = random_query(rng, "ss")                        # or any other of SHAPES
    history = random_history(rng, query, explicit=True)
    want = expected(query, history)                        # records and drops of the reference
    for cut in seq_cuts(rng, history):                     # cuts.py; time_cuts where it is not explicit
        for batch in batches(history, cut): ...            # offsets and moments of one batch
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from braid.expr import user
from braid.expr.aggregates import shaped
from braid.expr.nodes import Call, Cast, Col, Expr, Lit
from braid.expr.typing import call
from braid.plan import logical
from braid.plan.groups import Aggregate, Aggregation, Final, Sessions, TimeWindows
from braid.plan.joins import ForeignKeyJoin, OnKeys, Pad, StreamStreamJoin, StreamTableJoin, TableTableJoin
from braid.plan.logical import Encoding, Filter, Kind, Node, Output, Project, Query, Sink, SourceColumn
from braid.plan.windows import Hopping, Session
from braid.reference import Bound, Drop, End, Event, Idle, OutRecord, Record, Reference
from braid.types import Column, Decimal, Scalar
from user_aggregates import OWN

DAY = 86_400_000
BOUNDS = (Col(".WINDOWSTART", Scalar.BIGINT), Col(".WINDOWEND", Scalar.BIGINT))
ENDINGS = ("START", "END")  # of the names of bounds

# ---------------------------------------------------------------- plans


def source(
    alias: str,
    topic: str | None = None,
    kind: Kind = "stream",
    partitions: int | None = None,
    windowed: bool = False,
) -> logical.Source:
    """`alias (K INT KEY, V VARCHAR, N INT)` with ROWTIME, over its own topic unless another is named; `windowed`: with
    windows in its keys."""
    fields: list[tuple[str, Scalar, logical.Place]] = [
        ("K", Scalar.INT, "key"),
        ("V", Scalar.VARCHAR, "value"),
        ("N", Scalar.INT, "value"),
        ("ROWTIME", Scalar.BIGINT, "rowtime"),
    ]
    if windowed:
        fields += [("WINDOWSTART", Scalar.BIGINT, "windowstart"), ("WINDOWEND", Scalar.BIGINT, "windowend")]
    columns = tuple(SourceColumn(f"{alias}.{name}", name, Column(name, t), place) for name, t, place in fields)
    topic = topic or alias.lower()
    return logical.Source(alias, topic.upper(), topic, kind, columns, Encoding(), partitions=partitions)


def table(alias: str, topic: str | None = None, partitions: int | None = None) -> logical.Source:
    return source(alias, topic, "table", partitions)


def col(node: Node, name: str) -> Col:
    """A column of a node by its plan name."""
    return next(c for c in node.schema if c.name == name)


def integer(value: int) -> Lit:
    return Lit(value, Scalar.INT)


def stream_stream(
    left: Node,
    right: Node,
    how: logical.How = "inner",
    *,
    left_key: Expr | None = None,
    right_key: Expr | None = None,
    before: int = 10,
    after: int = 10,
    grace: int | None = None,
    day: int = DAY,
    null_key: Literal["drop", "pad"] = "drop",
    late: Literal["lookup", "discard"] = "lookup",
) -> StreamStreamJoin:
    """A join with the retention that its window and grace give (`day`: the 24 h of a join without GRACE)."""
    keep = max(before + after + (grace if grace is not None else max(day - 2 * before, 0)), 1)
    left_keys, right_keys, keys = _equal(left, right, left_key or _key_of(left), right_key or _key_of(right))
    pad: Pad = "eager" if grace is None else "deferred"
    return StreamStreamJoin(
        left, right, how, left_keys, right_keys, keys, before, after, grace or 0, keep, pad, null_key, late,
        len(keys) > 1,
    )  # fmt: skip


def stream_table(
    left: Node,
    right: Node,
    how: Literal["inner", "left"] = "inner",
    *,
    left_key: Expr | None = None,
    null_key: Literal["drop", "pad"] = "drop",
) -> StreamTableJoin:
    left_keys, right_keys, keys = _equal(left, right, left_key or _key_of(left), _key_of(right))
    return StreamTableJoin(left, right, how, left_keys, right_keys, keys, null_key, len(keys) > 1)


def table_table(left: Node, right: Node, how: logical.How = "inner") -> TableTableJoin:
    left_keys, right_keys, keys = _equal(left, right, _key_of(left), _key_of(right))
    return TableTableJoin(left, right, how, left_keys, right_keys, keys, windowed=len(keys) > 1)


def foreign_key(
    left: Node, right: Node, how: Literal["inner", "left"] = "inner", left_key: Expr | None = None, binary: bool = False
) -> ForeignKeyJoin:
    left_key = left_key or _ending(left, ".N")
    key = _join_key(left, right, left_key)
    return ForeignKeyJoin(left, right, how, (left_key,), (_key_of(right),), (key,), binary)


def aggregate(node: Node, keys: Sequence[Expr], calls: Sequence[tuple[str, Expr | None]]) -> Aggregate:
    """GROUP BY `keys` with the aggregates `calls`: (function, argument)."""
    step = _steps(node)
    named = [(Col(f".KEY{step + i}", e.type), e) for i, e in enumerate(keys, 1)]
    if isinstance(node, TimeWindows):
        named += zip(BOUNDS, (node.start, node.end), strict=True)
    results = [Aggregation(Col(f".AGG{i}", _aggregate_type(f, arg)), f, arg) for i, (f, arg) in enumerate(calls)]
    return Aggregate(node, tuple(named), tuple(results))


def query(root: Node, *values: str | Output, key: Sequence[Expr] | None = None, limit: int | None = None) -> Query:
    """SELECT the named columns (all, if none is named). The record's key is the root's, or `key`."""
    kind: Kind = "stream" if root.mode == "append" else "table"
    window = _window_of(root)
    keys = tuple(key) if key is not None else tuple(e for e in root.row_key if e not in (window or ()))
    columns = root.schema
    named = values or tuple(c.name for c in columns if c not in keys and not c.name.endswith("ROWTIME"))
    outputs = tuple(v if isinstance(v, Output) else Output(v, col(root, v)) for v in named)
    written = tuple(Output(f"K{i}", e) for i, e in enumerate(keys))
    sink = Sink("OUT", "out", kind, written, outputs, Encoding(), limit=limit, window=window)
    return Query("OUT", "ksqldb", "", root, sink)


def _steps(*nodes: Node) -> int:
    """How many `.KEY<n>` plans have."""
    own = sum(len(n.keys) if isinstance(n, Aggregate) else int(_is_join(n)) for n in nodes)
    return own + sum(_steps(*n.inputs) for n in nodes if n.inputs)


def _is_join(node: Node) -> bool:
    return isinstance(node, OnKeys) and node.by_key


def _join_key(left: Node, right: Node, key: Expr) -> Col:
    return Col(f".KEY{_steps(left, right) + 1}", key.type)


def _key_of(node: Node) -> Expr:
    (key,) = (e for e in node.row_key if e not in (_window_of(node) or ()))
    return key


def _window_of(node: Node) -> tuple[Col, Col] | None:
    """The bounds that are parts of the key of its rows."""
    if isinstance(node, Aggregate) and not isinstance(node.input, TimeWindows):
        return None
    found = [e for e in node.row_key if isinstance(e, Col) and e.name.rstrip("0123456789").endswith(ENDINGS)]
    return (found[0], found[1]) if found else None


def _equal(
    left: Node, right: Node, left_key: Expr, right_key: Expr
) -> tuple[tuple[Expr, ...], tuple[Expr, ...], tuple[Col, ...]]:
    """The keys of both sides and those of the result, with the bounds of windows where both sides have some."""
    key, n = _join_key(left, right, left_key), _steps(left, right) + 1
    own, other = _window_of(left), _window_of(right)
    if own is None or other is None:
        return (left_key,), (right_key,), (key,)
    made = Col(f".START{n}", Scalar.BIGINT), Col(f".END{n}", Scalar.BIGINT)
    return (left_key, *own), (right_key, *other), (key, *made)


def _aggregate_type(function: str, arg: Expr | None) -> Scalar | Decimal:
    if function == "COUNT":
        return Scalar.BIGINT
    assert arg is not None
    if isinstance(arg.type, Decimal):
        return arg.type
    assert isinstance(arg.type, Scalar)
    return Scalar.DOUBLE if function == "AVG" else arg.type


# ---------------------------------------------------------------- random plans

SHAPES = (
    "project", "filter",
    "ss", "st", "tt", "ft",
    "ss-ss", "ss-ss-other", "ss-st", "st-ss", "ss-ss-right", "ss-st-right", "st-st", "tt-tt",
    "ss-ss-ss", "ss-ss-ss-other", "ss-ss-ss-bushy", "ss-ss-st",
    "aggregate", "ss-aggregate", "ss-ss-aggregate", "st-aggregate", "tt-aggregate",
    "ft-tt", "ft-tt-right", "ft-aggregate",
    "windows", "windows-final", "ss-windows", "ss-ss-windows-final", "st-windows",
    "sessions", "sessions-final", "ss-sessions", "ss-ss-sessions-final", "st-sessions",
    "windowed-ss", "windowed-st", "windowed-tt", "windowed-ss-ss", "windowed-ss-st", "windowed-ss-aggregate",
)  # fmt: skip
CHAINS = {"ss": ("stream", "stream"), "st": ("stream", "table"), "tt": ("table", "table"), "ft": ("table", "table")}
WINDOWS = [(5, 5), (0, 10), (10, 0), (3, 12), (20, 4), (1, 1), (0, 0)]


def random_query(rng: random.Random, shape: str | None = None, *, limit: bool = False) -> Query:
    """A query of a shape: its joins, then WHERE, GROUP BY and HAVING where the shape has them or chance adds them."""
    shape = shape or rng.choice(SHAPES)
    parts = shape.split("-")
    joins = [part for part in parts if part in CHAINS]
    nested: Literal["", "right", "bushy"] = "right" if "right" in shape else "bushy" if "bushy" in shape else ""
    kind: Kind | None = "stream" if "windows" in parts or "sessions" in parts else None
    keyed = {"other": "other" in shape, "windowed": "windowed" in shape}
    root = _random_chain(rng, joins, nested, **keyed) if joins else _random_source(rng, kind)
    if shape == "filter" or (shape != "project" and rng.random() < 0.3):
        root = Filter(root, _random_predicate(rng, root))
    windows = _random_windows(rng, root) if "windows" in parts else None
    groups: Aggregate | None = None
    if "aggregate" in shape or "sessions" in parts or windows is not None:
        groups = root = _random_aggregate(rng, windows or root)
        if "sessions" in parts:
            groups = root = _random_sessions(rng, groups)
        if rng.random() < 0.4:
            having = call(rng.choice(["gt", "le"]), [col(root, ".AGG0"), Lit(rng.choice([0, 1, 2]), Scalar.BIGINT)])
            root = Filter(root, having)
    if groups is not None and groups.told_after is not None and "final" in shape:
        root = Final(root, groups.told_after, *BOUNDS, rng.random() < 0.5)
    return query(root, *_random_outputs(rng, root), limit=rng.randint(1, 12) if limit else None)


def _random_source(rng: random.Random, kind: Kind | None = None) -> Node:
    return source("A", kind=kind or rng.choice(["stream", "table"]), partitions=rng.randint(1, 3))


def _random_windows(rng: random.Random, node: Node) -> TimeWindows:
    size = rng.choice([1, 5, 12, 40])
    advance = size if rng.random() < 0.5 else rng.randint((size + 3) // 4, size)
    start, end = (Col(c.name.replace("WINDOW", ""), c.type) for c in BOUNDS)
    return TimeWindows(node, Hopping(size, advance), rng.choice([0, 0, 3, 20, DAY]), start, end)


def _random_sessions(rng: random.Random, groups: Aggregate) -> Sessions:
    gap, grace = rng.choice([1, 3, 3, 10]), rng.choice([0, 0, 1, 5, 20, DAY])
    return Sessions(groups.input, groups.keys, groups.aggregations, Session(gap), grace, *BOUNDS)


def _random_chain(
    rng: random.Random, joins: Sequence[str], nested: Literal["", "right", "bushy"], other: bool, windowed: bool
) -> Node:
    """A left-deep chain, its right sides sources or projections of one; or A JOIN (B JOIN C), or `bushy`:
    (A JOIN B) JOIN (C JOIN D). `windowed`: of sources with windows in their keys."""
    kinds = [CHAINS[joins[0]][0], *(CHAINS[j][1] for j in joins)]
    partitions = rng.randint(1, 3)
    one_topic = joins[0] == "ss" and rng.random() < 0.15
    leaves: list[logical.Source] = []
    for i, kind in enumerate(kinds):
        topic = "a" if one_topic and i < 2 else None
        # topics sort otherwise than sources are written, so that no order of sources is taken for one of topics
        topic = topic or rng.choice(["a", "p", "z"]) + str(i)
        leaves.append(source("ABCD"[i], topic, "table" if kind == "table" else "stream", partitions, windowed))
    first, *rest = [_renamed(x) if rng.random() < 0.2 else x for x in leaves]
    if nested == "bushy":
        left = _random_join(rng, first, rest[0], last=False, other=False)
        right = _renamed(_random_join(rng, *rest[1:], last=False, other=False))  # each has a .KEY1
        return _random_join(rng, left, right, last=True, other=other)
    if nested:
        inner = _random_join(rng, rest[0], rest[1], last=False, other=False)
        if joins[0] == "ft":
            return _random_reference(rng, first, inner)
        return _random_join(rng, first, _renamed(inner) if rng.random() < 0.3 else inner, last=True, other=other)
    root = first
    for i, right in enumerate(rest, 1):
        root = _renamed(root) if rng.random() < 0.1 else root
        if joins[i - 1] == "ft":
            root = _random_reference(rng, root, right)
        else:
            root = _random_join(rng, root, right, last=i == len(kinds) - 1, other=other and i > 1)
    return root


def _renamed(node: Node) -> Project:
    """The same columns under new names, and one computed."""
    new = [(Col(f"P{c.name}", c.type), c) for c in node.schema]
    number = next(c for c in node.schema if c.name.endswith(".N"))
    return Project(node, (*new, (Col(f"Q{number.name}.N", Scalar.INT), _plus(number, 1))))


def _random_join(rng: random.Random, left: Node, right: Node, last: bool, other: bool) -> Node:
    hows: list[logical.How] = ["inner", "left", "right", "full"]
    if left.mode == "upsert":
        return table_table(left, right, rng.choice(hows if last else hows[:3]))
    if rng.random() < 0.15 and not isinstance(left, logical.Source):
        left = Filter(left, _random_predicate(rng, left))
    left_key = _random_key(rng, left, other)
    null_key: Literal["drop", "pad"] = rng.choice(["drop", "drop", "pad"])
    if right.mode == "upsert":
        return stream_table(left, right, rng.choice(["inner", "left", "left"]), left_key=left_key, null_key=null_key)
    before, after = rng.choice(WINDOWS)
    return stream_stream(
        left,
        right,
        rng.choice(["inner", "left", "right", "full", "left", "full"]),
        left_key=left_key,
        right_key=rng.choice([None, None, _ending(right, ".N"), _plus(_ending(right, ".K"), 0)]),
        before=before,
        after=after,
        grace=rng.choice([None, None, 0, 1, 5, 20]),
        day=rng.choice([DAY, 60, 2 * before + 1]),
        null_key=null_key,
        late=rng.choice(["lookup", "lookup", "lookup", "discard"]),
    )


def _random_reference(rng: random.Random, left: Node, right: Node) -> Node:
    number = _ending(left, ".N")
    refers: Expr = number if rng.random() < 0.8 else _plus(number, 1)
    return foreign_key(left, right, rng.choice(["inner", "left"]), refers, rng.random() < 0.5)


def _random_key(rng: random.Random, left: Node, other: bool) -> Expr:
    """The key that the left side has already, or another: a column of one of its sources, or an expression of one."""
    if not other and rng.random() < 0.75:
        return _key_of(left)
    columns = [c for c in left.schema if c.name.endswith((".N", ".K"))]
    chosen = rng.choice(columns)
    return chosen if rng.random() < 0.8 else _plus(chosen, 1)


def _ending(node: Node, end: str) -> Col:
    return next(c for c in node.schema if c.name.endswith(end))


def _plus(e: Expr, n: int) -> Expr:
    return Call("add", (e, integer(n)), Scalar.INT)


def _random_predicate(rng: random.Random, node: Node) -> Expr:
    columns = node.schema
    number = rng.choice([c for c in columns if c.type == Scalar.INT])
    text = rng.choice([c for c in columns if c.name.endswith(".V")])
    return rng.choice(
        [
            call("gt", [number, integer(rng.choice([0, 1, 2]))]),
            call("ne", [number, integer(rng.choice([1, 2]))]),
            call("is_null", [text]),
            call("is_not_null", [text]),
            call("or", [call("is_null", [number]), call("lt", [number, integer(2)])]),
        ]
    )


def _random_aggregate(rng: random.Random, node: Node) -> Aggregate:
    columns = node.schema
    numbers = [c for c in columns if c.type == Scalar.INT]
    groups = rng.choice([list(node.row_key), [rng.choice(numbers)], [_plus(rng.choice(numbers), 1)], None])
    groups = groups or rng.sample(numbers, 2)
    functions = ["COUNT", "SUM", "AVG"] + ["MIN", "MAX", "LATEST_BY_OFFSET"] * (node.mode == "append")
    calls: list[tuple[str, Expr | None]] = [("COUNT", None)]
    for function in rng.sample(functions, rng.randint(1, len(functions))):
        texts = [c for c in columns if c.name.endswith(".V")] if function not in ("SUM", "AVG") else []
        calls.append((function, rng.choice([*numbers, *texts])))
    made = aggregate(node, groups, calls)
    return replace(made, aggregations=(*made.aggregations, *_random_collections(rng, node)))


def _random_collections(rng: random.Random, node: Node) -> Iterator[Aggregation]:
    """Aggregates that keep values, with their constants."""
    numbers = [c for c in node.schema if c.type == Scalar.INT]
    texts = [c for c in node.schema if c.name.endswith(".V")]
    n, nulls = Lit(rng.randint(1, 3), Scalar.INT), Lit(rng.random() < 0.5, Scalar.BOOLEAN)
    over_table = node.mode != "append"
    either = rng.choice([*numbers, *texts])
    calls: list[tuple[str, list[Expr]]] = [
        ("COLLECT_LIST", [either]),
        ("ATTR", [either]),
        ("CORRELATION", [rng.choice(numbers), rng.choice(numbers)]),
        *([("HISTOGRAM", [rng.choice(texts)])] if texts else []),
        ("BALANCE", [rng.choice(numbers), rng.choice(numbers)]),
    ]
    if not over_table:
        calls += [
            ("EARLIEST_BY_OFFSET", [either, *rng.choice([[], [n], [nulls], [n, nulls]])]),
            ("LATEST_BY_OFFSET", [either, *rng.choice([[n], [n, nulls]])]),
            ("COLLECT_SET", [either]),
            ("COUNT_DISTINCT", [either]),
            ("TOPK", [either, n]),
            ("TOPK", [rng.choice(numbers), either, n]),
            ("TOPKDISTINCT", [either, n]),
            ("STDDEV_SAMPLE", [rng.choice(numbers)]),
            ("IN_ORDER", [rng.choice(numbers)]),
        ]
    for i, (function, args) in enumerate(rng.sample(calls, rng.randint(0, 3))):
        with user.known(OWN):
            shape = shaped(function, args, False, False, over_table)
        limit = (rng.choice([2, 1000]),) if function in ("COLLECT_LIST", "COLLECT_SET") else ()
        yield Aggregation(Col(f".KEPT{i}", shape.type), function, shape.arg, (*shape.options, *limit), shape.code)


def _random_outputs(rng: random.Random, root: Node) -> list[str | Output]:
    """Some of the columns, and expressions over several of them."""
    keys = root.row_key
    columns = [c for c in root.schema if c not in keys]
    chosen: list[str | Output] = [c.name for c in columns if rng.random() < 0.8]
    numbers = [c for c in columns if c.type == Scalar.INT]
    if numbers and rng.random() < 0.5:
        pair = Call("add", (rng.choice(numbers), rng.choice(numbers)), Scalar.INT)
        chosen.append(Output("SUM_OF_TWO", Cast(pair, Scalar.BIGINT)))
    return chosen or [c.name for c in columns[:1]] or [Output("ONE", integer(1))]


# ---------------------------------------------------------------- histories


@dataclass(frozen=True, slots=True)
class Raw:
    """A record of a topic. `seq` is its place in an explicit order; `headers` is JSON text."""

    seq: int
    key: int | None
    value: dict[str, object] | None
    time: int
    headers: str | None = None
    window: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """At `seq` these partitions of the topic fall idle, end, or get a bound (`time`). What stands at one `seq` happens
    at once."""

    seq: int
    kind: Literal["idle", "end", "bound"]
    topic: str
    partitions: tuple[int, ...]
    time: int = 0


@dataclass(frozen=True, slots=True)
class History:
    """Topics, each a list of partitions, each a list of records in offset order. `moments` only where it is explicit;
    else every partition ends after its last record (`ends`)."""

    topics: dict[str, list[list[Raw]]]
    explicit: bool
    moments: tuple[Moment, ...] = ()
    ends: bool = True

    def records(self) -> Iterator[tuple[str, int, int, Raw]]:
        """(topic, partition, offset, record)"""
        for topic, partitions in self.topics.items():
            for partition, records in enumerate(partitions):
                for offset, record in enumerate(records):
                    yield topic, partition, offset, record


def random_history(
    rng: random.Random, query: Query, explicit: bool, length: int | None = None, calm: bool = False
) -> History:
    """Records for every topic of a query. Time moves on, unevenly; partitions lag, stay empty, fall idle, end early.
    `calm`: few records are late, and time is slow."""
    length = length or rng.randint(15, 60)
    kinds = {s.topic: s.kind for s in logical.sources(query.root)}
    counts = {s.topic: s.partitions or 1 for s in logical.sources(query.root)}
    places = [(topic, p) for topic in kinds for p in range(counts[topic])]
    weights = {place: rng.choice([1, 1, 1, 1, 1, 0.2, 0.2, 0]) for place in places}
    if not any(weights.values()):
        weights[places[0]] = 1
    keys = rng.sample([1, 2, 3, 10, -1, 21], rng.choice([1, 2, 4]))
    null_keys = all(_is_join(x) for x in _readers(query.root))  # a table with null primary keys only below a join
    by_key, headers = rng.random() < 0.5, rng.random() < 0.15
    late, speed, jumps = rng.choice([0, 3, 10, 40]), rng.choice([0.3, 1.0, 3.0]), rng.random() < 0.35
    if calm:
        late, speed = rng.choice([0, 0, 0, 3]), rng.choice([0.3, 1.0])
    lag = {place: rng.choice([0, 0, 0, 15]) for place in places}
    now = dict.fromkeys(places, 100.0)
    topics: dict[str, list[list[Raw]]] = {topic: [[] for _ in range(n)] for topic, n in counts.items()}
    moments: list[Moment] = []
    windowed = any(s.window for s in logical.sources(query.root))

    for seq in range(length):
        topic, partition = rng.choices(places, weights=list(weights.values()))[0]
        if explicit and rng.random() < 0.08:
            which = (partition,) if rng.random() < 0.6 else tuple(range(counts[topic]))
            kind: Literal["idle", "bound"] = rng.choice(["idle", "bound"])
            bound = int(now[topic, partition]) + rng.choice([-5, 0, 5, 100])
            if rng.random() < 0.4:  # of all topics at once
                moments += [Moment(seq, kind, name, tuple(range(n)), bound) for name, n in counts.items()]
            else:
                moments.append(Moment(seq, kind, topic, which, bound))
            continue
        is_table = kinds[topic] == "table"
        key = None if rng.random() < 0.07 and (null_keys or not is_table) else rng.choice(keys)
        if by_key and key is not None and weights[topic, key % counts[topic]]:
            partition = key % counts[topic]
        step = rng.choice([0, 0, 1, 2, 5]) * speed + (rng.choice([100, 1000]) if jumps and rng.random() < 0.05 else 0)
        for place in places if explicit else [(topic, partition)]:  # a partition read on its own has a pace of its own
            now[place] += step / 2 if explicit else step
        time = int(now[topic, partition]) - lag[topic, partition] - (rng.randint(0, late) if rng.random() < 0.5 else 0)
        value = {"V": None if rng.random() < 0.1 else f"{topic}{seq}", "N": rng.choice([None, 0, 1, 1, 2, 2, 3])}
        gone = rng.random() < (0.2 if is_table else 0.07)
        text = f'[["h","{rng.choice(["MQ==", "Mg=="])}"]]' if headers and rng.random() < 0.5 else None
        window = rng.choice([(0, 5), (5, 10), (0, 10)]) if windowed else None
        topics[topic][partition].append(Raw(seq, key, None if gone else dict(value), max(time, 0), text, window))
    if explicit and rng.random() < 0.4:
        moments += [Moment(length, "end", name, tuple(range(n))) for name, n in counts.items()]
    return History(topics, explicit, tuple(moments), ends=rng.random() < 0.8)


def _readers(node: Node) -> Iterator[Node]:
    """The nodes that read a source."""
    for x in node.inputs:
        if isinstance(x, logical.Source):
            yield node
        yield from _readers(x)


# ---------------------------------------------------------------- orders


def events(query: Query, history: History) -> list[Event]:
    """The history in processing order."""
    return explicit_events(query, history) if history.explicit else partitioned_events(query, history)


def explicit_events(query: Query, history: History) -> list[Event]:
    """By seq; a topic that two sources read gives two records, the left source's first. A moment comes after them."""
    out: list[Event] = []
    last = len([*logical.sources(query.root)])
    for topic, partition, offset, raw in history.records():
        out += [_record(i, s, (partition, offset), raw, (raw.seq, i)) for i, s in _readers_of(query, topic)]
    for (seq, kind, time), some in groupby(history.moments, key=lambda m: (m.seq, m.kind, m.time)):
        at = tuple((i, p) for m in some for i, _ in _readers_of(query, m.topic) for p in m.partitions)
        match kind:
            case "idle":
                out.append(Idle(at, (seq, last)))
            case "end":
                out.append(End(at, (seq, last)))
            case "bound":
                out.append(Bound(at, time, (seq, last)))
    return sorted(out, key=lambda e: e.place)


def partitioned_events(query: Query, history: History) -> list[Event]:
    """By (m, tables before streams, topic, partition, offset, leaf), m being the highest time of the partition so far.
    A partition ends right after its last record, for all sources that read it at once."""
    out: list[Event] = []
    for topic, partitions in history.topics.items():
        for partition, records in enumerate(partitions):
            ends: dict[bool, list[tuple[int, int]]] = {}
            m = 0
            for offset, raw in enumerate(records):
                m = max(m, raw.time) if offset else raw.time
                for i, s in _readers_of(query, topic):
                    place = (m, s.kind == "stream", topic, partition, offset, i)
                    out.append(_record(i, s, (partition, offset), raw, place))
            for i, s in _readers_of(query, topic):
                ends.setdefault(s.kind == "stream", []).append((i, partition))
            if records and history.ends:
                out += [End(tuple(at), (m, k, topic, partition, len(records), 0)) for k, at in ends.items()]
    return sorted(out, key=lambda e: e.place)


def _readers_of(query: Query, topic: str) -> list[tuple[int, logical.Source]]:
    return [(i, s) for i, s in enumerate(logical.sources(query.root)) if s.topic == topic]


def _record(leaf: int, s: logical.Source, at: tuple[int, int], raw: Raw, place: object) -> Record:
    key = s.key[0].name if s.key else f"{s.alias}.K"
    values = {key: raw.key} | {f"{s.alias}.{name}": v for name, v in (raw.value or {}).items()}
    if raw.window is not None:
        values |= {f"{s.alias}.{name}": bound for name, bound in zip(logical.BOUNDS, raw.window, strict=True)}
    return Record(leaf, *at, raw.time, values, raw.value is None, raw.headers, place)


@dataclass(frozen=True, slots=True)
class Expected:
    records: list[OutRecord]
    drops: list[Drop]
    nodes: Mapping[int, logical.Node]


def expected(query: Query, history: History) -> Expected:
    """What the reference says."""
    reference = Reference(query)
    return Expected(reference.process(events(query, history)), reference.drops, reference.nodes)
