"""FROM: operands with their windows, the joins between them, and the plan node that they make.

In: a relation as written, the catalog, the conjuncts of WHERE, the settings. Out: a tree of `Operand` and `Pair`, with
what its names mean; the node below WHERE and what stays in WHERE, or a refusal.
Rule: the tree says what meets what; whether such a join may be at all is checked when WHERE is known, because an
equality there makes a comma list an equi-join. A table is looked up by equality, never scanned for each row; its rows
without a partner can only be told where the stream's window ends, that is with FLOOR, CEIL or STEP. A conjunct of WHERE
goes below a join only on a side whose rows that join keeps; one of ON only into the other side; below an inner join
both. Never below a ROWS window, whose rows count filtered ones, nor below a report by hour, which counts their hours.
Every policy that SQLstream decides is spelled out in the node: a source without OVER lives for its own millisecond; a
table has no frame.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from braid.bind.env import Env
from braid.bind.expressions import bind_predicate, conjuncts
from braid.bind.select.items import Result
from braid.bind.select.pushing import Side, covered, is_true, names, on_enters, where_enters
from braid.bind.select.pushing import pair as equality
from braid.bind.select.scope import Scope, of_table
from braid.bind.select.tree import Joined, Leaf, Policy, bind_from, leaves
from braid.bind.settings import SqlstreamSettings
from braid.bind.sqlstream.scope import QUOTE, ROWTIME, as_timestamp, column, rules, table_of
from braid.bind.sqlstream.sources import declared
from braid.errors import SqlError
from braid.expr import typing
from braid.expr.nodes import Col, Expr
from braid.plan import sliding
from braid.plan.epochs import Equalities, InEpochs, RegularJoin
from braid.plan.groups import Aggregate, Order
from braid.plan.logical import Filter, How, Kind, Node, Project, Source
from braid.plan.names import level, own
from braid.sql import ast
from braid.types import Scalar

Frame = ast.RangeWindow | ast.RowsWindow


@dataclass(frozen=True, slots=True)
class Operand(Leaf):
    """One source of rows. `frame` None: no OVER. `filters`: conditions that were pushed down to it."""

    kind: Kind
    frame: Frame | None
    filters: tuple[Expr, ...] = ()
    filled: frozenset[str] = frozenset()  # its plan columns that are never NULL
    times: frozenset[str] = frozenset()  # its plan columns that are its ROWTIME


Pair = Joined[Operand]
Tree = Operand | Pair


@dataclass(frozen=True, slots=True, kw_only=True)
class OfTables(Result):
    """Rows of tables alone. `tree`: what they are of, where they are those of a join and no more; `order`: in which
    they are shown."""

    tree: Pair | None = None
    order: tuple[Order, ...] = ()


def kind_of(tree: Tree) -> Kind:
    if isinstance(tree, Operand):
        return tree.kind
    return "stream" if "stream" in (kind_of(tree.left), kind_of(tree.right)) else "table"


def only_stream(tree: Tree) -> str | None:
    """The alias of the one stream, where its rows are in all results, at their own times."""
    if isinstance(tree, Operand):
        return tree.alias if tree.kind == "stream" else None
    found = [x for side in (tree.left, tree.right) if kind_of(side) == "stream" for x in (only_stream(side),)]
    return found[0] if len(found) == 1 and not keeps_table(tree) else None


def times_of(tree: Tree) -> frozenset[str]:
    """The plan columns that are the time of the results: those of the one stream that are its own."""
    alias = only_stream(tree)
    return frozenset[str]().union(*(x.times for x in leaves(tree) if x.alias == alias))


def keys_of(pair: Pair) -> list[tuple[Expr, Expr]]:
    """The pairs of equal expressions (left, right) among its terms."""
    return [key for term in pair.terms if (key := key_of(pair, term)) is not None]


def key_of(pair: Pair, condition: Expr) -> tuple[Expr, Expr] | None:
    """(left, right) if the condition says that something of the left side equals something of the right side."""
    found = equality(condition, names(pair.left), names(pair.right))
    return found[:2] if found is not None and not found[2] else None


def is_bare(pair: Pair) -> bool:
    """Whether it is an inner join without a condition of its own, which takes equalities out of WHERE."""
    return pair.how == "inner" and not pair.terms


@dataclass(frozen=True, slots=True)
class Context:
    """What binding FROM needs. `prefix` keeps plan names of a sub-query apart; `windows`: those of the WINDOW clause;
    `query` binds a sub-query, `view` a view."""

    env: Env
    prefix: str
    windows: Mapping[str, Frame]
    query: Callable[[ast.Select, str], Result]
    view: Callable[[str, str], Result]
    used: set[str] = field(default_factory=set)  # windows that some operand or call names
    over: set[str] = field(default_factory=set)  # views that were put in their places

    def window(self, over: Frame | ast.Name) -> Frame:
        """A window as it is written, or that of a name."""
        if not isinstance(over, ast.Name):
            return over
        name = str(over)
        if name not in self.windows:
            known = ", ".join(self.windows)
            hint = f"windows are {known}" if known else f"declare it: WINDOW {name} AS (RANGE INTERVAL …)"
            raise SqlError(f"unknown window {name}", over.span, hint)
        self.used.add(name)
        return self.windows[name]


def bind_relation(r: ast.Relation, c: Context) -> Tree:
    return bind_from(r, Policy(lambda r, _: _operand(r, c), _check_using, _terms))


def _check_using(r: ast.Join, *_: Tree) -> None:
    if (time := next((n for n in r.using if str(n) == ROWTIME), None)) is not None:
        raise SqlError("ROWTIME is no column of USING", time.span, "windows say which times meet")


def _terms(on: ast.Expr, scope: Scope) -> list[Expr]:
    bound = (bind_predicate(term, rules("ON", column(scope))) for term in conjuncts(on))
    return [e for e in bound if not is_true(e)]


# ------------------------------------------------------------------- operands


def _operand(r: ast.Relation, c: Context) -> Tree:
    if isinstance(r, ast.Derived):
        assert r.alias is not None and isinstance(r.query, ast.Select)
        return _derived(r, r.alias, c.query(r.query, f"{c.prefix}{level(r.alias)}/"), c)
    assert isinstance(r, ast.Table)
    d = declared(r.name, c.env)
    alias = r.alias or r.name.parts[-1]
    if "." in alias:
        raise SqlError(f"the name {alias} holds a '.'", r.span, "choose another alias")
    if d.view:
        return _derived(r, alias, c.view(d.name, f"{c.prefix}{level(alias)}/"), c)
    plan_alias = f"{c.prefix}{level(alias)}"
    node: Source = replace(d.read_as(plan_alias), end="lift", captured=d.kind == "table")
    rowtime = Col(f"{plan_alias}.ROWTIME", Scalar.BIGINT) if d.kind == "stream" else None
    named = tuple((x.name, Col(f"{plan_alias}.{x.name}", x.type)) for x in d.visible)
    filled = frozenset(f"{plan_alias}.{x.name}" for x in d.visible if x.not_null)
    return replace(_made(r, alias, node, d.kind, named, rowtime, c), filled=filled)


def _derived(r: ast.Table | ast.Derived, alias: str, inner: Result, c: Context) -> Tree:
    """A sub-query or view: its columns under the alias, its rowtime as ROWTIME."""
    c.over.update(inner.over)
    if isinstance(inner, OfTables) and inner.order:
        hint = "leave it out; ORDER BY in the outer query sorts its rows"
        raise SqlError(f"{alias} is sorted inside, which says nothing of the rows outside", r.span, hint)
    if isinstance(inner, OfTables) and inner.tree is not None and r.over is None:
        return _in_place(alias, inner.tree, inner, c)
    plan_alias = f"{c.prefix}{level(alias)}"
    named = tuple((i.name, Col(f"{plan_alias}.{i.name}", i.expr.type)) for i in inner.columns)
    outputs: list[tuple[Col, Expr]] = [(col, i.expr) for (_, col), i in zip(named, inner.columns, strict=True)]
    rowtime = None
    if inner.rowtime is not None:
        rowtime = Col(f"{plan_alias}.ROWTIME", Scalar.BIGINT)
        outputs.append((rowtime, inner.rowtime))
    made = _made(r, alias, Project(inner.node, tuple(outputs)), inner.kind, named, rowtime, c)
    time = None if inner.rowtime is None else as_timestamp(inner.rowtime)
    return replace(made, times=frozenset(x.name for x, e in outputs if e == time))


def _in_place(alias: str, tree: Pair, inner: OfTables, c: Context) -> Pair:
    """A join of tables under one name: its relations in its place. What is computed of their rows is NULL where an
    outer join around it has none of them."""
    marked, there = _marked(tree, f"{c.prefix}{level(alias)}")
    named = tuple(
        (i.name, i.expr if isinstance(i.expr, Col) else typing.case([(there, i.expr)])) for i in inner.columns
    )
    assert isinstance(marked, Joined)
    return replace(marked, scope=of_table(table_of(alias, named, None), QUOTE))


def _marked(tree: Tree, name: str) -> tuple[Tree, Expr]:
    """The tree with a column that is true in each of its rows."""
    if isinstance(tree, Operand):
        there = Col(f"{own(name)}.there", Scalar.BOOLEAN)
        columns = tuple((c, c) for c in tree.node.schema)
        return replace(tree, node=Project(tree.node, (*columns, (there, typing.literal(True, Scalar.BOOLEAN))))), there
    if tree.how == "right":
        right, found = _marked(tree.right, name)
        return replace(tree, right=right), found
    left, found = _marked(tree.left, name)
    if tree.how != "full":
        return replace(tree, left=left), found
    right, other = _marked(tree.right, f"{name}/")
    return replace(tree, left=left, right=right), typing.call("COALESCE", [found, other])


def _made(
    r: ast.Table | ast.Derived, alias: str, node: Node, kind: Kind, named: tuple[tuple[str, Col], ...],
    rowtime: Col | None, c: Context,
) -> Operand:  # fmt: skip
    frame = _frame(r.over, alias, c)
    if frame is not None and kind == "table":
        assert r.over is not None
        hint = "leave OVER out: a table is captured whole when the query starts"
        raise SqlError(f"{alias} is a table: it has no window", r.over.span, hint)
    return Operand(node, of_table(table_of(alias, named, rowtime), QUOTE), r.span, kind, frame)


def _frame(over: Frame | ast.Name | None, alias: str, c: Context) -> Frame | None:
    found = None if over is None else c.window(over)
    if found is not None and found.partition_by:
        hint = "leave PARTITION BY out: the condition of the join says which rows meet"
        raise SqlError("the window of a join operand cannot be partitioned", found.partition_by[0].span, hint)
    if found is not None and (time := time_of(found)) is not None and time.parts[0] != alias:
        raise SqlError(f"{time} is not the time of {alias}", time.span, f"write ROWTIME, or {alias}.ROWTIME")
    return found


def time_of(window: Frame) -> ast.Name | None:
    """The time of a stream by which a window is ordered, where it names it."""
    return window.order.time if isinstance(window, ast.RangeWindow) and window.order is not None else None


# ----------------------------------------------------------- which joins may be


def check_beside(tree: Tree) -> None:
    """Of tables that a stream meets: what is captured of them."""
    for leaf in leaves(tree):
        if leaf.kind == "table" and any(isinstance(x, InEpochs | Aggregate) for x in leaf.node.walk()):
            hint = "INSERT INTO a table SELECT … from it, and join that table"
            what = f"{leaf.alias} beside a stream: groups, DISTINCT, UNION ALL and sub-queries of tables"
            raise SqlError(f"{what} are not supported yet", leaf.span, hint)


def check(tree: Tree, top: bool = True) -> None:
    """`top`: no further join is made of its rows."""
    if isinstance(tree, Operand):
        return
    check(tree.left, top=False)
    check(tree.right, top=False)
    kinds = {kind_of(tree.left), kind_of(tree.right)}
    if len(kinds) > 1:
        _stream_table(tree)
        if keeps_table(tree) and not top:
            hint = "make it the last join, or CREATE VIEW … AS SELECT STREAM it and join that"
            raise SqlError(
                "an outer join that keeps a table's rows cannot be joined further", tree.written.how_span, hint
            )


def _stream_table(pair: Pair) -> None:
    table = pair.left if kind_of(pair.left) == "table" else pair.right
    name = table.alias if isinstance(table, Operand) else "the tables"
    if pair.how == "full":
        hint = "write LEFT JOIN or RIGHT JOIN, so that the stream's rows are kept"
        raise SqlError("a FULL JOIN of a stream with a table is not possible", pair.written.how_span, hint)
    if not keys_of(pair):
        if pair.written.natural:
            message = f"the stream and {name} have no column of the same name"
            raise SqlError(message, pair.written.how_span, "write JOIN … ON a.x = b.y")
        message = f"a join with table {name} needs an equality between the stream and the table"
        raise SqlError(message, pair.span, "write ON s.x = t.x, with further conditions behind AND")
    if keeps_table(pair):
        _hopping(pair, name)


def keeps_table(pair: Pair) -> bool:
    """Does an outer join keep the rows of its table?"""
    kept = pair.left if pair.how == "left" else pair.right if pair.how == "right" else None
    return kept is not None and kind_of(kept) == "table" and kind_of(pair) == "stream"


def _hopping(pair: Pair, name: str) -> None:
    """Rows of a table without a partner are known when a window of no length ends."""
    if isinstance(pair.left if pair.how == "left" else pair.right, Joined):
        hint = "keep the rows of one table, and join the others with the result"
        raise SqlError("an outer join that keeps the rows of joined tables is not possible", pair.span, hint)
    stream = pair.right if kind_of(pair.left) == "table" else pair.left
    hint = "write OVER (ORDER BY FLOOR(ROWTIME TO HOUR) RANGE CURRENT ROW) on the stream, or keep the stream's rows"
    frame = stream.frame if isinstance(stream, Operand) else None
    if not isinstance(frame, ast.RangeWindow) or frame.order is None or frame.order.kind == "ROWTIME":
        message = f"an outer join that keeps the rows of table {name} needs a hopping window on the stream"
        raise SqlError(message, pair.written.how_span, hint)
    if frame.lower is not None and (frame.lower.ms or frame.lower.months):
        message = f"an outer join that keeps the rows of table {name} needs a window of no length"
        raise SqlError(message, frame.span, hint)


# ------------------------------------------------------- where conditions stand


def with_where(tree: Tree, where: list[Expr]) -> tuple[Tree, list[Expr]]:
    """The tree that makes use of WHERE, and the conjuncts that must still be applied to its result. Above outer joins
    one that became a key is applied again, where it is true for no padded row."""
    keyed, others = _keyed(tree, where)
    left_over: list[Expr] = []
    for condition in where:
        pushed = _into(keyed, condition) if condition in others else None
        if pushed is not None:
            keyed = pushed
        elif condition in others or not _all_inner(tree):
            left_over.append(condition)
    return _on_conditions(keyed), left_over


def _all_inner(tree: Tree) -> bool:
    return isinstance(tree, Operand) or (tree.how == "inner" and _all_inner(tree.left) and _all_inner(tree.right))


def _keyed(tree: Tree, where: list[Expr]) -> tuple[Tree, list[Expr]]:
    """The tree whose joins without a condition compare what conjuncts compare, and the other conjuncts."""
    if isinstance(tree, Operand):
        return tree, where
    left, where = _keyed(tree.left, where)
    right, where = _keyed(tree.right, where)
    mine = [c for c in where if key_of(tree, c) is not None] if is_bare(tree) else []
    made = replace(tree, left=left, right=right, terms=(*tree.terms, *mine))
    return made, [c for c in where if c not in mine]


def _into(tree: Tree, condition: Expr) -> Tree | None:
    """The tree with the condition applied to the rows of the one operand that it is about; None where it cannot be."""
    if isinstance(tree, Operand):
        if not covered([condition], tree.names)[0] or isinstance(tree.frame, ast.RowsWindow):
            return None
        return replace(tree, filters=(*tree.filters, condition))
    return _into_side(tree, condition, where_enters)


def _into_side(tree: Pair, condition: Expr, enters: Callable[[How, Side], bool]) -> Pair | None:
    """The same, where the side that it is about may be entered."""
    left = _into(tree.left, condition) if enters(tree.how, "left") else None
    right = _into(tree.right, condition) if enters(tree.how, "right") else None
    if left is None and right is None:
        return None
    return replace(tree, left=left or tree.left, right=right or tree.right)


def _on_conditions(tree: Tree) -> Tree:
    """Conjuncts of ON about one side go into that side, if the join does not keep its rows."""
    if isinstance(tree, Operand):
        return tree
    made = replace(tree, left=_on_conditions(tree.left), right=_on_conditions(tree.right), terms=())
    for condition in tree.terms:
        pushed = None if keeps_table(tree) else _into_side(made, condition, on_enters)
        made = pushed or replace(made, terms=(*made.terms, condition))
    return made


# --------------------------------------------------------------------- the node


def built(tree: Tree, settings: SqlstreamSettings, rowtime: Col | None) -> Node:
    """`rowtime` None: only tables are read, whose rows have no time."""
    if rowtime is None:
        return _of_tables(tree)
    check_beside(tree)
    return sliding.SlidingJoin(sliding_tree(tree), rowtime, settings.emission, settings.empty_buckets == "on")


def sliding_tree(tree: Tree) -> sliding.Tree:
    if isinstance(tree, Operand):
        return sliding.Operand(_filtered(tree), None if tree.kind == "table" else life(tree.frame))
    left, right = sliding_tree(tree.left), sliding_tree(tree.right)
    return sliding.Meeting(left, right, tree.how, tuple(keys_of(tree)), _residual(tree))


def _of_tables(tree: Tree) -> Node:
    if isinstance(tree, Operand):
        return _filtered(tree)
    on = equalities(keys_of(tree))
    return RegularJoin(_of_tables(tree.left), _of_tables(tree.right), tree.how, on, _residual(tree))


def equalities(keys: Sequence[tuple[Expr, Expr]]) -> Equalities:
    """Of expressions whose NULLs equal nothing."""
    return Equalities(tuple(a for a, _ in keys), tuple(b for _, b in keys), (False,) * len(keys))


def _residual(pair: Pair) -> Expr | None:
    return typing.all_of([c for c in pair.terms if key_of(pair, c) is None])


def _filtered(tree: Operand) -> Node:
    node = tree.node
    for condition in tree.filters:
        node = Filter(node, condition)
    return node


def life(frame: Frame | None) -> sliding.Frame:
    match frame:
        case None:
            return sliding.RangeFrame()
        case ast.RowsWindow(lower=lower, upper=upper):
            return sliding.RowsFrame(lower, upper)
        case ast.RangeWindow(order=order, lower=lower, upper=upper):
            return sliding.RangeFrame(_bound(lower), _bound(upper), _order(order))


def _bound(interval: ast.Interval | None) -> sliding.Bound:
    return sliding.Bound() if interval is None else sliding.Bound(interval.months, interval.ms)


def _order(order: ast.OrderKey | None) -> sliding.OrderKey:
    if order is None:
        return sliding.OrderKey()
    return sliding.OrderKey(sliding.ORDERS[order.kind], order.unit, None if order.step is None else order.step.ms)
