"""The grammar of SQLstream's calls: words between arguments, FLOOR(x TO HOUR), STEP(x BY INTERVAL '5' MINUTE), and
words that are values.

In: a cursor at the first token. Out: nodes of expressions.
Rule: forms with words between their arguments become calls with commas; a time that is rounded becomes a call of a name
that nobody can write (`ROUNDED`). What gives the present time is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from braid.expr import dates
from braid.sql import ast, calls
from braid.sql.cursor import Cursor
from braid.sql.dialects.sqlstream_windows import MS, UNITS, interval, over, step, time_unit
from braid.sql.expressions import CONCAT, escape_of, expression, plain_call
from braid.types import Scalar

DIFFERENCE = "DIFFERENCE IN"  # which nobody can write, as those of ROUNDED
ROUNDED = {"FLOOR": "FLOOR TO", "CEIL": "CEIL TO", "CEILING": "CEIL TO", "STEP": "STEP BY"}
MOST_UNITS = 1_000_000_000
NOW = ("CURRENT_TIMESTAMP", "CURRENT_DATE", "CURRENT_TIME", "CURRENT_ROW_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP")


def call(c: Cursor) -> ast.Expr:
    start, word = c.index, c.word()
    if word in ROUNDED:
        return _rounded(c, word)
    if word == "EXISTS" and c.ahead(2).value == "SELECT":
        return _exists(c, start)
    special = _SPECIAL.get(word)
    if special is None:
        return _behind(c, plain_call(c), start)
    c.advance()
    opened = c.advance()
    args = special(c)
    c.close(opened, ")", "',' or ')'")
    return ast.Call(word, args, c.span(start))


def _exists(c: Cursor, start: int) -> ast.Expr:
    c.advance()
    opened = c.advance()
    assert c.dialect.subquery is not None
    inner = c.dialect.subquery(c)
    c.close(opened, ")")
    return ast.Subquery("exists", inner, c.span(start))


def _behind(c: Cursor, made: ast.Expr, start: int) -> ast.Expr:
    """`[FROM FIRST | LAST] [IGNORE | RESPECT NULLS] OVER …`, behind a call."""
    assert isinstance(made, ast.Call)
    from_last, nulls = False, ""
    if c.at("FROM") and made.name == "NTH_VALUE" and c.ahead(1).value in ("FIRST", "LAST"):
        c.advance()
        from_last = c.advance().value == "LAST"
    if c.word() in ("IGNORE", "RESPECT") and c.ahead(1).value == "NULLS":
        nulls = c.advance().value
        c.advance()
    if not c.accept("OVER"):
        if nulls or from_last:
            raise c.unexpected("OVER", "OVER", hint=f"write {made.name}(…) {nulls} NULLS OVER (ROWS 5 PRECEDING)")
        return made
    window = over(c)
    c.taller()
    return ast.WindowCall(made, from_last, nulls == "IGNORE", window, c.span(start))


def _rounded(c: Cursor, word: str) -> ast.Expr:
    """FLOOR(x), or FLOOR(x TO HOUR); STEP(x BY INTERVAL '5' MINUTE)."""
    start = c.index
    c.advance()
    opened = c.advance()
    args: tuple[ast.Expr, ...] = (expression(c),) if not c.at_symbol(")") else ()
    name = word
    if args and word == "STEP":
        args, name = (*args, step(c)), ROUNDED[word]
    elif args and word != "STEP" and c.at("TO") and (parts := _parts(args[0])) is not None:
        args, name = _since(c, start, *parts), ROUNDED["STEP"]
    elif args and c.accept("TO"):
        at = c.index
        args, name = (*args, ast.Literal(time_unit(c), Scalar.VARCHAR, c.span(at))), ROUNDED[word]
    while args and name == word and c.accept_symbol(","):
        args = (*args, expression(c))
    c.close(opened, ")", "TO and a unit, or ')'")
    c.taller()
    return ast.Call(name, args, c.span(start))


def _parts(e: ast.Expr) -> tuple[ast.Call, int] | None:
    """`(x - y) SECOND / 10` in its parts."""
    match e:
        case ast.Call(name=name) if name == DIFFERENCE:
            return e, 1
        case ast.Binary(op="/", left=ast.Call(name=name) as of, right=ast.Literal(value=int(count))) if (
            name == DIFFERENCE
        ):
            return of, count
    return None


def _since(c: Cursor, start: int, difference: ast.Call, count: int) -> tuple[ast.Expr, ...]:
    """FLOOR((x - TIMESTAMP '1970-01-01 00:00:00') SECOND / 10 TO SECOND): what STEP(x BY INTERVAL '10' SECOND) groups
    by; the arguments of that."""
    at = c.index
    c.expect("TO")
    to = time_unit(c)
    time, other, of = difference.args
    assert isinstance(of, ast.Literal)
    unit, since = str(of.value), None
    if not 0 < count <= MOST_UNITS:
        raise c.error_from(start, f"{count} is no number of {unit}S", "write a whole number above 0")
    match other:
        case ast.Cast(arg=ast.Literal(value=str(origin)), type=Scalar.TIMESTAMP):
            since = dates.plain_timestamp(origin.replace(" ", "T"))
    step_ms = count * MS.get(unit, 0)
    if since is None or to != unit or not step_ms or _ms(since) % step_ms:
        hint = f"write STEP(s.ROWTIME BY INTERVAL '{count}' {unit})"
        raise c.error_from(start, "this period is not supported", hint)
    return time, ast.Interval(0, step_ms, c.span(at))


def _ms(time: datetime) -> int:
    return (time - datetime(1970, 1, 1)) // timedelta(milliseconds=1)


def _trim(c: Cursor) -> tuple[ast.Expr, ...]:
    """The text, the character, and the side if that is named; TRIM(LEADING FROM x) takes blanks away."""
    start = c.index
    side, args = calls.trim(c, commas=False)
    if side is None:
        return args
    blank = ast.Literal(" ", Scalar.VARCHAR, c.span(start))
    return (*args, *(() if len(args) == 2 else (blank,)), ast.Literal(side, Scalar.VARCHAR, c.span(start)))


def _now(c: Cursor) -> ast.Expr | None:
    """The present time, which no column is called without quotes."""
    if c.ahead(1).text == ".":
        return None
    message = f"{c.now.text} is the present time: a batch that is run again would give other rows"
    raise c.error(message, c.now, "write ROWTIME, the time of the row")


_SPECIAL: Mapping[str, Callable[[Cursor], tuple[ast.Expr, ...]]] = {
    "EXTRACT": calls.extract,
    "POSITION": calls.position,
    "SUBSTRING": lambda c: calls.mixed(c, "FROM", "FOR"),
    "OVERLAY": lambda c: calls.mixed(c, "PLACING", "FROM", "FOR"),
    "TRIM": _trim,
}
PRIMARIES: Mapping[str, Callable[[Cursor], ast.Expr | None]] = {"INTERVAL": interval, **dict.fromkeys(NOW, _now)}


def _similar(c: Cursor, left: ast.Expr, negated: bool, start: int) -> ast.Expr:
    """`x [NOT] SIMILAR TO pattern [ESCAPE 'c']`."""
    c.expect("SIMILAR", "TO")
    pattern, at = expression(c, CONCAT), c.index
    escape = escape_of(c)
    more = () if escape is None else (ast.Literal(escape, Scalar.VARCHAR, c.span(at)),)
    made: ast.Expr = ast.Call("SIMILAR TO", (left, pattern, *more), c.span(start))
    return ast.Unary("NOT", made, made.span) if negated else made


PREDICATES = {"SIMILAR": _similar}


def suffix(c: Cursor, e: ast.Expr, start: int) -> ast.Expr | None:
    """`(t1 - t2) SECOND`."""
    if not isinstance(e, ast.Binary) or e.op != "-" or c.word() not in UNITS or c.ahead(-1).text != ")":
        return None
    at = c.index
    unit = ast.Literal(time_unit(c), Scalar.VARCHAR, c.span(at))
    return ast.Call(DIFFERENCE, (e.left, e.right, unit), c.span(start))
