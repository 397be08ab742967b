"""The first row of a query that is one group: it has its row before any row has come to it.

In: the root of a query. Out: the values of that row, by column; None where there is none.
Rule: a query of rows in epochs without GROUP BY has one group: COUNT is 0, other aggregates are NULL. A group of what
reads another such group, or that HAVING may leave out, has no row before that: operators do not know of this row, so
they could not take it back. (docs/rules/risingwave.md, RW-65)
"""

from __future__ import annotations

import polars as pl

from braid.expr import compile
from braid.expr.nodes import Lit
from braid.plan.epochs import Changes, Coalesce
from braid.plan.groups import Aggregate
from braid.plan.logical import Node, Project
from braid.types import polars_type

Values = dict[str, object]


def first_row(node: Node) -> Values | None:
    match node:
        case Project(input=x, outputs=outputs):
            row = first_row(x)
            if row is None:
                return None
            made, _ = compile.evaluate(_frame(x, row), [(c.name, e) for c, e in outputs])
            return made.row(0, named=True)
        case Changes(input=x) | Coalesce(input=x):
            return first_row(x)
        case Aggregate(input=x, keys=keys, aggregations=made) if all(isinstance(e, Lit) for _, e in keys):
            if any(isinstance(y, Aggregate) and first_row(y) is not None for y in x.walk()):
                return None
            of = {c.name: e.value for c, e in keys if isinstance(e, Lit)}
            return of | {a.output.name: 0 if a.function == "COUNT" else None for a in made}
        case _:
            return None


def _frame(node: Node, row: Values) -> pl.DataFrame:
    types = {c.name: polars_type(c.type) for c in node.schema}
    return pl.DataFrame({n: [v] for n, v in row.items()}, schema={n: types[n] for n in row})
