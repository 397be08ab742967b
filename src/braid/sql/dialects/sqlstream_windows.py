"""SQLstream's windows and intervals.

In: a cursor at INTERVAL, or at the window behind OVER or AS. Out: an `Interval`, a window or its name.
Rule: what a window may not be (without end, ahead of its row, turned round) is refused here, since it can be seen in
the text alone.
"""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise
from typing import get_args

from braid.sql import ast
from braid.sql.cursor import Cursor
from braid.sql.expressions import comma_list, expression
from braid.sql.tokens import Token, TokenKind

UNITS: tuple[ast.TimeUnit, ...] = get_args(ast.TimeUnit)
MS = {"DAY": 86_400_000, "HOUR": 3_600_000, "MINUTE": 60_000, "SECOND": 1000}
_LESS_THAN = {"MONTH": 12, "HOUR": 24, "MINUTE": 60, "SECOND": 60}  # of a field that is not the first
_BETWEEN = {("YEAR", "MONTH"): "-", ("DAY", "HOUR"): " ", ("HOUR", "MINUTE"): ":", ("MINUTE", "SECOND"): ":"}
_SHAPES = {"-": r"\s*-\s*", " ": r"\s+", ":": r"\s*:\s*"}
_LONGEST_MS = 10_000 * 366 * 86_400_000  # ten thousand years
_EXAMPLE = "OVER (RANGE INTERVAL '1' MINUTE PRECEDING)"

# ------------------------------------------------------------------ intervals


def interval(c: Cursor) -> ast.Interval:
    """`INTERVAL 'v' unit [(precision)] [TO unit [(precision)]]`."""
    start = c.index
    c.expect("INTERVAL")
    if c.at_symbol("-") or c.at_symbol("+"):
        raise c.error("an interval cannot have a sign", c.now, "write INTERVAL '1' MINUTE")
    if c.now.kind is TokenKind.NUMBER:
        hint = f"write INTERVAL '{c.now.text}' {c.ahead(1).text.upper() or 'MINUTE'}"
        raise c.error("the value of an interval is written in quotes", c.now, hint)
    value = c.now
    text = c.string("the value of the interval in quotes", "write INTERVAL '1' MINUTE")
    first = time_unit(c)
    leading, fraction = _precision(c, first)
    last = first
    if c.accept("TO"):
        at = c.now
        last = time_unit(c)
        _check_units(c, first, last, at)
        more, fraction_after = _precision(c, last)
        if last != "SECOND":
            leading = more if leading is None else leading
        else:
            fraction = more if more is not None else fraction_after
    months, ms = _amount(c, text, value, first, last, leading, fraction)
    return ast.Interval(months, ms, c.span(start))


def time_unit(c: Cursor) -> ast.TimeUnit:
    for unit in UNITS:
        if c.accept(unit):
            return unit
    raise c.unexpected("the unit of the interval", *UNITS, hint=f"units are {', '.join(UNITS)}")


def _precision(c: Cursor, unit: ast.TimeUnit) -> tuple[int | None, int | None]:
    """`(p)`, behind SECOND also `(p, s)`: digits of the first field, digits of the fraction."""
    if not c.at_symbol("("):
        return None, None
    opened = c.advance()
    digits = _whole(c, "a number of digits")
    fraction = _whole(c, "a number of digits") if unit == "SECOND" and c.accept_symbol(",") else None
    c.close(opened, ")")
    return digits, fraction


def _check_units(c: Cursor, first: ast.TimeUnit, last: ast.TimeUnit, at: Token) -> None:
    if (first in ("YEAR", "MONTH")) != (last in ("YEAR", "MONTH")):
        message = f"an interval cannot mix {first} with {last}"
        hint = "months have no fixed length: write YEAR TO MONTH, or units from DAY to SECOND"
        raise c.error(message, at, hint)
    if UNITS.index(last) <= UNITS.index(first):
        right = f"{last} TO {first}" if first != last else first
        raise c.error(f"{first} TO {last} is in the wrong order", at, f"the larger unit comes first: {right}")


