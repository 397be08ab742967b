"""FROM: operands with their windows, and the joins between them.

In: a relation as written, the catalog. Out: a tree of `Operand` and `Pair`, with what its names mean.
Rule: the tree says what meets what; whether such a join may be at all is checked when WHERE is known (`tree`),
because an equality there makes a comma list an equi-join.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from braid.bind.expressions import bind_predicate, conjuncts, told_at
from braid.bind.from_ import Env
from braid.bind.names import repeated
from braid.bind.sqlstream.scope import Entry, Scope, joined, merged, rules, using
from braid.bind.sqlstream.sources import declared
from braid.errors import Span, SqlError
from braid.expr import typing
from braid.expr.nodes import Call, Col, Expr, Lit, columns
from braid.plan.logical import How, Kind, Node, Project, Source
from braid.sql import ast
from braid.types import Scalar

Frame = ast.RangeWindow | ast.RowsWindow


@dataclass(frozen=True, slots=True)
class Operand:
    """One source of rows. `frame` None: no OVER. `filters`: conditions that were pushed down to it."""

    alias: str
    node: Node
    kind: Kind
    frame: Frame | None
    span: Span
    names: frozenset[str]  # its plan columns
    rowtime: Col | None
    filters: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sides. `keys`: pairs of equal expressions (left, right); `residual`: the other conditions of ON. `bare`: an
    inner join without a condition of its own, which takes equalities out of WHERE. `on`: where its condition stands."""

    left: Tree
    right: Tree
    how: How
    keys: tuple[tuple[Expr, Expr], ...]
    residual: tuple[Expr, ...]
    bare: bool
    natural: bool
    span: Span
    on: Span

    @property
    def kind(self) -> Kind:
        return "stream" if "stream" in (self.left.kind, self.right.kind) else "table"

    @property
    def names(self) -> frozenset[str]:
        return self.left.names | self.right.names


Tree = Operand | Pair


@dataclass(frozen=True, slots=True)
class SubResult:
    """A sub-query or a view, bound: rows of `node`, columns by name, the plan column of its rowtime, and the views that
    it puts in their places."""

    node: Node
    kind: Kind
    columns: tuple[tuple[str, Expr], ...]
    rowtime: Col | None
    over: frozenset[str]


@dataclass(frozen=True, slots=True)
class Context:
    """What binding FROM needs. `prefix` keeps plan names of a sub-query apart; `windows`: those of the WINDOW clause;
    `query` binds a sub-query, `view` a view."""

    env: Env
    prefix: str
    windows: Mapping[str, Frame]
    query: Callable[[ast.Select, str], SubResult]
    view: Callable[[str, str], SubResult]
    used: set[str] = field(default_factory=set)  # windows that some operand names
    over: set[str] = field(default_factory=set)  # views that were put in their places


def bind_relation(r: ast.Relation, c: Context) -> tuple[Tree, Scope]:
    if not isinstance(r, ast.Join):
        return _operand(r, c)
    left, left_scope = bind_relation(r.left, c)
    right, right_scope = bind_relation(r.right, c)
    taken = {e.alias for e in left_scope.entries}
    for e in right_scope.entries:
        if e.alias in taken:
            hint = "write … AS another name: each source of a join has its own"
            raise SqlError(f"{e.alias} names two sources", r.right.span, hint)
    scope = joined(left_scope, right_scope)
    how: How = "inner" if r.how == "cross" else r.how
    compared = _compared(r, left_scope, right_scope)
    bare = r.on is None and not compared and how == "inner"
    on = r.how_span if r.on is None else r.on.span
    pair = Pair(left, right, how, (), (), bare, r.natural, r.how_span, on)
    if compared:
        columns_of_using: list[tuple[str, Expr]] = []
        for written in compared:
            name = str(written)
            with told_at(written.span):
                a, b = using(left_scope, right_scope, name)
                pair = replace(pair, keys=(*pair.keys, _same_type(a, b)))
            columns_of_using.append((name, _either(a, b, how)))
        return pair, merged(scope, left_scope, right_scope, tuple(columns_of_using))
    if r.on is not None:
        for term in conjuncts(r.on):
            pair = _with_condition(pair, bind_predicate(term, rules("ON", lambda n: scope.column(n.parts))))
    return pair, scope


def _compared(r: ast.Join, left: Scope, right: Scope) -> tuple[ast.Name, ...]:
    """The columns that USING names, or NATURAL finds."""
    if (twice := repeated(r.using)) is not None:
        raise SqlError(f"USING has column {twice} twice", twice.span, "name it once")
    if not r.natural:
        return r.using
    both = set(right.names())
    return tuple(ast.Name((n,), r.how_span) for n in left.names() if n in both)


