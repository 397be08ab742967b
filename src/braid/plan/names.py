"""The names of plan columns: one for each column that a node makes, whatever a query calls its tables and columns.

In: the name of a level (a source, a sub-query, a step), the name of a column there; a plan. Out: plan names; which of
them a plan has for several columns.
Rule: a name is `LEVEL.COLUMN`, split at its first dot. A level is made of the aliases that lead to it, with `/` behind
those of queries; `.`, `/`, `~` and `%` of the aliases themselves stand in it as `%2E` and so on. What only a plan has
stands in a level of its own, to which no alias leads: one that ends in `~`, in `/`, or is empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from braid.expr.nodes import Col
from braid.plan.epochs import Union
from braid.plan.groups import Aggregate
from braid.plan.logical import Node, Project, sources

_MARKS = str.maketrans({c: f"%{ord(c):02X}" for c in "%./~"})


def level(alias: str) -> str:
    """An alias as a part of a level's name."""
    return alias.translate(_MARKS)


def own(of: str) -> str:
    """The level of what only a plan has, beside the level `of`."""
    return f"{of}~"


def level_of(column: str) -> str:
    """The level in which a plan column was made."""
    return column.partition(".")[0]


def column_of(column: str) -> str:
    """What a plan column is called in its level."""
    return column.partition(".")[2]


def alike(root: Node) -> list[str]:
    """The names that a plan has for more than one column or source: there must be none."""
    made = Counter(c.name for node in root.walk() for c in _made(node))
    made.update(s.alias for s in sources(root))
    for union in (x for x in root.walk() if isinstance(x, Union)):  # its parts call its columns alike
        made.subtract({c.name: len(union.parts) - 1 for c in union.schema})
    return sorted(name for name, n in made.items() if n > 1)


def _made(node: Node) -> Iterator[Col]:
    """The columns that are new in a node; those of its inputs that it passes on are not."""
    match node:
        case Project(outputs=outputs):
            yield from (c for c, e in outputs if c != e)
        case Aggregate(keys=keys, aggregations=aggregations):
            yield from (c for c, e in keys if c != e)
            yield from (a.output for a in aggregations)
        case _:
            yield from Counter(node.schema) - Counter(c for x in node.inputs for c in x.schema)
