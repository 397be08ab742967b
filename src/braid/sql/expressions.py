"""The grammar of expressions.

In: a cursor at the first token. Out: the node, with the cursor behind it.
Rule: one loop climbs the precedences; levels from loose to tight: OR, AND, NOT, comparisons (never chained), ||, + -,
* / %, unary minus, then `->` and `[ ]`. Few Python frames per level, so that MAX_DEPTH levels fit the stack.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from braid.errors import SqlError
from braid.sql import ast
from braid.sql.constants import constant, literal
from braid.sql.cursor import Cursor
from braid.sql.tokens import Token, TokenKind
from braid.sql.types import sql_type
from braid.types import Scalar

OR, AND, NOT, COMPARE, CONCAT, ADD, MULTIPLY, UNARY = range(1, 9)

_SYMBOL_LEVELS = {
    **dict.fromkeys(("=", "!=", "<>", "<", "<=", ">", ">="), COMPARE),
    "||": CONCAT,
    **dict.fromkeys("+-", ADD),
    **dict.fromkeys("*/%", MULTIPLY),
}
_WORD_LEVELS = {"OR": OR, "AND": AND, **dict.fromkeys(("IS", "BETWEEN", "IN", "LIKE"), COMPARE)}

LONGEST = 10**9 * 86_400_000  # ms of a duration: a billion days; a time and some of them make no 64 bits full

WITH_WORDS = ("EXTRACT", "OVERLAY", "SUBSTRING", "TRIM")  # functions that SQL gives words in place of commas

T = TypeVar("T")


def comma_list(c: Cursor, rule: Callable[[Cursor], T]) -> tuple[T, ...]:
    """One or more, with commas between."""
    items = [rule(c)]
    while c.accept_symbol(","):
        items.append(rule(c))
    return tuple(items)


def in_parentheses(c: Cursor, rule: Callable[[Cursor], T]) -> tuple[T, ...]:
    """`(one [, more])`."""
    opened = c.expect_symbol("(")
    items = comma_list(c, rule)
    c.close(opened, ")", "',' or ')'")
    return items


def row(c: Cursor) -> tuple[ast.Expr, ...]:
    """A row of VALUES."""
    return in_parentheses(c, expression)


def plain_name(c: Cursor, expected: str) -> ast.Name:
    """A name of one part."""
    start = c.index
    name = c.name(expected)
    return ast.Name((name,), c.span(start))


def column_name(c: Cursor) -> ast.Name:
    return plain_name(c, "the name of a column")


def dotted(c: Cursor, expected: str) -> ast.Name:
    """`a.b.c`."""
    start, parts = c.index, [c.name(expected)]
    while c.accept_symbol("."):
        parts.append(c.name("a field name after '.'"))
        c.check_height(len(parts))
    return ast.Name(tuple(parts), c.span(start))


# ---------------------------------------------------------------- expressions


def expression(c: Cursor, floor: int = OR) -> ast.Expr:
    """An expression whose outer operators bind at least as tightly as `floor`."""
    start = c.index
    if (token := c.constant()) is not None:
        c.height = c.height or 1
        return constant(c, token, start)
    c.enter()
    beside, c.height = c.height, 0
    left: ast.Expr
    if c.at("NOT"):
        if floor > NOT:
            raise c.unexpected("a value", hint="put NOT ... in parentheses")
        c.advance()
        arg = expression(c, NOT)
        c.taller()
        left = ast.Unary("NOT", arg, c.span(start))
    elif c.at_symbol("-") or c.at_symbol("+"):
        op = c.symbol()
        if op == "-" and c.ahead(1).kind is TokenKind.NUMBER and c.ahead(2).text != "::":  # a cast binds tighter
            left = literal(c)
            c.height = 1
        else:
            c.advance()
            arg = expression(c, UNARY + 1)
            c.taller()
            left = ast.Unary(op, arg, c.span(start))
    else:
        left = primary(c)
    compared = False
    while (level := _level(c)) >= floor:
        if level == COMPARE:
            if compared and not (c.at("IS") and c.dialect.postgres):
                raise c.error("comparisons cannot be chained", c.now, "join them with AND, or use parentheses")
            compared = True
            left = _predicate(c, left, start)
        else:
            op = c.advance().value
            right = expression(c, level + 1)
            c.taller()
            left = ast.Binary(op, left, right, c.span(start))
    c.leave()
    c.height = max(beside, c.height)
    return left


def _level(c: Cursor) -> int:
    """How tightly the operator at the cursor binds; 0 where none stands."""
    token = c.now
    if token.kind is TokenKind.SYMBOL:
        return _SYMBOL_LEVELS.get(token.text, 0) or c.dialect.levels.get(token.text, 0)
    if token.kind is TokenKind.WORD:
        if token.value == "NOT" and c.ahead(1).kind is TokenKind.WORD:
            after = c.ahead(1).value
            return COMPARE if after in ("BETWEEN", "IN", "LIKE") or after in c.dialect.predicates else 0
        return _WORD_LEVELS.get(token.value, 0) or (COMPARE if token.value in c.dialect.predicates else 0)
    return 0


def _predicate(c: Cursor, left: ast.Expr, start: int) -> ast.Expr:
    """A comparison, IS, BETWEEN, IN or LIKE behind `left`."""
    negated = c.accept("NOT")
    own = c.dialect.predicates.get(c.word())
    if own is not None and (made := own(c, left, negated, start)) is not None:
        c.taller()
        return made
    if c.accept("IS"):
        return _is(c, left, start)
    if c.accept("BETWEEN"):
        low = expression(c, CONCAT)
        if not c.accept("AND"):
            raise c.unexpected("AND", "AND", hint="write x BETWEEN low AND high")
        high = expression(c, CONCAT)
        c.taller()
        return ast.Between(left, low, high, negated, c.span(start))
    if c.accept("IN"):
        opened = c.expect_symbol("(", "'(' and a list of values")
        if c.dialect.subquery is not None and c.word() in ("SELECT", "WITH", "VALUES"):
            inner = c.dialect.subquery(c)
            c.close(opened, ")")
            return ast.Subquery("in", inner, c.span(start), left, negated)
        if c.at_symbol(")"):
            raise c.unexpected("a value", hint="IN takes at least one: IN (1, 2)")
        items = comma_list(c, expression)
        c.close(opened, ")", "',' or ')'")
        c.taller()
        return ast.InList(left, items, negated, c.span(start))
    if c.accept("LIKE"):
        pattern = expression(c, CONCAT)
        c.taller()
        return ast.Like(left, pattern, escape_of(c), negated, c.span(start))
    op = c.advance().text
    right = expression(c, CONCAT)
    c.taller()
    return ast.Binary("!=" if op == "<>" else op, left, right, c.span(start))


def escape_of(c: Cursor) -> str | None:
    """`ESCAPE 'x'`; PostgreSQL knows an empty one, too: then nothing escapes."""
    if not c.accept("ESCAPE"):
        return None
    token = c.now
    escape = c.string("a string of one character after ESCAPE")
    if len(escape) != 1 and not (c.dialect.postgres and not escape):
        raise c.error("ESCAPE takes exactly one character", token)
    return escape


def _is(c: Cursor, left: ast.Expr, start: int) -> ast.Expr:
    negated = c.accept("NOT")
    if c.accept("NULL"):
        c.taller()
        return ast.IsNull(left, negated, c.span(start))
    if c.accept("DISTINCT"):
        c.expect("FROM")
        right = expression(c, CONCAT)
        distinct = ast.Binary("IS DISTINCT FROM", left, right, c.span(start))
        c.taller()
        if not negated:
            return distinct
        c.taller()
        return ast.Unary("NOT", distinct, c.span(start))
    hint = None
    if c.word() in ("TRUE", "FALSE"):
        hint = f"write {'<>' if negated else '='} {c.word()}"
    raise c.unexpected("NULL or DISTINCT FROM", "NULL", "DISTINCT", hint=hint)


def primary(c: Cursor) -> ast.Expr:
    """A value without operators around it, then `->field` and `[index]` behind it."""
    start, token = c.index, c.now
    expr: ast.Expr
    match token.kind:
        case TokenKind.NUMBER | TokenKind.STRING:
            expr = literal(c)
        case TokenKind.WORD if token.value in ("NULL", "TRUE", "FALSE"):
            expr = literal(c)
        case TokenKind.WORD if (own := c.dialect.primaries.get(token.value)) and (made := own(c)) is not None:
            expr = made
        case TokenKind.WORD if rule := _KEYWORDS.get((token.value, c.ahead(1).text)):
            expr = rule(c)
        case TokenKind.WORD if token.value == "CASE":
            expr = _case(c)
        case TokenKind.WORD if token.value in c.dialect.reserved:
            raise _reserved(c)
        case TokenKind.WORD if token.value in _TYPED_STRINGS and c.ahead(1).kind is TokenKind.STRING:
            expr = _typed_string(c)
        case TokenKind.WORD | TokenKind.NAME:
            called = c.ahead(1).text == "("
            expr = (c.dialect.call or plain_call)(c) if called else _named(c)
        case TokenKind.SYMBOL if token.text == "(":
            if _is_lambda(c):
                raise _no_lambda(c, token)
            c.advance()
            if c.dialect.subquery is not None and c.word() in ("SELECT", "WITH", "VALUES"):
                inner = c.dialect.subquery(c)
                c.close(token, ")")
                expr = ast.Subquery("scalar", inner, c.span(start))
            else:
                expr = expression(c)
                if c.dialect.postgres and c.at_symbol(","):
                    expr = _row(c, expr, start)
                c.close(token, ")", "an operator or ')'")
        case TokenKind.SYMBOL if token.text == "[" and c.dialect.paths:
            expr = _array(c)
        case TokenKind.SYMBOL if (own := c.dialect.primaries.get(token.text)) and (made := own(c)) is not None:
            expr = made
        case TokenKind.SYMBOL if token.text == "*":
            hint = "* is allowed alone or as x.* in SELECT, and in COUNT(*)"
            raise c.unexpected("an expression", hint=hint)
        case _:
            raise c.unexpected("an expression")
    c.height = c.height or 1
    return _followed(c, expr, start)


def _last(c: Cursor, start: int) -> ast.Expr:
    """What stands behind the colon of `x[1:2]`."""
    return ast.Literal(2**31 - 1, Scalar.INT, c.span(start)) if c.at_symbol("]") else expression(c)


def _followed(c: Cursor, expr: ast.Expr, start: int) -> ast.Expr:
    """A value with what stands behind it."""
    while True:
        if "->" not in c.dialect.levels and c.accept_symbol("->"):
            if c.at_symbol("*"):
                return _all_fields(c, expr, start)
            field = c.name("a field name after ->")
            c.taller()
            expr = ast.Arrow(expr, field, c.span(start))
        elif c.at_symbol("["):
            opened = c.advance()
            index = ast.Literal(1, Scalar.INT, c.span(start)) if c.at_symbol(":") else expression(c)
            last = _last(c, start) if c.accept_symbol(":") else None
            c.close(opened, "]")
            c.taller()
            expr = ast.Subscript(expr, index, c.span(start), last)
        elif c.dialect.paths and isinstance(expr, ast.Subscript | ast.Arrow) and c.accept_symbol("."):
            field = c.name("a field name after '.'")
            c.taller()
            expr = ast.Arrow(expr, field, c.span(start))
        elif c.dialect.suffix is not None and (longer := c.dialect.suffix(c, expr, start)) is not None:
            c.taller()
            expr = longer
        else:
            return expr


def _row(c: Cursor, first: ast.Expr, start: int) -> ast.Expr:
    """The rest of `(a, b)`."""
    items = [first]
    while c.accept_symbol(","):
        items.append(expression(c))
    c.taller()
    return ast.Call("ROW", tuple(items), c.span(start))


def _all_fields(c: Cursor, base: ast.Expr, start: int) -> ast.Expr:
    """`base->*`, which is a SELECT item of its own."""
    if start != c.item_start:
        raise c.error("->* is allowed only as an item of SELECT", c.now)
    c.advance()
    if not (c.at_symbol(",") or c.at("FROM") or c.at_end()):
        raise c.unexpected("',' or FROM after ->*", "FROM")
    c.taller()
    return ast.Arrow(base, "*", c.span(start))


def _named(c: Cursor) -> ast.Expr:
    """A column."""
    start = c.index
    name = c.name("an expression")
    if c.at_symbol("=>"):
        raise _no_lambda(c, c.ahead(-1))
    if not c.accept_symbol("."):
        return ast.Name((name,), c.span(start))
    if c.at_symbol("*"):
        raise c.error_from(start, f"{name}.* is allowed only as an item of SELECT")
    column = c.label("a column name after '.'") if c.dialect.postgres else c.name("a column name after '.'")
    if c.dialect.paths:
        return _path(c, start, [name, column])
    if c.at_symbol("."):
        hint = f"a column is column or source.column; a field of a structure is {name}.{column}->field"
        raise c.error("a name has at most two parts", c.now, hint)
    if c.at_symbol("("):
        raise c.error_from(start, "a function name has one part", f"write {column}(...)")
    return ast.Name((name, column), c.span(start))


def _path(c: Cursor, start: int, parts: list[str]) -> ast.Expr:
    """The rest of `a.b.c`."""
    while c.accept_symbol("."):
        if c.at_symbol("*"):
            raise c.error_from(start, f"{'.'.join(parts)}.* is allowed only as an item of SELECT")
        parts.append(c.name("a field name after '.'"))
        c.check_height(len(parts))
    if c.at_symbol("("):
        raise c.error_from(start, "a function name has one part", f"write {parts[-1]}(...)")
    return ast.Name(tuple(parts), c.span(start))


def _reserved(c: Cursor) -> SqlError:
    """A keyword stands where a value must."""
    token = c.now
    if token.value == "SELECT":
        return _subquery(c)
    hint = None
    if c.ahead(1).text.upper() in (",", ")", "=", ".", "AS", "FROM"):
        name = c.dialect.quoted(c.dialect.fold(token.text))
        hint = f"{token.value} is a reserved word; as a name it must be quoted: {name}"
    return c.unexpected("an expression", hint=hint)


def _subquery(c: Cursor) -> SqlError:
    hint = "CREATE STREAM or TABLE ... AS SELECT the inner query first, then JOIN it"
    return c.error("sub-queries in expressions are not supported", c.now, hint)


def plain_call(c: Cursor) -> ast.Expr:
    start = c.index
    if c.word() == "EXISTS" and c.ahead(2).text.upper() in ("SELECT", "WITH"):
        raise _subquery(c)
    name = c.name("a function").upper()
    opened = c.advance()
    args, distinct = arguments(c)
    if c.word() in ("FROM", "FOR") and name in WITH_WORDS:
        advice = c.dialect.foreign.get((name, "("), f"write {name}(value, …), with commas")
        raise c.error_from(start, f"{name}(… {c.word()} …) is not supported", advice)
    c.close(opened, ")", "',' or ')'")
    c.taller()
    return ast.Call(name, args, c.span(start), distinct)


def arguments(c: Cursor) -> tuple[tuple[ast.Expr, ...], bool]:
    """What stands in the parentheses of a call, and whether DISTINCT stands before it."""
    if c.at_symbol("*", ")"):
        c.advance()
        return (ast.Star((), c.span(c.index - 1)),), False
    if c.at_symbol(")"):
        return (), False
    distinct = c.accept("DISTINCT")
    if c.dialect.postgres and not distinct:
        c.accept("ALL")
    args: list[ast.Expr] = []
    while not args or c.accept_symbol(","):  # no `comma_list`: its frame, level by level, is too many
        args.append(_lambda(c) if c.dialect.lambdas and _is_lambda(c) else expression(c))
    return tuple(args), distinct


def _lambda(c: Cursor) -> ast.Expr:
    start = c.index
    if c.at_symbol("("):
        opened = c.advance()
        params = comma_list(c, lambda c: c.name("the name of an argument"))
        c.close(opened, ")", "',' or ')'")
    else:
        params = (c.name("the name of an argument"),)
    if len(set(params)) < len(params):
        raise c.error_from(start, "two arguments of a lambda function have one name")
    c.expect_symbol("=>")
    body = expression(c)
    c.taller()
    return ast.Lambda(params, body, c.span(start))


def _no_lambda(c: Cursor, token: Token) -> SqlError:
    if not c.dialect.lambdas:
        return c.error("lambda functions are not supported yet", token)
    return c.error("a lambda function is allowed only as an argument", token, "write TRANSFORM(a, x => x + 1)")


def _is_lambda(c: Cursor) -> bool:
    """Whether `x =>` or `(x, y) =>` stands here."""
    if not c.at_symbol("("):
        return c.ahead(1).text == "=>"
    n = 1
    while c.ahead(n).kind in (TokenKind.WORD, TokenKind.NAME) and c.ahead(n + 1).text == ",":
        n += 2
    return c.ahead(n + 1).text == ")" and c.ahead(n + 2).text == "=>"


def _case(c: Cursor) -> ast.Expr:
    start, opened = c.index, c.advance()
    operand: ast.Expr | None = None
    default: ast.Expr | None = None
    if not c.at("WHEN"):
        operand = expression(c)
    whens: list[tuple[ast.Expr, ast.Expr]] = []
    while not whens or c.at("WHEN"):
        c.expect("WHEN")
        when = expression(c)
        c.expect("THEN")
        whens.append((when, expression(c)))
    if c.accept("ELSE"):
        default = expression(c)
    if not c.accept("END"):
        span = c.source.span(opened.start, opened.end)
        hint = f"the CASE at line {span.line}, column {span.column} is not closed"
        words = ("END",) if default else ("WHEN", "ELSE", "END")
        raise c.unexpected("END" if default else "WHEN, ELSE or END", *words, hint=hint)
    c.taller()
    return ast.Case(operand, tuple(whens), default, c.span(start))


def _cast(c: Cursor) -> ast.Expr:
    start = c.index
    c.advance()
    opened = c.advance()
    arg = expression(c)
    c.taller()
    if not c.accept("AS"):
        raise c.unexpected("AS and a type", "AS", hint="write CAST(x AS TYPE)")
    to = sql_type(c)
    c.close(opened, ")")
    return ast.Cast(arg, to, c.span(start))


def _array(c: Cursor) -> ast.Expr:
    """`ARRAY[x, y]`, or `[x, y]`."""
    start = c.index
    c.accept("ARRAY")
    opened = c.advance()
    items: list[ast.Expr] = []
    while not c.at_symbol("]") and (not items or c.accept_symbol(",")):
        items.append(expression(c))
    c.close(opened, "]", "',' or ']'")
    c.taller()
    return ast.ArrayLiteral(tuple(items), c.span(start))


def _map(c: Cursor) -> ast.Expr:
    start = c.index
    c.advance()
    opened = c.advance()
    items: list[tuple[ast.Expr, ast.Expr]] = []
    while not (c.at_symbol(")") and not items):
        key = expression(c)
        c.expect_symbol(":=", "':=' between key and value")
        items.append((key, expression(c)))
        if not c.accept_symbol(","):
            break
    c.close(opened, ")", "',' or ')'")
    c.taller()
    return ast.MapLiteral(tuple(items), c.span(start))


def _struct(c: Cursor) -> ast.Expr:
    start = c.index
    c.advance()
    opened = c.advance()
    items: list[tuple[str, ast.Expr]] = []
    while not (c.at_symbol(")") and not items):
        name = c.name("a field name")
        c.expect_symbol(":=", "':=' between field and value")
        items.append((name, expression(c)))
        if not c.accept_symbol(","):
            break
    c.close(opened, ")", "',' or ')'")
    c.taller()
    return ast.StructLiteral(tuple(items), c.span(start))


def _typed_string(c: Cursor) -> ast.Expr:
    """`DATE '2020-01-01'`: a cast of the string, which must be one."""
    start = c.index
    to = c.dialect.types[c.advance().value]
    arg = literal(c)
    c.height = 2
    return ast.Cast(arg, to, c.span(start), typed=True)


_KEYWORDS: dict[tuple[str, str], Callable[[Cursor], ast.Expr]] = {
    ("CAST", "("): _cast,
    ("ARRAY", "["): _array,
    ("MAP", "("): _map,
    ("STRUCT", "("): _struct,
}
_TYPED_STRINGS = ("DATE", "TIME", "TIMESTAMP")
