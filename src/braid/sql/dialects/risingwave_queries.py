"""The grammar of RisingWave's queries: WITH, SELECT, VALUES, UNION, joins, sub-queries, ORDER BY.

In: a cursor at SELECT, WITH, VALUES or `(`. Out: a `Query`.
Rule: PostgreSQL's, with ASOF JOIN, FOR SYSTEM_TIME AS OF and EMIT ON WINDOW CLOSE. Words that the joins are made of
(JOIN, ON, USING, NATURAL …) are reserved; `stream`, `version`, `value`, `id`, `price` are names.
"""

from __future__ import annotations

from typing import Literal as OneOf

from braid.errors import Span
from braid.sql import ast
from braid.sql import ast_risingwave as rw
from braid.sql.cursor import Cursor
from braid.sql.dialects.risingwave_calls import QUERY_STARTS, grouping, order_items, window
from braid.sql.dialects.risingwave_values import interval
from braid.sql.expressions import comma_list, expression, in_parentheses
from braid.sql.tokens import TokenKind
from braid.types import Scalar

QUERY_GOES_ON = ("UNION", "INTERSECT", "EXCEPT", "ORDER", "LIMIT", "OFFSET", "FETCH")


def query(c: Cursor) -> rw.Query:
    """A query up to the first token that cannot belong to it."""
    c.enter()
    start = c.index
    ctes: tuple[rw.With, ...] = ()
    if c.accept("WITH"):
        if c.at("RECURSIVE"):
            raise c.error("WITH RECURSIVE is not supported yet", c.now, "write the steps as joins")
        ctes = comma_list(c, _cte)
    body = _set_operations(c)
    order_by: tuple[rw.OrderItem, ...] = ()
    limit = offset = None
    emit: Span | None = None
    while True:
        first = c.index
        if c.at("ORDER"):
            order_by = order_items(c)
        elif c.accept("LIMIT"):
            limit = None if c.accept("ALL") else expression(c)
        elif c.accept("OFFSET"):
            offset = expression(c)
            if c.word() in ("ROW", "ROWS"):
                c.advance()
        elif c.at("FETCH"):
            limit = _fetch(c)
        elif c.at("EMIT") and c.foreign():
            raise c.unexpected("the end of the query")
        elif c.accept("EMIT"):
            c.expect("ON", "WINDOW", "CLOSE")
            emit = c.span(first)
        else:
            break
    c.leave()
    return rw.Query(ctes, body, order_by, limit, offset, emit, c.span(start))


def _cte(c: Cursor) -> rw.With:
    start = c.index
    name = c.name("the name of a query")
    columns = _column_names(c)
    c.expect("AS")
    if not c.accept("MATERIALIZED"):
        c.accept("NOT", "MATERIALIZED")
    opened = c.expect_symbol("(", "'(' and a query")
    inner = query(c)
    c.close(opened, ")")
    return rw.With(name, columns, inner, c.span(start))


def _set_operations(c: Cursor, tight: bool = False) -> rw.Body:
    """UNION and EXCEPT; `tight`: INTERSECT, which binds tighter."""
    start, levels = c.index, 1
    c.enter()
    left = _body(c) if tight else _set_operations(c, tight=True)
    while c.word() in (("INTERSECT",) if tight else ("UNION", "EXCEPT")):
        c.enter()  # each stands above what is before it
        levels += 1
        op = c.advance().value
        all_ = c.accept("ALL")
        if not all_:
            c.accept("DISTINCT")
        right = _body(c) if tight else _set_operations(c, tight=True)
        left = rw.SetOperation(op, all_, left, right, c.span(start))
    for _ in range(levels):
        c.leave()
    return left


def _body(c: Cursor) -> rw.Body:
    start = c.index
    if c.at_symbol("("):
        opened = c.advance()
        inner = query(c)
        c.close(opened, ")")
        plain = not (inner.ctes or inner.order_by or inner.limit or inner.offset or inner.emit)
        return inner.body if plain else inner
    if c.accept("VALUES"):
        rows = comma_list(c, lambda c: in_parentheses(c, expression))
        return rw.Values(rows, c.span(start))
    if not c.at("SELECT"):
        raise c.unexpected("SELECT or VALUES", *QUERY_STARTS)
    return _select(c)


def _select(c: Cursor) -> rw.Select:
    start = c.index
    c.expect("SELECT")
    distinct: tuple[ast.Expr, ...] | None = None
    if c.accept("DISTINCT"):
        distinct = in_parentheses(c, expression) if c.accept("ON") else ()
    else:
        c.accept("ALL")
    items = comma_list(c, item)
    source = _from(c) if c.accept("FROM") else None
    where = expression(c) if c.accept("WHERE") else None
    group_by: tuple[ast.Expr, ...] = ()
    if c.accept("GROUP"):
        c.expect("BY")
        group_by = comma_list(c, grouping)
    having = expression(c) if c.accept("HAVING") else None
    windows = comma_list(c, _window) if c.accept("WINDOW") else ()
    return rw.Select(distinct, items, source, where, group_by, having, windows, c.span(start))


