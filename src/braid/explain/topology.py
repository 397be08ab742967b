"""The topology of a query: the steps of its meaning, from sources to sink, before anything says how they run.

In: a logical query. Out: nodes with the numbers of their inputs, inputs first, for EXPLAIN.
Rule: facts of the logical plan only. A re-key stands where a key changes; a repartition where a join's sides have
declared numbers of partitions that differ: on the side with fewer, to the number of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from braid.explain.words import equal
from braid.expr.nodes import Expr
from braid.expr.show import show
from braid.plan import keyed, logical
from braid.plan.canonical import kind_of
from braid.plan.logical import Node, Query

Fact = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Step:
    """A step that others read: its number, the key of its rows, its partitions where they are declared."""

    number: int
    key: tuple[Expr, ...]
    partitions: int | None


@dataclass(slots=True)
class _Topology:
    nodes: list[Fact] = field(default_factory=list)

    def add(self, op: str, inputs: Sequence[_Step], **facts: Any) -> int:
        self.nodes.append({"id": len(self.nodes), "op": op, "inputs": [s.number for s in inputs], **facts})
        return len(self.nodes) - 1

    def walk(self, node: Node) -> _Step:
        match node:
            case logical.Source(name=name, kind=kind, partitions=partitions):
                number = self.add("source", (), name=name, kind=kind, partitions=partitions)
                return _Step(number, node.row_key, partitions)
            case keyed.OnKeys():
                return self._join(node, node.left_keys, node.right_keys, node.keys)
            case logical.ForeignKeyJoin():
                left, right = self.rekeyed(self.walk(node.left), (node.left_key,)), self.walk(node.right)
                on = equal([(node.left_key, node.right_key)])
                joined = _Step(self.add("join", (left, right), how=node.how, on=on), (node.key,), left.partitions)
                return self.rekeyed(joined, node.row_key)
            case logical.OnKey():
                return self._join(node, (node.left_key,), (node.right_key,), node.row_key)
            case logical.Aggregate(keys=keys):
                x = self.rekeyed(self.walk(node.input), tuple(e for _, e in keys))
                number = self.add("aggregate", (x,), by=[show(e) for _, e in keys])
                return _Step(number, tuple(c for c, _ in keys), x.partitions)
        read = tuple(self.walk(x) for x in node.inputs)
        facts = {"predicate": show(node.predicate)} if isinstance(node, logical.Filter) else {}
        key = read[0].key if isinstance(node, logical.Filter | keyed.Lateral) else node.row_key
        return _Step(self.add(kind_of(type(node)).lower(), read, **facts), key, read[0].partitions)

    def rekeyed(self, x: _Step, keys: tuple[Expr, ...]) -> _Step:
        """The step with its rows by another key, if it is another."""
        if x.key == keys:
            return x
        return _Step(self.add("re-key", (x,), by=[show(k) for k in keys]), keys, x.partitions)

    def _join(
        self,
        node: logical.OnKey | keyed.OnKeys,
        left_keys: tuple[Expr, ...],
        right_keys: tuple[Expr, ...],
        keys: tuple[Expr, ...],
    ) -> _Step:
        left, right = self.rekeyed(self.walk(node.left), left_keys), self.rekeyed(self.walk(node.right), right_keys)
        most = max((s.partitions for s in (left, right) if s.partitions is not None), default=None)
        left, right = self._repartitioned(left, most), self._repartitioned(right, most)
        on = equal(zip(left_keys, right_keys, strict=True))
        return _Step(self.add("join", (left, right), how=node.how, on=on), keys, most)

    def _repartitioned(self, x: _Step, most: int | None) -> _Step:
        if x.partitions is None or most is None or x.partitions == most:
            return x
        return _Step(self.add("repartition", (x,), partitions=most), x.key, most)


def topology(query: Query) -> list[Fact]:
    """Sources, filters, re-keys, repartitions, joins, the projection and the sink."""
    t, sink = _Topology(), query.sink
    root = t.walk(query.root)
    columns = {o.name: show(o.expr) for o in (*sink.key, *sink.values)}
    project = _Step(t.add("project", (root,), columns=columns), sink.written_key, root.partitions)
    t.add("sink", (project,), name=sink.name, kind=sink.kind, partitions=sink.partitions)
    return t.nodes
