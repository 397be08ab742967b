"""The grammar of RisingWave's queries: WITH, SELECT, VALUES, UNION, joins, sub-queries, ORDER BY.

In: a cursor at SELECT, WITH, VALUES or `(`. Out: a `Query`.
Rule: PostgreSQL's, with ASOF JOIN, FOR SYSTEM_TIME AS OF and EMIT ON WINDOW CLOSE. Words that the joins are made of
(JOIN, ON, USING, NATURAL …) are reserved; `stream`, `version`, `value`, `id`, `price` are names.
"""

from __future__ import annotations

from dataclasses import replace

from braid.errors import Span
from braid.sql import ast
from braid.sql.cursor import Cursor
from braid.sql.dialects.base import Condition
from braid.sql.dialects.risingwave_calls import QUERY_STARTS, grouping, window
from braid.sql.dialects.risingwave_values import interval, length
from braid.sql.expressions import column_name, comma_list, dotted, expression, in_parentheses, row
from braid.sql.queries import HOWS, order_items, relation, star
from braid.sql.tokens import TokenKind
from braid.sql.windows import CALLS
from braid.types import Scalar

QUERY_GOES_ON = ("UNION", "INTERSECT", "EXCEPT", "ORDER", "LIMIT", "OFFSET", "FETCH")


def query(c: Cursor) -> ast.Query:
    """A query up to the first token that cannot belong to it."""
    c.enter()
    start = c.index
    ctes: tuple[ast.With, ...] = ()
    if c.accept("WITH"):
        if c.at("RECURSIVE"):
            raise c.error("WITH RECURSIVE is not supported yet", c.now, "write the steps as joins")
        ctes = comma_list(c, _cte)
    body = _set_operations(c)
    order_by: tuple[ast.OrderItem, ...] = ()
    limit = offset = None
    emit: Span | None = None
    ties: Span | None = None
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
            limit, ties = _fetch(c)
        elif c.at("EMIT") and c.foreign():
            raise c.unexpected("the end of the query")
        elif c.accept("EMIT"):
            c.expect("ON", "WINDOW", "CLOSE")
            emit = c.span(first)
        else:
            break
    c.leave()
    return ast.Query(ctes, body, order_by, limit, offset, emit, c.span(start), ties)


def _cte(c: Cursor) -> ast.With:
    start = c.index
    name = c.name("the name of a query")
    columns = _column_names(c)
    c.expect("AS")
    if not c.accept("MATERIALIZED"):
        c.accept("NOT", "MATERIALIZED")
    opened = c.expect_symbol("(", "'(' and a query")
    inner = query(c)
    c.close(opened, ")")
    return ast.With(name, columns, inner, c.span(start))


def _set_operations(c: Cursor, tight: bool = False) -> ast.Body:
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
        named: tuple[ast.Name, ...] | None = None
        if c.accept("CORRESPONDING"):
            named = in_parentheses(c, column_name) if c.accept("BY") else ()
        right = _body(c) if tight else _set_operations(c, tight=True)
        left = ast.SetOperation(op, all_, left, right, c.span(start), named)
    for _ in range(levels):
        c.leave()
    return left


def _body(c: Cursor) -> ast.Body:
    start = c.index
    if c.at_symbol("("):
        opened = c.advance()
        inner = query(c)
        c.close(opened, ")")
        plain = not (inner.ctes or inner.order_by or inner.limit or inner.offset or inner.emit)
        return inner.body if plain else inner
    if c.accept("VALUES"):
        rows = comma_list(c, row)
        return ast.Values(rows, c.span(start))
    if not c.at("SELECT"):
        raise c.unexpected("SELECT or VALUES", *QUERY_STARTS)
    return _select(c)


def _select(c: Cursor) -> ast.Select:
    start = c.index
    c.expect("SELECT")
    distinct: tuple[ast.Expr, ...] | None = None
    if c.accept("DISTINCT"):
        distinct = in_parentheses(c, expression) if c.accept("ON") else ()
    else:
        c.accept("ALL")
    items = comma_list(c, item)
    source = relation(c) if c.accept("FROM") else None
    where = expression(c) if c.accept("WHERE") else None
    group_by: tuple[ast.Expr, ...] = ()
    if c.accept("GROUP"):
        c.expect("BY")
        group_by = comma_list(c, grouping)
    having = expression(c) if c.accept("HAVING") else None
    windows = comma_list(c, _window) if c.accept("WINDOW") else ()
    return ast.Select(
        items, source, c.span(start), distinct=distinct, where=where, group_by=group_by, having=having, windows=windows
    )


def _window(c: Cursor) -> tuple[str, ast.Over]:
    name = c.name("the name of a window")
    c.expect("AS")
    return name, window(c)


def item(c: Cursor) -> ast.SelectItem:
    """An item of SELECT or RETURNING."""
    start = c.index
    if (all_of := star(c, "the name of a table")) is not None:
        if c.at("EXCEPT") and c.ahead(1).text == "(":
            c.advance()
            all_of = replace(all_of, without=in_parentheses(c, lambda c: dotted(c, "the name of a column")))
        return ast.SelectItem(all_of, None, c.span(start))
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


