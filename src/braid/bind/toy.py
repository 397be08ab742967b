"""Statements of the toy dialect: what each means.

In: a statement as written. Out: a `Bound`.
Rule: as in ksqlDB, but an outer join of streams always waits: without GRACE for the end of its window.
"""

from __future__ import annotations

from dataclasses import replace

from braid.bind import ksqldb
from braid.bind.bound import Bound
from braid.bind.commands import Dialect
from braid.bind.from_ import Env
from braid.bind.query import declared_named
from braid.sql import ast
from braid.sql.dialects.toy import TOY


def _own(s: ast.Statement, env: Env) -> Bound | None:
    if isinstance(s, ast.CreateAs | ast.InsertSelect | ast.Select):
        s = replace(s, query=replace(s.query, source=_waiting(s.query.source)))
    return ksqldb.own(s, env, TOY.name)


def _waiting(r: ast.Relation) -> ast.Relation:
    if not isinstance(r, ast.Join):
        return r
    within = r.within
    if within is not None and within.grace is None:
        within = replace(within, grace=ast.Duration(0, within.span))
    return replace(r, left=_waiting(r.left), right=_waiting(r.right), within=within)


DIALECT = Dialect(TOY, _own, declared_named)
