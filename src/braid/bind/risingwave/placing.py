"""Where the parts of WHERE and ON go: below a join, into it, or above it.

In: a tree of joins with their terms, the terms of WHERE. Out: nodes, and the terms that stay above.
Rule: RW-10 to RW-13, RW-23 to RW-29, RW-32 to RW-40: a term of WHERE may move only where it changes no result; an
equality of both sides is a key, all else that reads both sides decides what matches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from braid.bind.bound import Declared, Index
from braid.bind.expressions import sides
from braid.bind.risingwave.scope import Context
from braid.bind.select.pushing import apart, covered, is_true, names, pair, shared_out
from braid.bind.select.tree import Joined, Leaf
from braid.errors import SqlError
from braid.expr.nodes import Call, Col, Expr, Lit, columns
from braid.expr.postgres import typing
from braid.expr.typing import all_of
from braid.plan.epochs import AsOfJoin, Changes, Compare, Equalities, RegularJoin, TemporalJoin, Windows
from braid.plan.first_row import is_one_group
from braid.plan.groups import Aggregation
from braid.plan.logical import Filter, Lateral, Node, Project, Source
from braid.plan.names import column_of
from braid.plan.over import Over, Windowed
from braid.plan.watermarks import cleaned, forgotten, progress
from braid.records.encoding import Encoding
from braid.sql import ast
from braid.types import Array, Scalar


@dataclass(frozen=True, slots=True)
class Relation(Leaf):
    """`declared`: the table it reads, where it is one; `index`: through which index; `ties`: what a LATERAL query asks
    of what is before it; `always`: it gives each row of that one."""

    declared: Declared | None = None
    index: Index | None = None
    as_of: ast.AsOf | None = None
    window: str | None = None  # of a window function: what it is, to be compared with that of another
    ties: tuple[Expr, ...] = ()
    always: bool = False


Join = Joined[Relation]
Tree = Relation | Join
VALUE_OF = "value of sub-query"  # no table of a user is called so


def is_value(alias: str) -> bool:
    """Whether a relation is the value of a sub-query."""
    return alias.startswith(VALUE_OF)


_TURNED: dict[str, Compare] = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_COMPARES: dict[str, Compare] = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
_EQUALITY = "write ON a.x = b.x AND …"


def place(tree: Tree, pool: list[Expr], context: Context) -> tuple[Node, list[Expr]]:
    """The node of a tree, and what of `pool` it has not taken."""
    if isinstance(tree, Relation):
        mine, rest = covered(pool, tree.names)
        return _filtered(tree.node, mine), rest
    if tree.written.asof:
        return _asof(tree, pool, context)
    tree = _turned_left(tree)
    if isinstance(tree.right, Relation) and isinstance(tree.right.node, Lateral):
        return _lateral(tree, tree.right.node, pool, context)
    if isinstance(tree.right, Relation) and tree.right.as_of is not None:
        return _temporal(tree, tree.right, pool, context)
    return _regular(tree, pool, context)


def _side(tree: Tree, pool: list[Expr], context: Context) -> Node:
    """The node of a side, with all of `pool`."""
    return _filtered(*place(tree, pool, context))


# -------------------------------------------------------------------- regular


def _regular(j: Join, pool: list[Expr], context: Context) -> tuple[Node, list[Expr]]:
    j = _ordered(j, pool)
    shares = shared_out(j, pool)
    left, right = _side(j.left, shares.left, context), _side(j.right, shares.right, context)
    on, residual = _split(shares.on, j)
    if not on.left:
        on, residual = _split(apart(shares.on), j)
    _notice_windows(j, context)
    of_value = isinstance(j.right, Relation) and is_value(j.right.alias)
    of_row = not on.left and (gives_one(left, context) or gives_one(right, context))
    if not on.left and not of_value and not of_row and not context.settings.risingwave.any_join:
        what = "a cross join" if j.written.how == "cross" else "a join without an equality of both sides"
        if j.written.natural:
            what = "a NATURAL JOIN without a common column"
        hint = f"{_EQUALITY}, or SET joins_without_equality = accept to run it in one bucket"
        raise SqlError(f"{what} in a view is not possible", j.span, hint)
    if not on.left:
        of_one = "a sub-query that no equality ties: the rows around it run in one bucket"
        of_pairs = "a join without an equality runs in one bucket, and compares every pair of rows"
        with_row = "a join with one row that no equality ties runs in one bucket"
        context.notices.append(of_one if of_value else with_row if of_row else of_pairs)
    node = cleaned(RegularJoin(left, right, j.how, on, all_of(residual)))
    _notice_state(node, j, context)
    return node, shares.above


def gives_one(node: Node, context: Context) -> bool:
    """Whether it has no more than one row: an aggregate of all rows, what is made of one, a view of such."""
    match node:
        case Filter(input=Over(partition=(), calls=(Windowed(Aggregation(rank, "ROW_NUMBER")),)), predicate=p):
            return p in [typing.compare(sign, rank, Lit(1, Scalar.BIGINT)) for sign in ("<=", "=")]  # LIMIT 1
        case Project(input=x) | Filter(input=x) | Changes(input=x):
            return gives_one(x, context)
        case Source():
            declared = context.catalog.get(node.name)
            return declared is not None and declared.relation is not None and bool(declared.relation.alone)
        case RegularJoin(left=left, right=right, how="inner", gives="pairs"):
            return gives_one(left, context) and gives_one(right, context)
    return is_one_group(node)


def _ordered(j: Join, pool: list[Expr]) -> Join:
    """A list in FROM, in an order in which each relation has an equality with those before it, as far as there are any.
    The first one stays first; where several may come next, the first of them as written. Columns have names, so their
    order is that of the text."""
    if not _in_list(j):
        return j
    found: list[Join] = []
    first: Tree = j
    while isinstance(first, Joined) and _in_list(first):
        found.insert(0, first)
        first = first.left
    if len(found) < 2:
        return j
    made, seen = first, names(first)
    while found:
        terms = [*pool, *apart(pool)]
        linked = (x for x in found if any(pair(t, seen, names(x.right)) for t in terms))
        then = next(linked, found[0])
        found.remove(then)
        made = replace(then, left=made)
        seen |= names(then.right)
    assert isinstance(made, Joined)
    return made


def _in_list(j: Join) -> bool:
    """Whether a join is a comma of FROM."""
    right = j.right
    leans = isinstance(right, Relation) and (right.as_of is not None or isinstance(right.node, Lateral))
    return j.written.comma and not leans


def _notice_state(node: RegularJoin, j: Join, context: Context) -> None:
    """RW-18, RW-48: what is kept for ever, and what would bound it."""
    why = _not_cleaned(j)
    if why is not None and len(forgotten(node)) < 2:
        context.notices.append(f"the windows of this join are not cleaned: {why}")
    else:
        notice_kept(node, context)


def notice_kept(node: RegularJoin, context: Context) -> None:
    """RW-18: what is kept for ever."""
    kept = [side for side in ("left", "right") if side not in {c.side for c in forgotten(node)}]
    if not kept:
        return
    side = "both sides" if len(kept) == 2 else f"the {kept[0]} side"
    article = "an" if node.gives == "unmatched" else "a"
    context.notices.append(
        f"{article} {node.joins} join keeps the rows of {side} until they are deleted; a window join, an interval "
        "join or a temporal join keeps less"
    )


def _not_cleaned(j: Join) -> str | None:
    """Which condition of cleaning a join of two windows does not meet; None where it is none."""
    leaves = [x for x in (j.left, j.right) if isinstance(x, Relation) and isinstance(x.node, Windows)]
    if len(leaves) < 2:
        return None
    for leaf in leaves:
        assert isinstance(leaf.node, Windows)
        below = progress(leaf.node.input)
        if not below:
            return f"{leaf.alias} has no WATERMARK"
        if not (isinstance(leaf.node.time, Col) and leaf.node.time.name in below):
            return f"the window function of {leaf.alias} is not over its WATERMARK column"
    return "no equality compares window_start with window_start, or window_end with window_end"


def _notice_windows(j: Join, context: Context) -> None:
    """RW-46: windows of two kinds match only where their starts coincide."""
    if not (isinstance(j.left, Relation) and isinstance(j.right, Relation)) or None in (j.left.window, j.right.window):
        return
    if j.left.window != j.right.window:
        message = "the two sides have different windows: rows match only where the bounds coincide"
        if context.settings.risingwave.strict:
            raise SqlError(message, j.written.how_span, "use one window function with one size on both sides")
        context.notices.append(message)


def _split(terms: list[Expr], j: Join) -> tuple[Equalities, list[Expr]]:
    """Equalities of both sides, and the other terms."""
    left, right = names(j.left), names(j.right)
    found = [(t, pair(t, left, right)) for t in terms]
    pairs = [p for _, p in found if p is not None]
    on = Equalities(tuple(a for a, _, _ in pairs), tuple(b for _, b, _ in pairs), tuple(n for _, _, n in pairs))
    return on, [t for t, p in found if p is None]


# -------------------------------------------------------------------- lateral

_NO_ROWS = Source("", "", "", "stream", (), Encoding())


def elements(array: Expr, element: Col, index: Col) -> Lateral:
    """A relation of the elements of an array that is made of columns to its left; these rows come to be its input."""
    return Lateral(_NO_ROWS, array, element, index)


def _lateral(j: Join, of: Lateral, pool: list[Expr], context: Context) -> tuple[Node, list[Expr]]:
    """Each row of the left side with the elements that its array has. LEFT keeps a row whose array has none."""
    how, on = j.how, [t for t in j.terms if not is_true(t)]
    if how in ("right", "full"):
        hint = "write JOIN or LEFT JOIN, with the function on the right side"
        raise SqlError(f"a function over columns takes no {how.upper()} JOIN", j.written.how_span, hint)
    if how == "left" and on:
        raise SqlError("a function over columns is LEFT JOINed ON true", j.span, "write the condition in WHERE")
    if not {*columns(of.array)} <= names(j.left):
        hint = "write it behind the table whose columns it takes"
        raise SqlError("a function in FROM takes columns of what is before it in its join", j.right.span, hint)
    mine, rest = covered(pool, names(j.left))
    array = of.array if how == "inner" else _not_empty(of.array)
    return _filtered(replace(of, input=_side(j.left, mine, context), array=array), on), rest


def _turned_left(j: Join) -> Join:
    """`t, f(t.x) JOIN u` is `(t, f(t.x)) JOIN u`: what a function over columns is joined with, is joined to both."""
    spine: list[Join] = []
    first: Tree = j.right
    while isinstance(first, Joined) and first.how in ("inner", "left"):
        spine.insert(0, first)
        first = first.left
    if not spine or j.how != "inner" or j.terms or isinstance(first, Joined) or not isinstance(first.node, Lateral):
        return j
    made = replace(j, right=first)
    for x in spine:
        made = replace(x, left=made)
    return made


def _not_empty(array: Expr) -> Expr:
    """The array, or one with a NULL in place of none."""
    assert isinstance(array.type, Array)
    element = Call("make_array", (Lit(None, array.type.element),), array.type)
    some = typing.compare(">", typing.function("CARDINALITY", [array]), Lit(0, Scalar.INT))
    return typing.case([(some, array)], element)


# ---------------------------------------------------------------------- as of


def _asof(j: Join, pool: list[Expr], context: Context) -> tuple[Node, list[Expr]]:
    how: Literal["inner", "left"] = "left" if j.how == "left" else "inner"
    terms = [t for t in j.terms if not is_true(t)]
    span = j.span
    left_only, terms = covered(terms, names(j.left))
    right_only, terms = covered(terms, names(j.right))
    if how == "left" and left_only:
        hint = "put it into WHERE, or write ASOF JOIN"
        raise SqlError("ON of an ASOF LEFT JOIN has a condition on the left side alone", span, hint)
    left_pool, rest = covered(pool, names(j.left))
    if context.settings.risingwave.strict and how == "inner":
        below, rest = covered(rest, names(j.right))
        right_only += below
    left, right = _side(j.left, [*left_only, *left_pool], context), _side(j.right, right_only, context)
    on, others = _split(terms, j)
    if not on.left:
        raise SqlError("an ASOF JOIN needs an equality of both sides", span, "write ON a.x = b.x AND a.t >= b.t")
    if len(others) != 1:
        problem = "needs an inequality of both sides" if not others else "takes exactly one inequality"
        hint = "write ON a.x = b.x AND a.t >= b.t; filter in WHERE"
        raise SqlError(f"an ASOF JOIN {problem}", span, hint)
    left_at, compare, right_at = _inequality(others[0], j)
    order = tuple(k for k in right.row_key if k not in on.right)
    context.notices.append("ASOF JOIN is in public preview in RisingWave")
    return AsOfJoin(left, right, how, on, left_at, compare, right_at, order), rest


def _inequality(term: Expr, j: Join) -> tuple[Expr, Compare, Expr]:
    if isinstance(term, Call) and term.function in _COMPARES:
        found = sides(term.args[0], term.args[1], names(j.left), names(j.right))
        if found is not None:
            compare = (_COMPARES if found[0] is term.args[0] else _TURNED)[term.function]
            return found[0], compare, found[1]
    hint = "write ON a.x = b.x AND a.t >= b.t, with one side of it on each table"
    raise SqlError("an ASOF JOIN takes one of <, <=, >, >= between the two sides", j.span, hint)


# ------------------------------------------------------------------- temporal


def _temporal(j: Join, leaf: Relation, pool: list[Expr], context: Context) -> tuple[Node, list[Expr]]:
    assert leaf.as_of is not None
    span = leaf.as_of.span
    if j.how in ("right", "full"):
        hint = "write JOIN or LEFT JOIN; the left side is the one that looks up"
        raise SqlError(f"a temporal join cannot be {j.how.upper()}", j.written.how_span, hint)
    if leaf.declared is None:
        raise SqlError("a temporal join looks into a table", span, "make the right side a materialized view")
    if leaf.declared.relation is not None and leaf.declared.relation.what == "source":
        raise SqlError("a temporal join looks into a table, not a source", span, "CREATE TABLE it")
    how: Literal["inner", "left"] = "left" if j.how == "left" else "inner"
    terms = [t for t in j.terms if not is_true(t)]
    if how == "inner":
        mine, rest = covered(pool, names(j))
        left_pool, terms = covered([*terms, *mine], names(j.left))
    else:
        left_pool, rest = covered(pool, names(j.left))
    if any(isinstance(t, Lit) and t.value is not True for t in terms):
        raise SqlError("the condition of this temporal join is never true", j.span, "leave the join out")
    left = _side(j.left, left_pool, context)
    on, residual = _split(terms, j)
    _check_lookup(on, leaf, leaf.declared, left, how, j, context)
    return TemporalJoin(left, leaf.node, how, on, all_of(residual)), rest


def _check_lookup(
    on: Equalities, leaf: Relation, table: Declared, left: Node, how: str, j: Join, context: Context
) -> None:
    """RW-38, RW-39: the equalities must find rows by the key of the table or by an index."""
    if not on.left:
        if how == "left":
            raise SqlError("a temporal LEFT JOIN needs an equality", j.span, f"{_EQUALITY}")
        if left.mode != "append":
            hint = "write APPEND ONLY behind the left table's columns, or join on an equality"
            raise SqlError("a temporal join without an equality needs an append-only left side", j.span, hint)
        context.notices.append("the temporal join has no equality: each left row meets the whole right side")
        return
    assert table.relation is not None
    equal = {column_of(e.name) for e in on.right if isinstance(e, Col)}
    key = table.relation.key
    if set(key) <= equal:
        return
    usable = []
    for index in context.catalog.indexes.values():
        prefix = 0
        while prefix < len(index.columns) and index.columns[prefix] in equal:
            prefix += 1
        if index.table == table.name and prefix and set(index.distributed_by) <= set(index.columns[:prefix]):
            usable.append((prefix, index))
    if leaf.index is not None:
        usable = [u for u in usable if u[1] == leaf.index]
    if not usable:
        wanted = ", ".join(sorted(equal)) or "column"
        hint = f"CREATE INDEX {table.name}_by_{wanted.split(',')[0]} ON {table.name} ({wanted})"
        message = f"the equalities find no row of {table.name} by its key ({', '.join(key)}) or an index"
        raise SqlError(message, j.written.how_span, hint)
    best = max(usable, key=lambda u: u[0])[1]
    context.notices.append(f"{table.name} is looked up by index {best.name} ({', '.join(best.columns)})")


# ---------------------------------------------------------------------- parts


def _filtered(node: Node, terms: list[Expr]) -> Node:
    predicate = all_of(terms)
    return node if predicate is None else Filter(node, predicate)
