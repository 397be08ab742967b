"""Time zones as PostgreSQL names them.

In: the name of a zone, and moments as microseconds. Out: a `Zone` and its offsets, in seconds east of Greenwich.
Rule: a name is an abbreviation of PostgreSQL's, one of the tz database (in any case), or a POSIX one such as `UTC+3`,
whose sign is west; `displacement` reads ISO's `+03`, whose sign is east. A local time that the clocks skip has the
offset before, one that comes twice the offset after.
"""

from __future__ import annotations

import re
import zoneinfo
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from braid.expr.postgres.calendar import SECOND, day_number

# Minutes east. PostgreSQL has 150 more, of which some have moved in time.
_ABBREVIATIONS = {
    **dict.fromkeys(("utc", "gmt", "ut", "uct", "z", "zulu", "wet"), 0),
    **dict.fromkeys(("bst", "cet", "met", "mez"), 60),
    **dict.fromkeys(("cest", "mest", "mesz", "eet", "sast", "ist"), 120),
    **dict.fromkeys(("eest", "eat"), 180),
    **dict.fromkeys(("hkt", "awst", "cct"), 480),
    **dict.fromkeys(("jst", "kst"), 540),
    **dict.fromkeys(("est", "cdt"), -300), **dict.fromkeys(("cst", "mdt"), -360),
    **dict.fromkeys(("mst", "pdt"), -420), **dict.fromkeys(("pst", "akdt"), -480),
    "edt": -240, "ast": -240, "adt": -180, "nst": -210, "ndt": -150, "akst": -540, "hst": -600, "acst": 570,
    "aest": 600, "acdt": 630, "aedt": 660, "nzst": 720, "nzdt": 780,
}  # fmt: skip
_POSIX = re.compile(r"(?:[^0-9,+\-<]*|<[A-Za-z0-9+-]+>)([+-]?)([0-9]{1,3})(?::([0-9]{1,2})(?::([0-9]{1,2}))?)?")
_DISPLACEMENT = re.compile(r"([+-])([0-9]+)(?::([0-9]+)(?::([0-9]+))?)?")
_START = datetime(1970, 1, 1)
_CYCLE = 146_097 * 86_400  # after so many seconds the calendar is the same again
_FIRST, _STEADY = (day_number(year, 1, 1) * 86_400 for year in (2, 2100))


@dataclass(frozen=True, slots=True)
class Zone:
    """A zone of the tz database, or a fixed offset in seconds east."""

    name: str | None
    east: int = 0

    def offset(self, us: int) -> int:
        """At a moment."""
        if self.name is None:
            return self.east
        at = _near(us).replace(tzinfo=zoneinfo.ZoneInfo("UTC"))
        return _seconds(at.astimezone(zoneinfo.ZoneInfo(self.name)))

    def offset_of_local(self, us: int) -> int:
        """At a local time."""
        if self.name is None:
            return self.east
        at = _near(us).replace(tzinfo=zoneinfo.ZoneInfo(self.name))
        return min(_seconds(at), _seconds(at.replace(fold=1)))

    def local(self, us: int) -> int:
        return us + self.offset(us) * SECOND

    def moment(self, local: int) -> int:
        return local - self.offset_of_local(local) * SECOND


def _near(us: int) -> datetime:
    """The same moment, or one within the years of Python at which clocks are the same."""
    seconds = max(us // SECOND, _FIRST)
    if seconds > _STEADY:
        seconds = _STEADY + (seconds - _STEADY) % _CYCLE
    return _START + timedelta(seconds=seconds)


def _seconds(at: datetime) -> int:
    offset = at.utcoffset()
    assert offset is not None
    return offset.days * 86_400 + offset.seconds


@lru_cache(maxsize=1)
def _names() -> dict[str, str]:
    return {name.lower(): name for name in zoneinfo.available_timezones()}


def abbreviation(word: str) -> Zone | None:
    """The zone that a short name in small letters is."""
    minutes = _ABBREVIATIONS.get(word)
    return None if minutes is None else Zone(None, minutes * 60)


@lru_cache(maxsize=1000)
def named(text: str) -> Zone | None:
    """The zone of the tz database, or of POSIX, that has this name."""
    if text.lower() in _names():
        return Zone(_names()[text.lower()])
    found = _POSIX.fullmatch(text)
    if found is None:
        return None
    hours, minutes, seconds = (int(g or 0) for g in found.groups()[1:])
    if hours > 167 or minutes > 59 or seconds > 60:
        return None
    west = (hours * 60 + minutes) * 60 + seconds
    return Zone(None, west if found[1] == "-" else -west)


def zone(text: str) -> Zone:
    """The zone of AT TIME ZONE, and of the last argument of functions."""
    found = abbreviation(text.lower()) or named(text)
    if found is None:
        raise ValueError(f'time zone "{text}" not recognized')
    return found


def displacement(text: str) -> int | None:
    """`+02`, `-0530`, `+05:30`, `+05:30:15` in seconds east; None where it is none."""
    found = _DISPLACEMENT.fullmatch(text)
    if found is None:
        return None
    hours, minutes, seconds = (int(g or 0) for g in found.groups()[1:])
    if found[3] is None and len(text) > 3:
        hours, minutes = divmod(hours, 100)
    if hours > 15 or minutes > 59 or seconds > 59:
        raise ValueError(f'time zone displacement out of range: "{text}"')
    return (-1 if found[1] == "-" else 1) * ((hours * 60 + minutes) * 60 + seconds)
