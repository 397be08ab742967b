"""May a query go on from where another one stands? CREATE OR REPLACE of a query that runs.

In: the query that runs, the one that is to take its place. Out: why not, or None.
Rule: it reads one stream or table, and only this may differ: WHERE and HAVING, what the columns of the result are made
of, columns behind the last of them. What is kept must be kept as it was: so a grouped query reads the same columns, and
aggregates the same; a filter over a table, which keeps the keys that pass, is there before and after; rows of its table
that are kept have null in new columns. (docs/rules/ksqldb.md, "Statements")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from braid.expr.nodes import Col, Lit
from braid.plan.canonical import canonical, stored_names
from braid.plan.groups import Aggregate
from braid.plan.logical import Filter, Lateral, Node, Output, Query, Source, sources
from braid.types import Scalar

_ANY = Lit(True, Scalar.BOOLEAN)


def refusal(old: Query, new: Query) -> str | None:
    """Why `new` cannot go on from where `old` stands."""
    if canonical(old) == canonical(new):
        return None
    read, reads = list(sources(old.root)), list(sources(new.root))
    if [s.topic for s in read] != [s.topic for s in reads]:
        return "it reads other sources"
    if len(read) > 1:
        return "a join cannot be changed"
    above, over = _above(old.root), _above(new.root)
    if read[0].kind == "table" and any(isinstance(n, Aggregate) for n in (*above, *over)):
        return "groups of a table cannot be changed"
    if not all(isinstance(n, Lateral | Aggregate | Filter) for n in (*above, *over)):
        return "a query with windows cannot be changed"
    if sum(isinstance(n, Filter) for n in above) != sum(isinstance(n, Filter) for n in over):
        return "HAVING, or the WHERE of a table, comes or goes"
    return _of_source(read[0], reads[0]) or _of_nodes(above, over, read[0]) or _of_sink(old, new) or _kept(old, new)


def _above(root: Node) -> list[Node]:
    """The nodes that keep something, from the top. A filter over a table keeps keys, whatever it asks."""
    found = [n for n in root.walk() if not isinstance(n, Source)]
    return [replace(n, predicate=_ANY) if isinstance(n, Filter) else n for n in found if not _forgets(n)]


def _forgets(n: Node) -> bool:
    return isinstance(n, Filter) and n.mode != "upsert"


def _of_source(old: Source, new: Source) -> str | None:
    if replace(old, columns=(), begin=new.begin) != replace(new, columns=()):
        return "its source is declared, named or read otherwise"
    types = {c.field: (c.column.type, c.place) for c in new.columns}
    lost = next((c for c in old.columns if types.get(c.field) != (c.column.type, c.place)), None)
    return None if lost is None else f"column {lost.field} of its source is another one"


def _of_nodes(old: Sequence[Node], new: Sequence[Node], under: Source) -> str | None:
    same = [n.over(lambda _: under) for n in old] == [n.over(lambda _: under) for n in new]
    return None if same else "it groups, aggregates or explodes otherwise"


def _of_sink(old: Query, new: Query) -> str | None:
    then, now = old.sink, new.sink
    if [(o.name, o.expr) for o in then.key] != [(o.name, o.expr) for o in now.key] or then.record_key != now.record_key:
        return "its key is another one"
    if replace(then, values=(), columns=()) != replace(now, values=(), columns=()):
        return "its topic, formats, partitions or timestamp are others"
    for i, o in enumerate(then.values):
        if i >= len(now.values) or _shape(now.values[i]) != _shape(o):
            return f"column {o.name} {o.expr.type} is removed, moved or of another type"
    return None


def _shape(o: Output) -> tuple[str, object]:
    return o.name, o.expr.type


def _kept(old: Query, new: Query) -> str | None:
    """What is kept goes by the names of columns, in the order in which they are read."""
    then, now = stored_names(old), stored_names(new)
    if any(isinstance(n, Aggregate) for n in new.root.walk()) and then != now:
        return "WHERE reads other columns than those that are read already"
    keys = {e.name for n in new.root.walk() if isinstance(n, Filter) for e in n.row_key or () if isinstance(e, Col)}
    return "its key is read otherwise" if any(then.get(k) != now.get(k) for k in keys) else None