def _amount(
    c: Cursor, text: str, at: Token, first: ast.TimeUnit, last: ast.TimeUnit, leading: int | None, fraction: int | None
) -> tuple[int, int]:
    """(months, ms) of the written value."""
    units = UNITS[UNITS.index(first) : UNITS.index(last) + 1]
    example = _example(units)
    if text.strip().startswith("-"):
        raise c.error("an interval cannot be negative", at, f"write INTERVAL '{example}' {_named(units)}")
    pattern = r"\s*(\d+)"
    for before, unit in pairwise(units):
        pattern += _SHAPES[_BETWEEN[before, unit]] + r"(\d+)"
    pattern += r"(?:\.(\d*))?\s*" if last == "SECOND" else r"()\s*"
    found = re.fullmatch(pattern, text)
    if found is None:
        raise c.error(f"'{text}' is not an interval {_named(units)}", at, f"write it as '{example}'")
    *fields, parts = found.groups()
    parts = parts or ""
    for unit, field in zip(units[1:], fields[1:], strict=True):
        if int(field) >= _LESS_THAN[unit]:
            raise c.error(f"{field} is no number of {unit}S behind {first}", at, f"it is below {_LESS_THAN[unit]}")
    if leading is not None and len(fields[0].lstrip("0")) > leading:
        raise c.error(f"'{fields[0]}' has more than {leading} digits", at, f"leave ({leading}) out")
    if fraction is not None and len(parts.rstrip("0")) > fraction:
        raise c.error(f"'.{parts}' has more than {fraction} digits", at, f"write SECOND({len(parts)})")
    if first in ("YEAR", "MONTH"):
        months = sum(int(f) * (12 if u == "YEAR" else 1) for u, f in zip(units, fields, strict=True))
        if months > 120_000:
            raise c.error("the interval is too long", at, "the longest has 10000 years")
        return months, 0
    exact = sum((Fraction(int(f) * MS[u]) for u, f in zip(units, fields, strict=True)), Fraction(0))
    exact += Fraction(int(parts or "0"), 10 ** len(parts)) * 1000
    if exact.denominator != 1:
        raise c.error(f"'{text}' is not a whole number of milliseconds", at, "rowtimes are milliseconds")
    if exact > _LONGEST_MS:
        raise c.error("the interval is too long", at, "the longest has 10000 years")
    return 0, int(exact)


def _example(units: tuple[ast.TimeUnit, ...]) -> str:
    made = "1"
    for before, unit in pairwise(units):
        made += _BETWEEN[before, unit] + ("30" if unit in ("MINUTE", "SECOND") else "6")
    return made


def _named(units: tuple[ast.TimeUnit, ...]) -> str:
    return units[0] if len(units) == 1 else f"{units[0]} TO {units[-1]}"


# -------------------------------------------------------------------- windows


def staggered(c: Cursor) -> tuple[tuple[ast.Expr, ...], ast.Interval]:
    """`WINDOWED BY STAGGER (PARTITION BY … RANGE INTERVAL …)`: of what rows are grouped by, and how long."""
    c.expect("WINDOWED", "BY", "STAGGER")
    opened = c.expect_symbol("(", "'(' and PARTITION BY")
    c.expect("PARTITION", "BY")
    partition = comma_list(c, expression)
    c.expect("RANGE")
    length = interval(c)
    if length.months or not length.ms:
        what = "a window that staggers has a fixed length" if length.months else "a window of no length"
        raise c.error(what, length.span, "write RANGE INTERVAL '1' MINUTE")
    c.close(opened, ")")
    if c.at("GROUP"):
        hint = "put what is grouped by into its PARTITION BY"
        raise c.error("WINDOWED BY STAGGER takes no GROUP BY", c.now, hint)
    return partition, length


def over(c: Cursor) -> ast.RangeWindow | ast.RowsWindow | ast.Name:
    """What stands behind OVER: `w`, `WINDOW w` or `(…)`."""
    start = c.index
    if c.at_symbol("("):
        return window(c)
    if (c.at("RANGE") or c.at("ROWS")) and c.ahead(1).text.upper() in ("INTERVAL", "BETWEEN", "CURRENT", "UNBOUNDED"):
        raise c.error(f"the window {c.now.text} … is written in parentheses", c.now, f"write {_EXAMPLE}")
    if c.at("WINDOW") and c.ahead(1).kind in (TokenKind.WORD, TokenKind.NAME):
        c.advance()
    name = c.name("the name of a window, or '('")
    return ast.Name((name,), c.span(start))


