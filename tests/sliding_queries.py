"""Random joins over sliding windows, for the law (`histories.py` has the histories).

In: a `random.Random`, a shape. Out: logical queries over sources (K INT KEY, V VARCHAR, N INT).
Rule: nothing here knows how a query runs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from braid.expr.nodes import Col, Expr, Lit
from braid.expr.typing import all_of, call, cast, conjuncts
from braid.plan import logical
from braid.plan.analytic import Analytic, Analyzed
from braid.plan.groups import Aggregate, Aggregation, Closed, Order
from braid.plan.logical import Filter, Node, Output, Project, Query
from braid.plan.sliding import (
    Bound,
    Emission,
    Frame,
    Meeting,
    Merged,
    Operand,
    OrderKey,
    RangeFrame,
    RowsFrame,
    SlidingJoin,
    Tree,
)
from braid.types import Scalar, Type
from histories import query, source
from keyed_queries import condition, predicate

SHAPES = (
    "sliding", "sliding-rows", "sliding-hops", "sliding-chain", "sliding-view", "sliding-alone", "sliding-itself",
    "sliding-groups", "sliding-sorted", "sliding-merged", "sliding-analytic",
)  # fmt: skip
EMISSIONS: tuple[Emission, ...] = ("arrival", "arrival", "expiry", "istream")


def random_query(rng: random.Random, shape: str) -> Query:
    partitions = rng.choice([1, 1, 1, 1, 2])

    itself = shape == "sliding-itself"
    one_topic = itself or rng.random() < 0.2

    def read(alias: str) -> Node:
        topic = "a" if one_topic and (itself or alias != "B") else rng.choice(["a", "p", "z"]) + alias.lower()
        one = replace(source(alias, topic, "stream", partitions), end="lift")
        return Filter(one, predicate(rng, one)) if shape != "sliding-rows" and rng.random() < 0.1 else one

    def operand(alias: str) -> Operand:
        return Operand(read(alias), frame(rng, shape))

    emission = rng.choice(EMISSIONS)
    rowtime = Col(".ROWTIME1", Scalar.BIGINT)
    match shape:
        case "sliding-groups" | "sliding-sorted":
            root = SlidingJoin(rng.choice([operand("A"), meeting(rng, operand("A"), operand("B"))]), rowtime, emission)
            root, closed = in_periods(rng, root, rowtime, shape == "sliding-sorted", "X")
            if rng.random() < 0.4:
                names = tuple((Col(f"P{c.name}", c.type), c) for c in root.schema)
                sides = [Operand(Project(root, names), frame(rng, shape)), operand("C")]
                rng.shuffle(sides)
                root = SlidingJoin(meeting(rng, *sides), Col(".ROWTIME2", Scalar.BIGINT), emission)
            elif rng.random() < 0.3:
                root, _ = in_periods(rng, root, closed, rng.random() < 0.5, "Y")
        case "sliding-analytic":
            alone = rng.random() < 0.6
            root = SlidingJoin(operand("A") if alone else meeting(rng, operand("A"), operand("B")), rowtime)
            if rng.random() < 0.2:
                root, rowtime = in_periods(rng, root, rowtime, False, "X")
            root = analytic(rng, root, rowtime, "X")
            if rng.random() < 0.3:
                root = analytic(rng, root, rowtime, "Y")
        case "sliding-merged":
            inner = SlidingJoin(meeting(rng, operand("A"), operand("B")), rowtime, emission)
            some = [read("C"), read("D"), Project(inner, tuple((c, c) for c in inner.schema))]
            merged = [Operand(x, RangeFrame()) for x in rng.sample(some, rng.choice([2, 3]))]
            root = SlidingJoin(Merged(tuple(merged)), Col(".ROWTIME2", Scalar.BIGINT))
        case "sliding-alone":
            root: Node = SlidingJoin(operand("A"), rowtime)
        case "sliding-chain":
            left = meeting(rng, operand("A"), operand("B"))
            trees = [meeting(rng, left, operand("C")), meeting(rng, operand("C"), left)]
            root = SlidingJoin(rng.choice(trees), rowtime, emission)
        case "sliding-view":
            inner = SlidingJoin(meeting(rng, operand("A"), operand("B")), rowtime, emission)
            names = [Output(c.name, c) for c in inner.schema]
            view = Project(inner, tuple((Col(f"P{o.name}", o.expr.type), o.expr) for o in names))
            sides = [Operand(view, frame(rng, shape)), operand("C")]
            rng.shuffle(sides)
            root = SlidingJoin(meeting(rng, *sides), Col(".ROWTIME2", Scalar.BIGINT), emission)
        case _:
            root = SlidingJoin(meeting(rng, operand("A"), operand("B")), rowtime, emission)
    if rng.random() < 0.2:
        root = Filter(root, predicate(rng, root))
    return query(root, key=[])


def in_periods(rng: random.Random, rows: Node, rowtime: Col, sort: bool, name: str) -> tuple[Node, Col]:
    """Groups of periods, or their rows sorted; and the column of their time."""
    size, early = rng.choice([(1, 1), (1, 1), (3, 0), (10, 0)])
    below = call("mod", [call("add", [call("mod", [rowtime, big(size)]), big(size)]), big(size)])
    until = call("add", [call("sub", [rowtime, below]), big(size)])
    closed = Col(f".CLOSED{name}", Scalar.BIGINT)
    own = [c for c in rows.schema if not c.name.startswith(".")]
    some = rng.sample(own, min(len(own), rng.choice([1, 1, 2])))
    if sort:
        by = tuple(Order(c, rng.random() < 0.5, rng.choice([None, True, False])) for c in some)
        return Closed(rows, until, closed, early, by), closed
    end = Col(f".UNTIL{name}", Scalar.BIGINT)
    numbers = [c for c in own if c.type == Scalar.INT]
    texts = [c for c in own if c.type == Scalar.VARCHAR]
    some = list(dict.fromkeys([rng.choice(numbers), rng.choice(texts), *some]))  # which conditions above ask for
    keys = tuple((Col(f"G{name}{i}.{c.name[-1]}", c.type), c) for i, c in enumerate(some))
    n = rng.choice(numbers)
    made = [
        Aggregation(Col(f"A{name}.0", Scalar.BIGINT), "COUNT", None),
        Aggregation(Col(f"A{name}.1", Scalar.BIGINT), "SUM", cast(n, Scalar.BIGINT)),
        Aggregation(Col(f"A{name}.2", n.type), rng.choice(["MIN", "MAX", "LATEST_BY_OFFSET"]), n),
    ]
    grouped = Aggregate(rows, (*keys, (end, until)), tuple(made), closes=True)
    return Closed(grouped, end, closed, early), closed


def analytic(rng: random.Random, rows: Node, rowtime: Col, name: str) -> Node:
    """Calls over the rows of partitions, or of all."""
    own = [c for c in rows.schema if not c.name.startswith(".") and c.type in (Scalar.INT, Scalar.VARCHAR)]
    numbers = [c for c in own if c.type == Scalar.INT]
    computed = Col(f"D{name}", Scalar.DOUBLE)
    outputs = [*((c, c) for c in rows.schema), (computed, cast(rng.choice(numbers), Scalar.DOUBLE))]
    frames = [frame(rng, rng.choice(["sliding", "sliding-rows", "sliding-hops"])) for _ in range(2)]
    calls = []
    for i in range(rng.choice([1, 3, 5])):
        function, default = rng.choice(["COUNT", "SUM", "MIN", "MAX", "AVG", "STDDEV_SAMP", "NTH_VALUE", "LAG"]), None
        arg: Col | None = rng.choice(own)
        t: Type = arg.type
        options: tuple[int | bool, ...] = ()
        match function:
            case "COUNT":
                arg, t = rng.choice([None, arg]), Scalar.BIGINT
            case "SUM" | "AVG" | "STDDEV_SAMP":
                arg, t = computed, Scalar.DOUBLE
            case "NTH_VALUE":
                options = (rng.choice([1, 1, 2]), rng.random() < 0.5, rng.random() < 0.5)
            case "LAG":
                options = (rng.choice([0, 1, 1, 2]), rng.random() < 0.5)
                default = rng.choice([None, *(c for c in own if c.type == t)])
        made = Aggregation(Col(f"O{name}{i}", t), function, arg, options)
        calls.append(Analyzed(made, rng.choice(frames), default))
    if rng.random() < 0.4:
        length = rng.choice([1, 700, 2000, 10_000])
        opened = Aggregation(Col(f"W{name}", Scalar.BIGINT), "OPENED", None, (length,))
        calls.append(Analyzed(opened, RangeFrame(Bound(ms=length))))
    partition = tuple(rng.sample(own, rng.choice([0, 1, 1, 2])))
    return Analytic(Project(rows, tuple(outputs)), partition, rowtime, tuple(calls))


def big(n: int) -> Lit:
    return Lit(n, Scalar.BIGINT)


def _failing(rng: random.Random, every: Sequence[Col]) -> Expr:
    """A condition that fails for some rows; for some it is saved."""
    a, b = (rng.choice([c for c in every if c.type == Scalar.INT]) for _ in range(2))
    quotient = call("div", [Lit(9, Scalar.INT), call("mod", [a, Lit(2, Scalar.INT)])])
    return call("lt", [call("COALESCE", [quotient, b]) if rng.random() < 0.5 else quotient, Lit(5, Scalar.INT)])


def meeting(rng: random.Random, left: Tree, right: Tree) -> Meeting:
    how: logical.How = rng.choice(["inner", "left", "right", "full", "left", "full"])
    keys = tuple((integer(rng, left), integer(rng, right)) for _ in range(rng.choice([0, 1, 1, 1, 1, 2])))
    every = [c for x in (left, right) for c in columns(x)]
    residual = condition(rng, Project(source("X"), tuple((c, c) for c in every)))
    if rng.random() < 0.3:
        residual = all_of([_failing(rng, every), *conjuncts(residual)])
    return Meeting(left, right, how, keys, residual)


def columns(tree: Tree) -> list[Col]:
    if isinstance(tree, Operand):
        return list(tree.input.schema)
    return [*columns(tree.left), *columns(tree.right)]


def integer(rng: random.Random, tree: Tree) -> Col:
    found = [c for c in columns(tree) if c.type == Scalar.INT]
    keys = [c for c in found if c.name.endswith(".K")]
    return rng.choice(keys if keys and rng.random() < 0.8 else found)


def frame(rng: random.Random, shape: str) -> Frame:
    if shape == "sliding-rows" or (shape in ("sliding-chain", "sliding-view") and rng.random() < 0.2):
        upper = rng.choice([0, 0, 0, 1])
        return RowsFrame(upper + rng.choice([0, 1, 3]), upper)
    upper_ms = rng.choice([0, 0, 0, 2])
    lower = Bound(ms=upper_ms + rng.choice([0, 0, 3, 10]))
    if shape == "sliding-hops":
        kind: Literal["floor", "ceil", "step"] = rng.choice(["floor", "ceil", "step"])
        order = OrderKey(kind, None, rng.choice([5, 7])) if kind == "step" else OrderKey(kind, None, 6)
        return rng.choice([RangeFrame(order=order), RangeFrame(lower, Bound(ms=upper_ms), order)])
    return RangeFrame(lower, Bound(ms=upper_ms))
