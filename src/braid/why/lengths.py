"""Lengths of time, as a dialect writes them.

In: milliseconds, the name of a dialect. Out: text that it reads.
Rule: exact, in the largest unit of which it is a whole number; a dialect whose lengths have fractions writes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from braid.expr.show import duration

UNITS = (("DAY", 86_400_000), ("HOUR", 3_600_000), ("MINUTE", 60_000), ("SECOND", 1000), ("MILLISECOND", 1))
_LETTERS = {"DAY": "d", "HOUR": "h", "MINUTE": "m", "SECOND": "s", "MILLISECOND": "ms"}


def unit_of(ms: int) -> tuple[str, int]:
    """The largest unit of which a length is a whole number, and its milliseconds."""
    if not ms:
        return UNITS[-2]
    return next((name, size) for name, size in UNITS if ms % size == 0)


def _counted(ms: int) -> str:
    name, size = unit_of(ms)
    return f"{ms // size} {name}{'S' * (ms != size)}"


def _lettered(ms: int) -> str:
    name, size = unit_of(ms)
    return f"{ms // size}{_LETTERS[name]}"


def _amount(ms: int) -> tuple[str, str]:
    """A number, maybe with a fraction, and its unit."""
    name, size = unit_of(ms)
    if name != "MILLISECOND":
        return str(ms // size), name
    return f"{ms // 1000}.{ms % 1000:03}".rstrip("0"), "SECOND"


def _quoted(ms: int) -> str:
    number, name = _amount(ms)
    return f"INTERVAL '{number} {name.lower()}{'s' * (number != '1')}'"


def _interval(ms: int) -> str:
    number, name = _amount(ms)
    return f"INTERVAL '{number}' {name}"


_WRITTEN: Mapping[str, Callable[[int], str]] = {
    "ksqldb": _counted,
    "lenses": _lettered,
    "risingwave": _quoted,
    "sqlstream": _interval,
}


def written(ms: int, dialect: str) -> str:
    """As the dialect has it; a long one that has no large unit also as people say it."""
    text = exact(ms, dialect)
    long = 10_000 if dialect in ("ksqldb", "lenses") else 60_000  # which count milliseconds
    return f"{text} ({spoken(ms)})" if ms >= long and ms % 1000 else text


def exact(ms: int, dialect: str) -> str:
    """As the dialect has it."""
    return _WRITTEN[dialect](ms)


def spoken(ms: int) -> str:
    """To the millisecond, as people say it."""
    if ms < 60_000 or ms % 60_000 == 0:
        return duration(ms)
    hours, rest = divmod(ms, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    seconds = f"{rest // 1000}.{rest % 1000:03}".rstrip("0").rstrip(".")
    return f"{f'{hours} h ' if hours else ''}{minutes} min {seconds} s"