def window(c: Cursor) -> ast.RangeWindow | ast.RowsWindow:
    """`([PARTITION BY …] [ORDER BY key] RANGE … | ROWS …)`."""
    start = c.index
    opened = c.expect_symbol("(", "'(' and a window")
    partition: tuple[ast.Expr, ...] = ()
    if c.accept("PARTITION"):
        c.expect("BY")
        partition = comma_list(c, expression)
    order = _order(c) if c.accept("ORDER", "BY") else None
    found: ast.RangeWindow | ast.RowsWindow
    if c.at("RANGE"):
        c.advance()
        lower, upper = _range(c)
        c.close(opened, ")")
        found = ast.RangeWindow(order, lower, upper, c.span(start), partition)
    elif c.at("ROWS"):
        at = c.now
        c.advance()
        if order is not None and order.kind != "ROWTIME":
            message = f"ORDER BY {order.kind}(…) goes with RANGE, not with ROWS"
            raise c.error(message, order.span, "write RANGE CURRENT ROW, or leave ORDER BY out")
        fewest, most = _rows(c, at)
        c.close(opened, ")")
        found = ast.RowsWindow(fewest, most, c.span(start), partition)
    elif c.at_symbol(")"):
        raise c.error("a window needs RANGE or ROWS", c.now, f"write {_EXAMPLE}")
    else:
        raise c.unexpected("RANGE or ROWS", "RANGE", "ROWS", "ORDER", "PARTITION", hint=f"write {_EXAMPLE}")
    return found


def _order(c: Cursor) -> ast.OrderKey:
    """ROWTIME or a function of it that never falls; ASC may be written."""
    start = c.index
    key = _order_key(c)
    if c.at("DESC"):
        raise c.error("a window runs along ROWTIME, not against it", c.now, "leave DESC out")
    c.accept("ASC")
    if c.at_symbol(","):
        raise c.error("a window has one ORDER BY key", c.now, "keep ROWTIME, or FLOOR, CEIL or STEP of it")
    return ast.OrderKey(key.kind, key.unit, key.step, c.span(start), key.time)


def _order_key(c: Cursor) -> ast.OrderKey:
    start = c.index
    kind = next((k for k in ("FLOOR", "CEIL", "STEP") if c.at(k) and c.ahead(1).text == "("), None)
    if kind is None:
        time = _rowtime(c)
        return ast.OrderKey("ROWTIME", None, None, c.span(start), time)
    c.advance()
    opened = c.advance()
    time = _rowtime(c)
    to: ast.TimeUnit | None = None
    by: ast.Interval | None = None
    if kind == "STEP":
        by = step(c)
    else:
        c.expect("TO")
        to = time_unit(c)
    c.close(opened, ")")
    return ast.OrderKey(kind, to, by, c.span(start), time)


def step(c: Cursor) -> ast.Interval:
    """`BY INTERVAL …`, behind what is rounded."""
    if not c.accept("BY"):
        raise c.unexpected("BY", "BY", hint="write STEP(ROWTIME BY INTERVAL '5' MINUTE)")
    by = interval(c)
    if by.months:
        hint = "write FLOOR(ROWTIME TO MONTH) or FLOOR(ROWTIME TO YEAR)"
        raise c.error("STEP takes an interval of DAY to SECOND", by.span, hint)
    if by.ms == 0:
        raise c.error("a step of no length", by.span, "write STEP(ROWTIME BY INTERVAL '5' MINUTE)")
    return by


def _rowtime(c: Cursor) -> ast.Name | None:
    """ROWTIME (None), or that of a stream."""
    start = c.index
    if c.at("ROWTIME") and c.ahead(1).text != ".":
        c.advance()
        return None
    if c.now.kind in (TokenKind.WORD, TokenKind.NAME) and c.ahead(1).text == "." and _is_rowtime(c.ahead(2)):
        stream = c.name("the name of a stream")
        c.advance()
        c.advance()
        return ast.Name((stream, "ROWTIME"), c.span(start))
    hint = "order by ROWTIME, FLOOR or CEIL(ROWTIME TO HOUR), or STEP(ROWTIME BY INTERVAL '5' MINUTE)"
    raise c.error("a window is ordered by ROWTIME or a function of it that never falls", c.now, hint)


