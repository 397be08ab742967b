"""What SET changes in Lenses SQL.

In: a name and a value as written. Out: new settings, and a notice where a name has no effect here.
Rule: ONE ROW per setting; an unknown one of ours is an error, one of Lenses' or Kafka's that changes nothing is told.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from braid.errors import SqlError

UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class LensesSettings:
    """`autocreate`: a target that does not exist is made. `partitions`: of such targets; `of_topics`: the same by name.
    `grace` and `retention` in ms (`retention` None: for ever). `outer`: when an unmatched row goes out padded.
    `outer_table`: what `stream OUTER JOIN table` does. `bare`: what a field that is not grouped does in GROUP BY.
    `names`: how a path without AS is named. `pushdown`: do filters go below joins."""

    autocreate: str = "false"
    partitions: int | None = None
    of_topics: tuple[tuple[str, int], ...] = ()
    grace: int = 0
    retention: int | None = None
    outer: str = "deferred"
    outer_table: str = "reject"
    bare: str = "latest"
    names: str = "last"
    pushdown: str = "on"

    def partitions_of(self, topic: str) -> int | None:
        return dict(self.of_topics).get(topic, self.partitions)


@dataclass(frozen=True, slots=True)
class Setting:
    """`read` gives the value, or None where the text is none; `takes` says what it takes."""

    field: str
    read: Callable[[str], Any]
    takes: str


def _one_of(*words: str) -> Callable[[str], str | None]:
    return lambda text: text.lower() if text.lower() in words else None


def _duration(text: str) -> int | None:
    m = re.fullmatch(r"(\d{1,15})\s*(ms|s|m|h|d)", text.strip().lower())
    return int(m[1]) * UNITS[m[2]] if m else None


def _count(text: str) -> int | None:
    return int(text) if text.isdigit() and 0 < int(text) <= 10_000 else None


def _retention(text: str) -> int | None:
    return -1 if text.lower() == "unlimited" else _duration(text)


SETTINGS: dict[str, Setting] = {
    "defaults.topic.autocreate": Setting("autocreate", _one_of("true", "false"), "true, false"),
    "defaults.topic.partitions": Setting("partitions", _count, "a number of partitions"),
    "braid.lenses.grace": Setting("grace", _duration, "a duration such as 5s"),
    "braid.lenses.retention": Setting("retention", _retention, "a duration such as 1d, or unlimited"),
    "braid.lenses.outer": Setting("outer", _one_of("deferred", "eager"), "deferred, eager"),
    "braid.lenses.outer.table": Setting("outer_table", _one_of("reject", "left"), "reject, left"),
    "braid.lenses.bare": Setting("bare", _one_of("latest", "reject"), "latest, reject"),
    "braid.lenses.names": Setting("names", _one_of("last", "text"), "last, text"),
    "braid.lenses.pushdown": Setting("pushdown", _one_of("on", "off"), "on, off"),
}


def changed(settings: LensesSettings, name: str, value: str) -> tuple[LensesSettings, str | None]:
    """The settings after SET name=value, with a notice if it changes nothing."""
    topic = re.fullmatch(r"topic\.(.+)\.partitions", name)
    if topic is not None:
        count = _read(name, Setting("", _count, "a number of partitions"), value)
        others = tuple(x for x in settings.of_topics if x[0] != topic[1])
        return replace(settings, of_topics=(*others, (topic[1], count))), None
    setting = SETTINGS.get(name.lower())
    if setting is not None:
        found = _read(name, setting, value)
        value_of: dict[str, Any] = {setting.field: None if found == -1 else found}
        return replace(settings, **value_of), None
    _check_known(name)
    return settings, f"{name} is a setting of Lenses or Kafka and changes nothing here"


def shown(settings: LensesSettings) -> list[tuple[str, str, str]]:
    """Name, value and what it takes, for SHOW PROPERTIES."""
    return [(name, _text(getattr(settings, s.field), name), s.takes) for name, s in SETTINGS.items()]


def _text(value: Any, name: str) -> str:
    if value is None:
        return "unlimited" if name.endswith("retention") else "as the first source"
    return f"{value}ms" if SETTINGS[name].read in (_duration, _retention) else str(value)


def _read(name: str, setting: Setting, value: str) -> Any:
    found = setting.read(value)
    if found is None:
        raise SqlError(f"{name} cannot be {value}", hint=f"it takes: {setting.takes}")
    return found


def _check_known(name: str) -> None:
    near = get_close_matches(name.lower(), SETTINGS, n=1, cutoff=0.6)
    if name.lower().startswith("braid"):
        hint = f"did you mean {near[0]}?" if near else f"settings are {', '.join(SETTINGS)}"
        raise SqlError(f"unknown setting {name}", hint=hint)
    if get_close_matches(name.lower(), SETTINGS, n=1, cutoff=0.9):
        raise SqlError(f"unknown setting {name}", hint=f"did you mean {near[0]}?")