def _either(left: Expr, right: Expr, how: How) -> Expr:
    """The one value of a column of USING."""
    match how:
        case "right":
            return right
        case "full":
            return typing.call("COALESCE", [left, right])
        case _:
            return left


def _with_condition(pair: Pair, condition: Expr) -> Pair:
    """The pair with one more conjunct of ON."""
    if isinstance(condition, Lit) and condition.value is True:
        return replace(pair, bare=pair.how == "inner" and not pair.keys and not pair.residual)
    pair = replace(pair, bare=False)
    key = key_of(pair, condition)
    if key is not None:
        return replace(pair, keys=(*pair.keys, key))
    return replace(pair, residual=(*pair.residual, condition))


def key_of(pair: Pair, condition: Expr) -> tuple[Expr, Expr] | None:
    """(left, right) if the condition says that something of the left side equals something of the right side."""
    match condition:
        case Call(function="eq", args=(a, b)):
            of_a, of_b = frozenset(columns(a)), frozenset(columns(b))
            if of_a and of_b and of_a <= pair.left.names and of_b <= pair.right.names:
                return a, b
            if of_a and of_b and of_b <= pair.left.names and of_a <= pair.right.names:
                return b, a
    return None


def _same_type(left: Expr, right: Expr) -> tuple[Expr, Expr]:
    equal = typing.call("eq", [left, right])
    assert isinstance(equal, Call)
    return equal.args[0], equal.args[1]


# ------------------------------------------------------------------- operands


def _operand(r: ast.Relation, c: Context) -> tuple[Operand, Scope]:
    if isinstance(r, ast.Derived):
        assert r.alias is not None and isinstance(r.query, ast.Select)
        return _derived(r, r.alias, c.query(r.query, f"{c.prefix}{r.alias}/"), c)
    assert isinstance(r, ast.Table)
    d = declared(r.name, c.env)
    alias = r.alias or r.name.parts[-1]
    if "." in alias:
        raise SqlError(f"the name {alias} holds a '.'", r.span, "choose another alias")
    if d.view:
        return _derived(r, alias, c.view(d.name, f"{c.prefix}{alias}/"), c)
    plan_alias = f"{c.prefix}{alias}"
    node: Source = replace(d.read_as(plan_alias), end="lift", captured=d.kind == "table")
    rowtime = Col(f"{plan_alias}.ROWTIME", Scalar.BIGINT) if d.kind == "stream" else None
    named = tuple((x.name, Col(f"{plan_alias}.{x.name}", x.type)) for x in d.visible)
    return _made(r, alias, node, d.kind, named, rowtime, c)


def _derived(r: ast.Table | ast.Derived, alias: str, inner: SubResult, c: Context) -> tuple[Operand, Scope]:
    """A sub-query or view: its columns under the alias, its rowtime as ROWTIME."""
    c.over.update(inner.over)
    plan_alias = f"{c.prefix}{alias}"
    named = tuple((n, Col(f"{plan_alias}.{n}", e.type)) for n, e in inner.columns)
    outputs: list[tuple[Col, Expr]] = [(col, e) for (_, col), (_, e) in zip(named, inner.columns, strict=True)]
    rowtime = None
    if inner.rowtime is not None:
        rowtime = Col(f"{plan_alias}.ROWTIME", Scalar.BIGINT)
        outputs.append((rowtime, inner.rowtime))
    return _made(r, alias, Project(inner.node, tuple(outputs)), inner.kind, named, rowtime, c)


def _made(
    r: ast.Table | ast.Derived, alias: str, node: Node, kind: Kind, named: tuple[tuple[str, Col], ...],
    rowtime: Col | None, c: Context,
) -> tuple[Operand, Scope]:  # fmt: skip
    frame = _frame(r.over, c)
    if frame is not None and kind == "table":
        assert r.over is not None
        hint = "leave OVER out: a table is captured whole when the query starts"
        raise SqlError(f"{alias} is a table: it has no window", r.over.span, hint)
    names = frozenset([col.name for _, col in named] + ([rowtime.name] if rowtime is not None else []))
    operand = Operand(alias, node, kind, frame, r.span, names, rowtime)
    return operand, Scope((Entry(alias, named, rowtime),))


def _frame(over: Frame | ast.Name | None, c: Context) -> Frame | None:
    if not isinstance(over, ast.Name):
        return over
    name = str(over)
    if name not in c.windows:
        known = ", ".join(c.windows)
        hint = f"windows are {known}" if known else f"declare it: WINDOW {name} AS (RANGE INTERVAL …)"
        raise SqlError(f"unknown window {name}", over.span, hint)
    c.used.add(name)
    return c.windows[name]
