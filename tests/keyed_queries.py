"""Random queries of joins over any number of equalities, and LATERAL, for the law (`histories.py` has the histories).

In: a `random.Random`, a shape. Out: logical queries over sources (K INT KEY, V VARCHAR, N INT).
Rule: nothing here knows how a query runs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from braid.expr.nodes import Col, Expr, Lit
from braid.expr.typing import call
from braid.plan import logical
from braid.plan.groups import Aggregate, Aggregation
from braid.plan.joins import StreamStreamJoin, StreamTableJoin, TableTableJoin
from braid.plan.logical import Filter, Kind, Lateral, Materialize, Node, Query
from braid.types import Scalar
from histories import aggregate, col, query, source

SHAPES = (
    "clocks", "clocks-filtered", "clocks-clocks", "clocks-clocks-clocks", "clocks-bushy",
    "clocks-remembers", "clocks-grouped", "clocks-grouped-combined",
    "remembers", "remembers-clocks", "combines", "combines-filtered", "combines-combines", "remembers-combined",
    "materialize", "combines-grouped", "remembers-grouped", "lateral", "lateral-table",
)  # fmt: skip


def random_query(rng: random.Random, shape: str) -> Query:
    partitions = rng.randint(1, 3)
    end: Literal["hold", "lift"] = rng.choice(["hold", "lift"])

    def read(alias: str, kind: Kind = "stream") -> Node:
        topic = rng.choice(["a", "p", "z"]) + alias.lower()
        return replace(source(alias, topic, kind, partitions), end=end)

    match shape:
        case "clocks" | "clocks-filtered":
            root = two_clocks(rng, read("A"), read("B"), 1)
            if shape == "clocks-filtered":
                root = Filter(root, predicate(rng, root))
        case "clocks-clocks":
            root = two_clocks(rng, read("A"), read("B"), 1)
            root = two_clocks(rng, *rng.choice([(root, read("C")), (read("C"), root)]), 2)
        case "clocks-clocks-clocks":
            root = read("A")
            for n, alias in enumerate("BCD", 1):
                root = two_clocks(rng, *rng.choice([(root, read(alias)), (root, read(alias)), (read(alias), root)]), n)
        case "clocks-bushy":
            left, right = two_clocks(rng, read("A"), read("B"), 1), two_clocks(rng, read("C"), read("D"), 2)
            root = two_clocks(rng, left, right, 3)
        case "clocks-remembers":
            root = remembers(rng, two_clocks(rng, read("A"), read("B"), 1), read("C", "table"), 2)
            if rng.random() < 0.5:
                root = two_clocks(rng, root, read("D"), 3)
        case "clocks-grouped":
            return query(counted(rng, two_clocks(rng, two_clocks(rng, read("A"), read("B"), 1), read("C"), 2), 1))
        case "clocks-grouped-combined":
            left, right = (two_clocks(rng, read(a), read(b), n) for n, (a, b) in enumerate(("AB", "CD"), 1))
            tables = [counted(rng, x, n) for n, x in enumerate((left, right), 1)]
            how: logical.How = rng.choice(["inner", "left", "right", "full"])
            keys = [x.row_key[0] for x in tables]
            root = TableTableJoin(*tables, how, (keys[0],), (keys[1],), (Col(".KEY3", Scalar.INT),), by_key=False)
            return query(root, key=[Col(".KEY3", Scalar.INT)])
        case "remembers":
            root = remembers(rng, read("A"), read("B", "table"), 1)
        case "remembers-clocks":
            root = two_clocks(rng, remembers(rng, read("A"), read("B", "table"), 1), read("C"), 2)
        case "remembers-combined":
            tables = combines(rng, read("A", "table"), read("B", "table"), 1)
            root = remembers(rng, read("C"), tables, 2)
        case "combines" | "combines-filtered":
            root = combines(rng, read("A", "table"), read("B", "table"), 1)
            if shape == "combines-filtered":
                root = Filter(root, predicate(rng, root))
        case "combines-combines":
            root = combines(rng, read("A", "table"), read("B", "table"), 1)
            root = combines(rng, *rng.choice([(root, read("C", "table")), (read("C", "table"), root)]), 2)
        case "combines-grouped" | "remembers-grouped":
            join, kind = (combines, "table") if shape.startswith("combines") else (remembers, "stream")
            root = join(rng, read("A", kind), read("B", "table"), 1)
            if rng.random() < 0.3:
                root = Filter(root, predicate(rng, root))
            group = [rng.choice([c for c in root.schema if c.type == Scalar.INT])]
            latest = [("LATEST", c) for c in root.schema if c.name in ("A.V", "B.V", "B.N")]
            return query(aggregate(root, group, [("COUNT", None), *latest]))
        case "lateral":
            root = read("A")
            parts = call("SPLIT", [col(root, "A.V"), Lit("a", Scalar.VARCHAR)])
            root = Lateral(root, parts, Col(".E", Scalar.VARCHAR))
        case "lateral-table":
            root = Materialize(read("A", "table"))
            parts = call("SPLIT", [col(root, "A.V"), Lit("a", Scalar.VARCHAR)])
            root = Lateral(root, parts, Col(".E", Scalar.VARCHAR), Col(".I", Scalar.INT))
            return query(root, "A.V", ".E", key=[rng.choice([col(root, c) for c in ("A.N", "A.K", ".E", ".I")])])
        case "materialize":
            root = Materialize(read("A", "table"))
            return query(root, "A.K", "A.V", key=[rng.choice([col(root, "A.N"), col(root, "A.K")])])
        case _:
            raise ValueError(shape)
    if shape.startswith("combines"):
        keys = [c for c in root.schema if c.type == Scalar.INT]
        return query(root, key=rng.choice([list(_join_keys(root)), [rng.choice(keys)], rng.sample(keys, 2), []]))
    return query(root, key=rng.choice([None, [], [col(root, "A.K")]]))


def counted(rng: random.Random, node: Node, n: int) -> Aggregate:
    group = rng.choice([c for c in node.schema if c.type == Scalar.INT])
    key, count = Col(f".GROUP{n}", Scalar.INT), Aggregation(Col(f".COUNT{n}", Scalar.BIGINT), "COUNT", None)
    return Aggregate(node, ((key, group),), (count,))


def two_clocks(rng: random.Random, left: Node, right: Node, n: int) -> StreamStreamJoin:
    left_keys, right_keys, keys = equalities(rng, left, right, n)
    how: logical.How = rng.choice(["inner", "left", "right", "full", "left", "full"])
    before, after = rng.choice([(5, 5), (10, 10), (0, 10), (3, 12), (0, 0)])
    return StreamStreamJoin(
        left,
        right,
        how,
        left_keys,
        right_keys,
        keys,
        before,
        after,
        grace=rng.choice([0, 0, 0, 1, 7]),
        retention=None,
        pad=rng.choice(["deferred", "deferred", "deferred", "eager"]),
        null_key="pad",
        left_if=condition(rng, left) if how in ("left", "full") else None,
        right_if=condition(rng, right) if how in ("right", "full") else None,
    )


def _join_keys(node: Node) -> tuple[Expr, ...]:
    return _join_keys(node.input) if isinstance(node, Filter) else node.keys if isinstance(node, TableTableJoin) else ()


def remembers(rng: random.Random, left: Node, right: Node, n: int) -> StreamTableJoin:
    left_keys, right_keys, keys = equalities(rng, left, right, n)
    how: Literal["inner", "left"] = rng.choice(["inner", "left", "left"])
    retention = rng.choice([None, None, 0, 5, 30])
    if rng.random() < 0.2 and right.mode == "upsert":
        right = Filter(right, predicate(rng, right))
    left_if = condition(rng, left) if how == "left" else None
    return StreamTableJoin(
        left, right, how, left_keys, right_keys, keys, "pad", by_key=False, retention=retention, left_if=left_if
    )


def combines(rng: random.Random, left: Node, right: Node, n: int) -> TableTableJoin:
    left_keys, right_keys, keys = equalities(rng, left, right, n)
    how: logical.How = rng.choice(["inner", "left", "right", "full"])
    left_if = condition(rng, left) if how in ("left", "full") else None
    right_if = condition(rng, right) if how in ("right", "full") else None
    return TableTableJoin(
        left, right, how, left_keys, right_keys, keys, by_key=False, left_if=left_if, right_if=right_if
    )


def equalities(
    rng: random.Random, left: Node, right: Node, n: int
) -> tuple[tuple[Expr, ...], tuple[Expr, ...], tuple[Col, ...]]:
    """None, one or two of them."""
    count = rng.choice([0, 1, 1, 1, 1, 2])
    pairs = [(integer(rng, left), integer(rng, right)) for _ in range(count)]
    keys = tuple(Col(f".KEY{n}{i}", Scalar.INT) for i in range(count))
    return tuple(l for l, _ in pairs), tuple(r for _, r in pairs), keys


def integer(rng: random.Random, node: Node) -> Expr:
    """A column, most often a key; sometimes an expression."""
    columns = [c for c in node.schema if c.type == Scalar.INT]
    keys = [c for c in columns if c.name.endswith(".K")] or columns
    e: Expr = rng.choice(keys if rng.random() < 0.7 else columns)
    return call("add", [e, Lit(0, Scalar.INT)]) if rng.random() < 0.1 else e


def condition(rng: random.Random, node: Node) -> Expr | None:
    return predicate(rng, node) if rng.random() < 0.3 else None


def predicate(rng: random.Random, node: Node) -> Expr:
    columns: Sequence[Col] = node.schema
    number = rng.choice([c for c in columns if c.type == Scalar.INT])
    text = rng.choice([c for c in columns if c.name.endswith(".V")])
    return rng.choice(
        [
            call("ne", [number, Lit(rng.choice([1, 2]), Scalar.INT)]),
            call("gt", [number, Lit(0, Scalar.INT)]),
            call("is_null", [text]),
            call("is_not_null", [text]),
        ]
    )
