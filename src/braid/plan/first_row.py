"""Groups that are there before any row: a query of rows in epochs without GROUP BY is one group, which has its row.

In: nodes of a query. Out: which of them begin with a row, and its values; the row of a whole query, where that is known
before it has run.
Rule: COUNT of nothing is 0, other aggregates are NULL. The row is the first change of its group: what is above makes of
it what it makes of any. (docs/rules/risingwave.md, RW-65)
"""

from __future__ import annotations

from typing import TypeGuard

import polars as pl

from braid.expr import compile
from braid.expr.nodes import Lit
from braid.plan.epochs import Changes, Coalesce
from braid.plan.groups import Aggregate
from braid.plan.logical import Node, Project
from braid.types import polars_type

Values = dict[str, object]
COUNTS = ("COUNT", "COUNT_DISTINCT")


def is_one_group(node: Node) -> TypeGuard[Aggregate]:
    """Whether it has its row before any row has come to it, where rows come in epochs."""
    return isinstance(node, Aggregate) and all(isinstance(e, Lit) for _, e in node.keys)


def of_nothing(node: Aggregate) -> Values:
    """What one group gives of no rows."""
    keys = {c.name: e.value for c, e in node.keys if isinstance(e, Lit)}
    return keys | {a.output.name: 0 if a.function in COUNTS else None for a in node.aggregations}


def first_row(node: Node) -> Values | None:
    """The row of a query that is one group, before it has run; None where there is none, or it takes a run to know."""
    match node:
        case Project(input=x, outputs=outputs):
            row = first_row(x)
            if row is None:
                return None
            made, _ = compile.evaluate(_frame(x, row), [(c.name, e) for c, e in outputs])
            return made.row(0, named=True)
        case Changes(input=x) | Coalesce(input=x):
            return first_row(x)
        case Aggregate(input=x) if is_one_group(node):
            return None if any(map(is_one_group, x.walk())) else of_nothing(node)
        case _:
            return None


def _frame(node: Node, row: Values) -> pl.DataFrame:
    types = {c.name: polars_type(c.type) for c in node.schema}
    return pl.DataFrame({n: [v] for n, v in row.items()}, schema={n: types[n] for n in row})