def _fetch(c: Cursor) -> tuple[ast.Expr, Span | None]:
    """FETCH FIRST | NEXT n ROWS ONLY | WITH TIES."""
    start = c.index
    c.expect("FETCH")
    if not (c.accept("FIRST") or c.accept("NEXT")):
        raise c.unexpected("FIRST or NEXT", "FIRST", "NEXT")
    one = c.word() in ("ROW", "ROWS")
    limit = ast.Literal(1, Scalar.INT, c.span(start)) if one else expression(c)
    if c.word() not in ("ROW", "ROWS"):
        raise c.unexpected("ROWS ONLY", "ROW", "ROWS")
    c.advance()
    if c.accept("ONLY"):
        return limit, None
    ties = c.index
    if not c.accept("WITH"):
        raise c.unexpected("ONLY or WITH TIES", "ONLY", "WITH TIES")
    c.expect("TIES")
    return limit, c.span(ties)


# ----------------------------------------------------------------------- FROM


def condition(c: Cursor, how: ast.How, mark: str, how_span: Span) -> Condition:
    """ON or USING, in exactly one way, where the kind of join takes one."""
    on = expression(c) if c.accept("ON") else None
    using = in_parentheses(c, _column) if on is None and c.accept("USING") else ()
    free = mark == "NATURAL" or how == "cross"
    if free and (on or using):
        kind = "NATURAL JOIN" if mark == "NATURAL" else "CROSS JOIN"
        hint = "leave the condition out, or write JOIN … ON a.x = b.x"
        raise c.error(f"{kind} takes no condition", how_span, hint)
    if not (on or using or free):
        if c.foreign():
            raise c.unexpected("ON")
        hint = "write ON a.x = b.x, USING (x), NATURAL JOIN or CROSS JOIN"
        raise c.error("the join has no condition", how_span, hint)
    return on, using, None


def join(c: Cursor) -> tuple[ast.How, str] | None:
    """The words up to JOIN."""
    start = c.index
    if c.accept("CROSS"):
        c.expect("JOIN")
        return "cross", ""
    asof = c.at("ASOF") and c.ahead(1).value in ("JOIN", "LEFT", "RIGHT", "FULL", "INNER", "NATURAL")
    mark = c.advance().value if asof or c.at("NATURAL") else ""
    if asof and c.at("NATURAL"):
        hint = "write ASOF JOIN … ON a.x = b.x AND a.t >= b.t"
        raise c.error_from(start, "an ASOF JOIN takes no NATURAL", hint)
    how: ast.How = "inner"
    match c.word():
        case "INNER":
            c.advance()
        case "LEFT" | "RIGHT" | "FULL" as word:
            how = HOWS[word]
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
    return how, mark


def _column(c: Cursor) -> ast.Name:
    name = column_name(c)
    if c.at_symbol("."):
        raise c.error("USING takes column names that both sides have", c.now, f"write USING ({name}) or ON a.x = b.x")
    return name


def source(c: Cursor) -> ast.Relation:
    """A table, a sub-query, a table function, or joins in parentheses."""
    start = c.index
    lateral = c.accept("LATERAL")
    if c.at_symbol("("):
        opened = c.advance()
        if c.word() in QUERY_STARTS or (c.at_symbol("(") and _holds_query(c)):
            inner = query(c)
            c.close(opened, ")")
            alias, columns = _alias(c)
            return ast.Derived(inner, alias, c.span(start), columns, lateral=lateral)
        nested = relation(c)
        c.close(opened, ")", "a join or ')'")
        return nested
    name_start = c.index
    if c.now.kind is TokenKind.WORD and c.ahead(1).text == "(":
        call = expression(c, 9)  # a value without operators
        if not isinstance(call, ast.Call):
            raise c.error_from(name_start, "a source is a table, a sub-query or a table function")
        if call.name in CALLS:
            call = replace(call, args=(*call.args[:2], *(length(c, x, name_start) for x in call.args[2:])))
        ordinality = c.accept("WITH", "ORDINALITY")
        alias, columns = _alias(c)
        return ast.TableFunction(call, alias, c.span(start), columns, ordinality)
    name = relation_name(c, "the name of a table, source or view")
    as_of = _as_of(c)
    alias, columns = _alias(c)
    if as_of is None:
        as_of = _as_of(c)
    return ast.Table(name, alias, c.span(start), columns, as_of=as_of)


def relation_name(c: Cursor, expected: str) -> ast.Name:
    """`t`, `schema.t`."""
    start = c.index
    name = dotted(c, expected)
    if len(name.parts) > 2:
        raise c.error_from(start, "a relation of another database is not supported", "write schema.name, or the name")
    return name


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


def _as_of(c: Cursor) -> ast.AsOf | None:
    """FOR SYSTEM_TIME AS OF PROCTIME() | NOW() [- interval] | 'time'."""
    start = c.index
    if not c.accept("FOR", "SYSTEM_TIME"):
        return None
    c.expect("AS", "OF")
    if c.now.kind is TokenKind.STRING:
        at = c.advance().value
        return ast.AsOf("at", c.span(start), at=at)
    if c.at("PROCTIME") or c.at("NOW"):
        proctime = c.advance().value == "PROCTIME"
        opened = c.expect_symbol("(")
        c.close(opened, ")")
        if c.accept_symbol("-"):
            back = interval(c, bare=True)
            if back.months:
                raise c.error("time travel takes days, hours, minutes or seconds", back.span)
            return ast.AsOf("now", c.span(start), back=back.ms)
        return ast.AsOf("proctime" if proctime else "now", c.span(start))
    raise c.unexpected("PROCTIME(), NOW() or a time in single quotes", "PROCTIME", "NOW")
