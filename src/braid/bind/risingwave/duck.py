"""FROM of a batch query: its relations as text, and the text of a tree of them.

In: a relation as written, what names mean around it; a tree. Out: the leaves of the tree; what DuckDB reads.
Rule: the tree is that of views (`select/tree.py`), so merged columns are those of the dialect. A relation has a name of
its own in the text. RW-30: an ASOF join is a look-up that breaks ties by the smallest key, as views do.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from braid.batch_sql.duck_expr import duck_name
from braid.bind.bound import Declared
from braid.bind.expressions import conjuncts, names
from braid.bind.risingwave import windows
from braid.bind.risingwave.batch_values import NOTHING, Batch, BatchColumn, Values, column_token
from braid.bind.risingwave.expressions import ROW_SETS, either
from braid.bind.risingwave.scope import QUOTE
from braid.bind.select.scope import Column, Scope, Table, of_table, renamed
from braid.bind.select.tree import Joined, Policy
from braid.errors import Span, SqlError
from braid.expr.nodes import Col
from braid.expr.postgres import typing
from braid.sql import ast
from braid.sql.windows import CALLS
from braid.types import Scalar, Struct

_KINDS = {"inner": "JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN"}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Text:
    """A relation as DuckDB reads it, which calls it `token`."""

    sql: str
    token: str
    scope: Scope


def policy(batch: Batch) -> Policy[Text]:
    return Policy(
        partial(_leaf, batch),
        partial(_check_asof, batch),
        lambda on, scope: (Values(batch, scope, "ON").predicate(on),),
        lambda a, b: typing.compare("=", a, b),
        either,
        batch.context.merged_order,
    )


# --------------------------------------------------------------------- leaves


def _leaf(batch: Batch, relation: ast.Relation, before: Scope | None) -> Text:
    match relation:
        case ast.Table():
            return _table(relation, batch)
        case ast.Derived():
            return _derived(relation, batch, before)
        case ast.TableFunction():
            return _function(relation, batch, before)
    raise AssertionError(relation)


def _named(sql: str, alias: str, columns: tuple[BatchColumn, ...], r: ast.Table | ast.Derived | ast.TableFunction,
           batch: Batch, hidden: tuple[BatchColumn, ...] = ()) -> Text:  # fmt: skip
    """A relation under a name of its own. `hidden`: columns that `*` does not show."""
    token = batch.token("t", alias)
    seen, pseudo = (tuple(Column(n, Col(f"{token}.{t}", u)) for n, t, u in of) for of in (columns, hidden))
    return Text(f"{sql} AS {token}", token, of_table(Table(alias, renamed(seen, r.columns, r.span), pseudo), QUOTE))


def called(columns: tuple[BatchColumn, ...], names: tuple[str, ...], span: Span) -> tuple[BatchColumn, ...]:
    """Columns under the names of a list."""
    seen = tuple(Column(n, Col(t, u)) for n, t, u in columns)
    found = zip(renamed(seen, names, span), columns, strict=True)
    return tuple((c.name, token, t) for c, (_, token, t) in found)


def _table(t: ast.Table, batch: Batch) -> Text:
    name = t.name.parts[-1]
    if t.name.parts in {(n,) for n in batch.ctes}:
        if t.as_of is not None:
            raise SqlError("time travel reads tables and materialized views", t.as_of.span, "leave the clause out")
        sql, columns = batch.ctes[name]
    else:
        sql, columns = batch.relation(t)
    return _named(sql, t.alias or name, columns, t, batch)


def _derived(d: ast.Derived, batch: Batch, before: Scope | None) -> Text:
    assert isinstance(d.query, ast.Query)
    inner = batch.rows(d.query, batch.under(before) if d.lateral and before is not None else batch)
    alias = d.alias or f"subquery {len(batch.made)}"
    return _named(f"{'LATERAL ' if d.lateral else ''}({inner.sql})", alias, inner.columns, d, batch)


def _function(f: ast.TableFunction, batch: Batch, before: Scope | None) -> Text:
    """Functions that give rows; a function over columns is asked for each row before it."""
    name = f.call.name
    if f.ordinality and name not in ROW_SETS:
        raise SqlError(f"WITH ORDINALITY of {name.lower()} is not possible", f.span, "leave it out")
    if name in CALLS:
        return _windows(f, batch)
    if name not in ROW_SETS:
        known = ", ".join((*map(str.lower, ROW_SETS), *CALLS))
        raise SqlError(f"there is no table function {name.lower()}", f.call.span, f"there are {known}")
    found = Values(batch, before or NOTHING, "FROM").set_of(f.call)
    alias = f.alias or name.lower()
    columns = [(alias, batch.token("c", alias), found.type)]
    rows = found.relation(columns[0][1], batch) if not f.ordinality else ""
    if f.ordinality:
        all_, n = batch.token("c", "all"), batch.token("c", "ordinality")
        columns.append(("ordinality", n, Scalar.BIGINT))
        read = f"(SELECT {found.listed} AS {all_}) AS {batch.token('t', 'all')}"
        rows = f"SELECT unnest({all_}) AS {columns[0][1]}, unnest(range(1, len({all_}) + 1)) AS {n} FROM {read}"
    whole: tuple[BatchColumn, ...] = ()
    if isinstance(found.type, Struct):  # a structure is its fields; by the name of the relation it is whole
        whole, of = (columns[0],), columns[0][1]
        fields = [(x.name, batch.token("c", x.name), x.type) for x in found.type.fields]
        taken = ", ".join(f"struct_extract_at({of}, {n}) AS {t}" for n, (_, t, _) in enumerate(fields, 1))
        rows, columns = f"SELECT *, {taken} FROM ({rows}) AS {batch.token('t', 'whole')}", [*fields, *columns[1:]]
    return _named(f"{'LATERAL ' if any(names(f.call)) else ''}({rows})", alias, tuple(columns), f, batch, whole)


def _windows(f: ast.TableFunction, batch: Batch) -> Text:
    """A table in windows: its rows once for each window, then the bounds of that."""
    asked = windows.of_call(f)
    table = _table(asked.table, batch)
    time, type_ = asked.time(table.scope).expr, windows.bound_type(asked.time(table.scope).expr.type)
    assert isinstance(time, Col)
    kind, start, n = duck_name(type_), batch.token("c", "start"), batch.token("c", "n")
    first, numbers = windows.begins(asked.windows, f"epoch_us(CAST({time.name} AS {kind}))")
    columns = [(c.name, batch.token("c", c.name), c.expr) for c in table.scope.columns]
    read = [f"{e.name} AS {t}" for _, t, e in columns if isinstance(e, Col)]
    at = f"{first} + {n} * {asked.windows.lowest[0][0]} AS {start}"
    kept = "" if asked.keeps_null else f" WHERE {time.name} IS NOT NULL"
    numbered = f"{numbers} AS {batch.token('t', 'numbers')}({n})"
    inner = f"SELECT {', '.join((*read, at))} FROM {table.sql} CROSS JOIN {numbered}{kept}"
    bounds = [batch.token("c", word) for word in windows.BOUNDS]
    texts = [f"CAST(make_timestamp({start} + {x}) AS {kind}) AS {t}"
             for x, t in zip((0, asked.windows.span), bounds, strict=True)]  # fmt: skip
    shown = ", ".join((*(t for _, t, _ in columns), *texts))
    found = [*((name, t, e.type) for name, t, e in columns),
             *((word, t, type_) for word, t in zip(windows.BOUNDS, bounds, strict=True))]  # fmt: skip
    sql = f"(SELECT {shown} FROM ({inner}) AS {batch.token('t', 'rows')})"
    return _named(sql, f.alias or asked.table.name.parts[-1], tuple(found), f, batch)


def _check_asof(batch: Batch, join: ast.Join, *_: Text | Joined[Text]) -> None:
    if not join.asof:
        return
    if batch.context.settings.risingwave.strict:
        hint = "write CREATE MATERIALIZED VIEW v AS SELECT …, or SET strict = false"
        raise SqlError("an ASOF JOIN needs a view", join.how_span, hint)
    hint = "write ON a.x = b.x AND a.t >= b.t"
    if join.using or join.natural or join.on is None:
        raise SqlError("an ASOF JOIN takes ON, with an equality and one inequality", join.how_span, hint)
    if not isinstance(join.right, ast.Table):
        raise SqlError("the right side of a batch ASOF JOIN is a table", join.right.span, "make it a view first")
    if len(_inequalities(join.on)) != 1:
        raise SqlError("an ASOF JOIN takes exactly one inequality", join.on.span, hint)


def _inequalities(on: ast.Expr) -> list[ast.Binary]:
    return [t for t in conjuncts(on) if isinstance(t, ast.Binary) and t.op in _TURNED]


# ----------------------------------------------------------------------- text


def printed(tree: Text | Joined[Text], batch: Batch) -> str:
    """What stands behind FROM."""
    if isinstance(tree, Text):
        return tree.sql
    join, left = tree.written, printed(tree.left, batch)
    if join.asof:
        return f"{left} {_KINDS[tree.how]} {_nearest(tree, batch)}"
    right = printed(tree.right, batch)
    right = f"({right})" if isinstance(tree.right, Joined) else right
    if join.on is None and not join.using and not join.natural:
        return f"{left} CROSS JOIN {right}"
    return f"{left} {_KINDS[tree.how]} {right} ON {_condition(tree, batch)}"


def _condition(tree: Joined[Text], batch: Batch) -> str:
    return " AND ".join(batch.condition(t, tree.span) for t in tree.terms) or "TRUE"


def _nearest(tree: Joined[Text], batch: Batch) -> str:
    """The right side of an ASOF join: for each left row the nearest right one."""
    table, right, on = tree.written.right, tree.right, tree.written.on
    assert isinstance(table, ast.Table) and isinstance(right, Text) and on is not None
    (compare,) = _inequalities(on)
    of_right = [right.scope.knows(n) and not tree.left.scope.knows(n) for n in names(compare.left)]
    nearest, op = (compare.left, _TURNED[compare.op]) if all(of_right) else (compare.right, compare.op)
    order = [f"{Values(batch, tree.scope, 'ON').sql(nearest)} {'ASC' if op in ('<', '<=') else 'DESC'}"]
    found = batch.context.meant(table.name) if table.name.parts not in {(n,) for n in batch.ctes} else None
    if isinstance(found, Declared) and found.relation is not None:
        order += [f"{right.token}.{column_token(k)}" for k in found.relation.key]
    inner = f"SELECT * FROM {right.sql} WHERE {_condition(tree, batch)} ORDER BY {', '.join(order)} LIMIT 1"
    return f"LATERAL ({inner}) AS {right.token} ON TRUE"