def _window(c: Cursor) -> tuple[str, rw.Over]:
    name = c.name("the name of a window")
    c.expect("AS")
    return name, window(c)


def item(c: Cursor) -> ast.SelectItem:
    """An item of SELECT or RETURNING."""
    start = c.index
    if c.accept_symbol("*"):
        return ast.SelectItem(ast.Star(None, c.span(start)), None, c.span(start))
    if c.now.kind in (TokenKind.WORD, TokenKind.NAME) and c.ahead(1).text == "." and c.ahead(2).text == "*":
        qualifier = c.name("the name of a table")
        c.advance()
        c.advance()
        return ast.SelectItem(ast.Star(qualifier, c.span(start)), None, c.span(start))
    expr = expression(c)
    if c.accept("AS"):
        return ast.SelectItem(expr, c.label("a name"), c.span(start))
    return ast.SelectItem(expr, bare_alias(c), c.span(start))


def bare_alias(c: Cursor) -> str | None:
    """A name without AS, unless the word goes on with the query."""
    plain = c.now.kind is TokenKind.WORD and c.word() not in c.dialect.never_alias and c.foreign() is None
    if c.now.kind is TokenKind.NAME or plain:
        return c.bare_alias("a name")
    return None


def _fetch(c: Cursor) -> ast.Expr:
    """FETCH FIRST | NEXT n ROWS ONLY."""
    start = c.index
    c.expect("FETCH")
    if not (c.accept("FIRST") or c.accept("NEXT")):
        raise c.unexpected("FIRST or NEXT", "FIRST", "NEXT")
    one = c.word() in ("ROW", "ROWS")
    limit = ast.Literal(1, Scalar.INT, c.span(start)) if one else expression(c)
    if c.word() not in ("ROW", "ROWS"):
        raise c.unexpected("ROWS ONLY", "ROW", "ROWS")
    c.advance()
    c.expect("ONLY")
    return limit


# ----------------------------------------------------------------------- FROM


def _from(c: Cursor) -> rw.Relation:
    """A list of sources; a comma is a cross join."""
    start = c.index
    left = _joined(c)
    while c.at_symbol(","):
        comma = c.advance()
        right = _joined(c)
        left = rw.Join(left, right, "cross", None, (), False, False, True, c.span(start), c.span_of(comma))
    return left


def _joined(c: Cursor) -> rw.Relation:
    """Sources joined from left to right."""
    start = c.index
    left = _primary(c)
    joins = 0
    while True:
        how_start = c.index
        words = _how(c)
        if words is None:
            return left
        joins += 1
        c.taller(joins)
        how, natural, asof = words
        how_span = c.span(how_start)
        right = _primary(c)
        on: ast.Expr | None = None
        using: tuple[ast.Name, ...] = ()
        if c.accept("ON"):
            on = expression(c)
        elif c.accept("USING"):
            using = in_parentheses(c, _column)
        left = rw.Join(left, right, how, on, using, natural, asof, False, c.span(start), how_span)
        _check_condition(c, left)


def _check_condition(c: Cursor, join: rw.Join) -> None:
    """A join has a condition, in exactly one way."""
    given = join.on is not None or bool(join.using)
    if (join.natural or join.how == "cross") and given:
        kind = "NATURAL JOIN" if join.natural else "CROSS JOIN"
        hint = "leave the condition out, or write JOIN … ON a.x = b.x"
        raise c.error(f"{kind} takes no condition", join.how_span, hint)
    if not (given or join.natural or join.how == "cross"):
        if c.foreign():
            raise c.unexpected("ON")
        hint = "write ON a.x = b.x, USING (x), NATURAL JOIN or CROSS JOIN"
        raise c.error("the join has no condition", join.how_span, hint)


