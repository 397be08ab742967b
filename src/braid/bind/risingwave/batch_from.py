"""FROM in batch queries: tables, sub-queries, table functions and joins, with every name bound.

In: a relation as read. Out: its text for DuckDB, and the scope of its names.
Rule: ON sees the two sides of its join and no more; USING and NATURAL become equalities, so that merged columns are
those of the dialect. RW-30: an ASOF join is a look-up that breaks ties by the smallest key, as views do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from braid.bind.bound import Declared
from braid.bind.expressions import names
from braid.bind.risingwave.batch import Env, column_token
from braid.bind.risingwave.batch_values import Values
from braid.bind.risingwave.scope import Column, Scope, Table, both, merged, of_table, renamed
from braid.errors import SqlError
from braid.sql import ast
from braid.sql import ast_risingwave as rw

_KINDS = {"inner": "JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN", "cross": "CROSS JOIN"}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_SETS = {"GENERATE_SERIES": "generate_series", "RANGE": "range", "UNNEST": "unnest"}


@dataclass(frozen=True, slots=True)
class From:
    sql: str
    scope: Scope[str]


def from_of(relation: rw.Relation, env: Env) -> From:
    return _relation(relation, env, None)


def _relation(relation: rw.Relation, env: Env, before: Scope[str] | None) -> From:
    """`before`: what stands to the left, for LATERAL and table functions."""
    match relation:
        case rw.TableName():
            return _table(relation, env)
        case rw.Derived():
            return _derived(relation, env, before)
        case rw.TableFunction():
            return _function(relation, env, before)
        case rw.Join():
            return _join(relation, env, before)
    assert_never(relation)


def _named(sql: str, alias: str, columns: tuple[tuple[str, str], ...], names: tuple[str, ...], r: rw.Relation,
           env: Env) -> From:  # fmt: skip
    """A relation under a name of its own; `columns` as (name, name in the text)."""
    token = env.made.token("t", alias)
    seen = renamed(tuple(Column(n, f"{token}.{t}", "") for n, t in columns), names, r.span)
    return From(f"{sql} AS {token}", of_table(Table(alias, seen)))


def _table(t: rw.TableName, env: Env) -> From:
    if t.name in env.ctes:
        if t.as_of is not None:
            raise SqlError("time travel reads tables and materialized views", t.as_of.span, "leave the clause out")
        sql, columns = env.ctes[t.name]
    else:
        sql, columns = env.made.relation(t)
    return _named(sql, t.alias or t.name, columns, t.columns, t, env)


def _derived(d: rw.Derived, env: Env, before: Scope[str] | None) -> From:
    from braid.bind.risingwave.batch_queries import rows_of

    inner = rows_of(d.query, env.under(before) if d.lateral and before is not None else env)
    alias = d.alias or f"subquery {env.made.count}"
    return _named(f"{'LATERAL ' if d.lateral else ''}({inner.sql})", alias, inner.columns, d.columns, d, env)


def _function(f: rw.TableFunction, env: Env, before: Scope[str] | None) -> From:
    """Functions that give rows; a function over columns is asked for each row before it."""
    name = f.call.name
    if name in ("TUMBLE", "HOP"):
        hint = f"write it in a view: CREATE MATERIALIZED VIEW w AS SELECT * FROM {name}(…), and read that"
        raise SqlError(f"{name} in a batch query is not supported yet", f.call.span, hint)
    if name not in _SETS:
        known = ", ".join(n.lower() for n in _SETS)
        raise SqlError(f"there is no table function {name.lower()}", f.call.span, f"there are {known}, TUMBLE, HOP")
    if f.call.distinct or any(isinstance(x, ast.Star) for x in f.call.args):
        raise SqlError(f"{name.lower()} takes values", f.call.span, "write it without * and DISTINCT")
    nothing: Scope[str] = Scope((), ())
    values = Values(env, before or nothing, "FROM")
    args = ", ".join(values.sql(x) for x in f.call.args)
    alias = f.alias or name.lower()
    column = env.made.token("c", alias)
    if name != "UNNEST" and not any(names(f.call)):
        token = env.made.token("t", alias)
        seen = renamed((Column(alias, f"{token}.{column}", ""),), f.columns, f.span)
        return From(f"{_SETS[name]}({args}) AS {token}({column})", of_table(Table(alias, seen)))
    made = args if name == "UNNEST" else f"{_SETS[name]}({args})"
    sql = f"LATERAL (SELECT unnest({made}) AS {column})"
    return _named(sql, alias, ((alias, column),), f.columns, f, env)


# ---------------------------------------------------------------------- joins


def _join(join: rw.Join, env: Env, before: Scope[str] | None) -> From:
    left = _relation(join.left, env, before)
    seen = left.scope if before is None else Scope(
        (*before.tables, *left.scope.tables), (*before.columns, *left.scope.columns)
    )  # fmt: skip
    right = _relation(join.right, env, seen)
    if join.asof:
        return _nearest(join, left, right, env)
    how = "inner" if join.natural and join.how == "cross" else join.how
    other = f"({right.sql})" if isinstance(join.right, rw.Join) else right.sql
    if join.using or join.natural:
        made = merged(join, left.scope, right.scope, env.made.context, lambda a, b: f"COALESCE({a}, {b})")
        on = " AND ".join(f"({a} = {b})" for a, b in made.equal) or "TRUE"
        return From(f"{left.sql} {_KINDS[how]} {other} ON {on}", made.scope)
    scope = both(left.scope, right.scope, join.span)
    if join.on is None:
        return From(f"{left.sql} CROSS JOIN {other}", scope)
    on = Values(env, scope, "ON").sql(join.on)
    return From(f"{left.sql} {_KINDS[how]} {other} ON {on}", scope)


def _nearest(join: rw.Join, left: From, right: From, env: Env) -> From:
    """An ASOF join: for each left row the nearest right one, by LATERAL."""
    made = env.made
    if made.context.settings.risingwave.strict:
        hint = "write CREATE MATERIALIZED VIEW v AS SELECT …, or SET strict = false"
        raise SqlError("an ASOF JOIN needs a view", join.how_span, hint)
    if join.using or join.natural or join.on is None:
        hint = "write ON a.x = b.x AND a.t >= b.t"
        raise SqlError("an ASOF JOIN takes ON, with an equality and one inequality", join.how_span, hint)
    table = join.right
    if not isinstance(table, rw.TableName):
        raise SqlError("the right side of a batch ASOF JOIN is a table", table.span, "make it a view first")
    inequalities = [t for t in _terms(join.on) if isinstance(t, ast.Binary) and t.op in _TURNED]
    if len(inequalities) != 1:
        hint = "write ON a.x = b.x AND a.t >= b.t"
        raise SqlError("an ASOF JOIN takes exactly one inequality", join.on.span, hint)
    (compare,) = inequalities
    scope = both(left.scope, right.scope, join.span)
    values = Values(env, scope, "ON")
    on_left = all(right.scope.knows(n) and not left.scope.knows(n) for n in names(compare.left))
    nearest, op = (compare.left, _TURNED[compare.op]) if on_left else (compare.right, compare.op)
    order = [f"{values.sql(nearest)} {'ASC' if op in ('<', '<=') else 'DESC'}"]
    alias = right.sql.rpartition(" AS ")[2]
    found = made.context.found(table.name) if table.name not in env.ctes else None
    if isinstance(found, Declared) and found.relation is not None:
        order += [f"{alias}.{column_token(k)}" for k in found.relation.key]
    inner = f"SELECT * FROM {right.sql} WHERE {values.sql(join.on)} ORDER BY {', '.join(order)} LIMIT 1"
    return From(f"{left.sql} {_KINDS[join.how]} LATERAL ({inner}) AS {alias} ON TRUE", scope)


def _terms(e: ast.Expr) -> list[ast.Expr]:
    if isinstance(e, ast.Binary) and e.op == "AND":
        return [*_terms(e.left), *_terms(e.right)]
    return [e]