def _is_rowtime(t: Token) -> bool:
    return t.kind is TokenKind.WORD and t.text.upper() == "ROWTIME"


def _range(c: Cursor) -> tuple[ast.Interval | None, ast.Interval | None]:
    """(lower, upper) of RANGE; None is CURRENT ROW."""
    if not c.accept("BETWEEN"):
        return _range_bound(c), None
    at = c.now
    lower = _range_bound(c, needs_preceding=False)
    c.expect("AND")
    upper = _range_bound(c)
    if upper is None:
        return lower, upper
    if lower is not None and (lower.months > 0) != (upper.months > 0) and (upper.months or upper.ms):
        hint = "give both bounds in months or years, or both in days to seconds"
        raise c.error("the bounds of a window cannot mix months with a fixed time", upper.span, hint)
    if lower is None or (lower.months, lower.ms) < (upper.months, upper.ms):
        raise c.error("the window is turned round: its lower bound is the earlier one", at, "swap the bounds")
    return lower, upper


def _range_bound(c: Cursor, needs_preceding: bool = True) -> ast.Interval | None:
    """`INTERVAL … PRECEDING` or CURRENT ROW; in a lower bound PRECEDING may be left out."""
    _finite(c)
    if c.accept("CURRENT"):
        c.expect("ROW")
        return None
    if c.now.kind is TokenKind.NUMBER:
        hint = f"write RANGE INTERVAL '{c.now.text}' SECOND PRECEDING, or ROWS {c.now.text} PRECEDING"
        raise c.error("RANGE takes an interval", c.now, hint)
    if not c.at("INTERVAL"):
        raise c.unexpected("INTERVAL or CURRENT ROW", "INTERVAL", "CURRENT", hint=f"write {_EXAMPLE}")
    found = interval(c)
    _not_following(c)
    if not c.accept("PRECEDING") and needs_preceding:
        raise c.unexpected("PRECEDING", "PRECEDING", hint=f"write {_EXAMPLE}")
    return found


def _rows(c: Cursor, at: Token) -> tuple[int, int]:
    """(lower, upper) of ROWS."""
    if c.at_symbol(")"):
        raise c.error("ROWS needs a number of rows", at, "write ROWS 5 PRECEDING or ROWS CURRENT ROW")
    if not c.accept("BETWEEN"):
        return _rows_bound(c), 0
    at = c.now
    lower = _rows_bound(c)
    c.expect("AND")
    if c.at_symbol(")"):
        raise c.error("the window has no upper bound", c.now, "write AND CURRENT ROW or AND 1 PRECEDING")
    upper = _rows_bound(c)
    if lower < upper:
        message = "the window is turned round: its lower bound is the earlier one"
        raise c.error(message, at, f"write BETWEEN {upper} PRECEDING AND {lower or 'CURRENT ROW'}")
    return lower, upper


def _rows_bound(c: Cursor) -> int:
    _finite(c)
    if c.accept("CURRENT"):
        c.expect("ROW")
        return 0
    if c.at_symbol("-"):
        raise c.error("a number of rows cannot be negative", c.now, "write ROWS 5 PRECEDING")
    if c.at("INTERVAL"):
        raise c.error("ROWS takes a number of rows", c.now, "write RANGE INTERVAL … PRECEDING")
    found = _whole(c, "a number of rows")
    _not_following(c)
    if not c.accept("PRECEDING"):
        raise c.unexpected("PRECEDING", "PRECEDING")
    return found


def _finite(c: Cursor) -> None:
    if c.at("UNBOUNDED"):
        raise c.error("a window has an end", c.now, f"write {_EXAMPLE}, or a longer interval")


def _not_following(c: Cursor) -> None:
    if c.at("FOLLOWING"):
        hint = "write PRECEDING: in a join the window of the other stream says how long its rows wait for this one"
        raise c.error("a window cannot reach ahead", c.now, hint)


def _whole(c: Cursor, what: str) -> int:
    text = c.now.text
    if c.now.kind is not TokenKind.NUMBER:
        raise c.unexpected(what)
    if not text.isdigit() or len(text) > 9:
        raise c.error(f"{text} is not {what}", c.now, "write a whole number")
    return int(c.advance().text)