def _how(c: Cursor) -> tuple[rw.How, bool, bool] | None:
    """(kind, NATURAL, ASOF) of the words up to JOIN; None where no join follows."""
    start = c.index
    if c.accept("CROSS"):
        c.expect("JOIN")
        return "cross", False, False
    asof = c.at("ASOF") and c.ahead(1).value in ("JOIN", "LEFT", "RIGHT", "FULL", "INNER", "NATURAL")
    natural = c.at("NATURAL")
    if asof or natural:
        c.advance()
    if asof and c.at("NATURAL"):
        hint = "write ASOF JOIN … ON a.x = b.x AND a.t >= b.t"
        raise c.error_from(start, "an ASOF JOIN takes no NATURAL", hint)
    how: rw.How = "inner"
    match c.word():
        case "INNER":
            c.advance()
        case "LEFT" | "RIGHT" | "FULL" as word:
            kinds: dict[str, OneOf["left", "right", "full"]] = {"LEFT": "left", "RIGHT": "right", "FULL": "full"}
            how = kinds[word]
            c.advance()
            c.accept("OUTER")
        case "JOIN":
            pass
        case _ if c.index == start:
            return None
    if not c.accept("JOIN"):
        raise c.unexpected("JOIN", "JOIN", "LEFT", "RIGHT", "FULL", "INNER", "OUTER")
    if asof and how in ("right", "full"):
        hint = "write ASOF JOIN or ASOF LEFT JOIN; turn the tables round for the other side"
        raise c.error_from(start, f"there is no ASOF {how.upper()} JOIN", hint)
    return how, natural, asof


def _column(c: Cursor) -> ast.Name:
    start = c.index
    name = c.name("the name of a column")
    if c.at_symbol("."):
        raise c.error("USING takes column names that both sides have", c.now, f"write USING ({name}) or ON a.x = b.x")
    return ast.Name((name,), c.span(start))


def _primary(c: Cursor) -> rw.Relation:
    start = c.index
    lateral = c.accept("LATERAL")
    if c.at_symbol("("):
        opened = c.advance()
        if c.word() in QUERY_STARTS or (c.at_symbol("(") and _holds_query(c)):
            inner = query(c)
            c.close(opened, ")")
            alias, columns = _alias(c)
            return rw.Derived(inner, alias, columns, c.span(start), lateral)
        nested = _from(c)
        c.close(opened, ")", "a join or ')'")
        return nested
    name_start = c.index
    if c.now.kind is TokenKind.WORD and c.ahead(1).text == "(":
        call = expression(c, 9)  # a value without operators
        if not isinstance(call, ast.Call):
            raise c.error_from(name_start, "a source is a table, a sub-query or a table function")
        alias, columns = _alias(c)
        return rw.TableFunction(call, alias, columns, c.span(start))
    name = c.name("the name of a table, source or view")
    if c.accept_symbol("."):  # public.t
        name = c.name("the name of a table, source or view")
    name_span = c.span(name_start)
    as_of = _as_of(c)
    alias, columns = _alias(c)
    if as_of is None:
        as_of = _as_of(c)
    return rw.TableName(name, alias, columns, as_of, c.span(start), name_span)


def _holds_query(c: Cursor) -> bool:
    """Whether the parentheses here open on a query, and not on a join of one: `(SELECT 1) AS x JOIN …`."""
    n = 0
    while c.ahead(n).text == "(":
        n += 1
    if c.ahead(n).kind is not TokenKind.WORD or c.ahead(n).value not in QUERY_STARTS:
        return False
    depth = opened = n
    while depth and c.ahead(n).kind is not TokenKind.END:
        text = c.ahead(n).text
        depth += (text == "(") - (text == ")")
        n += 1
        if text == ")" and depth < opened and c.ahead(n).text != ")":
            return c.ahead(n).kind is TokenKind.WORD and c.ahead(n).value in QUERY_GOES_ON
    return True


def _alias(c: Cursor) -> tuple[str | None, tuple[str, ...]]:
    alias = c.label("a name") if c.accept("AS") else bare_alias(c)
    return alias, _column_names(c) if alias is not None else ()


def _column_names(c: Cursor) -> tuple[str, ...]:
    return in_parentheses(c, lambda c: c.label("a name")) if c.at_symbol("(") else ()


def _as_of(c: Cursor) -> rw.AsOf | None:
    """FOR SYSTEM_TIME AS OF PROCTIME() | NOW() [- interval] | 'time'."""
    start = c.index
    if not c.accept("FOR", "SYSTEM_TIME"):
        return None
    c.expect("AS", "OF")
    if c.now.kind is TokenKind.STRING:
        at = c.advance().value
        return rw.AsOf("at", c.span(start), at=at)
    if c.at("PROCTIME") or c.at("NOW"):
        proctime = c.advance().value == "PROCTIME"
        opened = c.expect_symbol("(")
        c.close(opened, ")")
        if c.accept_symbol("-"):
            back = interval(c, bare=True)
            if back.months:
                raise c.error("time travel takes days, hours, minutes or seconds", back.span)
            return rw.AsOf("now", c.span(start), back=back.ms)
        return rw.AsOf("proctime" if proctime else "now", c.span(start))
    raise c.unexpected("PROCTIME(), NOW() or a time in single quotes", "PROCTIME", "NOW")
