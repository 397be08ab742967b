"""Table functions in FROM: `TABLE(f(CURSOR(SELECT STREAM …), …))`, and STREAM(…).

In: a cursor at TABLE or STREAM. Out: the query that gives the same rows.
Rule: TOP_K_ITEMS_TUMBLING and COUNT_DISTINCT_ITEMS_TUMBLING count groups of periods; those of the cloud estimate, these
are exact. Of the k most frequent items of a period each is the row, sorted by its count, before which at most k - 1
rows have its time. All others are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from braid.errors import Span
from braid.sql import ast
from braid.sql.cursor import Cursor
from braid.sql.tokens import TokenKind
from braid.types import Scalar

_LEARNED = ("RANDOM_CUT_FOREST", "RANDOM_CUT_FOREST_WITH_EXPLANATION", "HOTSPOTS")


def table_function(c: Cursor, query: Callable[[Cursor], ast.Select]) -> ast.Select | None:
    """None: none is here. `query`: reads the one in CURSOR."""
    if c.word() not in ("TABLE", "STREAM") or c.ahead(1).text != "(":
        return None
    start = c.index
    c.advance()
    opened, at = c.advance(), c.now
    name = c.name("the name of a table function")
    if name in _LEARNED:
        hint = "score rows with a function of your own: braid run --functions FILE"
        raise c.error(f"{name} is not supported: chance makes its model, so a second run would give others", at, hint)
    if name not in _FUNCTIONS:
        raise c.error(f"the table function {name} is not supported yet", at, f"those here are {', '.join(_FUNCTIONS)}")
    called = c.expect_symbol("(", "'('")
    c.expect("CURSOR")
    inside = c.expect_symbol("(", "'('")
    c.enter()
    rows = query(c)
    c.leave()
    c.close(inside, ")")
    made = _FUNCTIONS[name](c, rows, start)
    c.close(called, ")")
    c.close(opened, ")")
    return made


def _top_k(c: Cursor, rows: ast.Select, start: int) -> ast.Select:
    """(…, 'column', k, seconds): ITEM and ITEM_COUNT of the k most frequent values of each period."""
    column, most, seconds = _column(c), _whole(c, "how many items"), _whole(c, "seconds")
    b = _Builder(c.span(start))
    period = b.period(seconds)
    item = b.item(ast.Cast(column, Scalar.VARCHAR, b.span), "ITEM")
    counted = b.select((item, b.item(b.count(), "ITEM_COUNT")), rows, group_by=(column, period),
                       order_by=(b.order(period), b.order(b.name("ITEM_COUNT"), descending=True)))  # fmt: skip
    both = (b.item(b.name("ITEM")), b.item(b.name("ITEM_COUNT")))
    rank = ast.WindowCall(b.count(), False, False, ast.RangeWindow(None, None, None, b.span), b.span)
    ranked = b.select((*both, b.item(rank, "RANK")), counted)
    return b.select(both, ranked, where=ast.Binary("<=", b.name("RANK"), b.number(most), b.span))


def _count_distinct(c: Cursor, rows: ast.Select, start: int) -> ast.Select:
    """(…, 'column', seconds): how many different values each period has."""
    column, seconds = _column(c), _whole(c, "seconds")
    b = _Builder(c.span(start))
    counted = ast.Call("COUNT", (column,), b.span, distinct=True)
    return b.select((b.item(counted, "NUMBER_OF_DISTINCT_ITEMS"),), rows, group_by=(b.period(seconds),))


_FUNCTIONS: Mapping[str, Callable[[Cursor, ast.Select, int], ast.Select]] = {
    "TOP_K_ITEMS_TUMBLING": _top_k,
    "COUNT_DISTINCT_ITEMS_TUMBLING": _count_distinct,
}


def _column(c: Cursor) -> ast.Name:
    c.expect_symbol(",", "','")
    at = c.index
    return ast.Name((c.string("the name of a column in single quotes"),), c.span(at))


def _whole(c: Cursor, what: str) -> int:
    c.expect_symbol(",", "','")
    if c.now.kind is not TokenKind.NUMBER or not c.now.text.isdigit() or not 0 < int(c.now.text) <= 10**9:
        raise c.unexpected(f"{what}, a whole number above 0")
    return int(c.advance().text)


class _Builder:
    """Parts of queries that all come from one place of the text."""

    def __init__(self, span: Span) -> None:
        self.span = span

    def name(self, name: str) -> ast.Name:
        return ast.Name((name,), self.span)

    def number(self, value: int) -> ast.Literal:
        return ast.Literal(value, Scalar.INT, self.span)

    def count(self) -> ast.Call:
        return ast.Call("COUNT", (ast.Star((), self.span),), self.span)

    def period(self, seconds: int) -> ast.Call:
        return ast.Call("STEP BY", (self.name("ROWTIME"), ast.Interval(0, seconds * 1000, self.span)), self.span)

    def item(self, e: ast.Expr, alias: str | None = None) -> ast.SelectItem:
        return ast.SelectItem(e, alias, self.span)

    def order(self, e: ast.Expr, descending: bool = False) -> ast.OrderItem:
        return ast.OrderItem(e, descending, None, self.span)

    def select(
        self, items: tuple[ast.SelectItem, ...], rows: ast.Select, where: ast.Expr | None = None,
        group_by: tuple[ast.Expr, ...] = (), order_by: tuple[ast.OrderItem, ...] = (),
    ) -> ast.Select:  # fmt: skip
        below = ast.Derived(rows, "rows", self.span)
        return ast.Select(items, below, self.span, "STREAM", where=where, group_by=group_by, order_by=order_by)
