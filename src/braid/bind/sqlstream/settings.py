"""SQLstream's own settings: the current schema, and the two policies that its documents leave open.

In: a name and a value as written. Out: new `SqlstreamSettings`.
Rule: a setting decides at `bind` and is spelled out in the plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal, get_args

from braid.errors import SqlError

Emission = Literal["arrival", "expiry", "istream"]
OnOff = Literal["on", "off"]

OUTER, EMPTY = "braid.outer.emission", "braid.empty.buckets"
ALLOWED: dict[str, tuple[str, ...]] = {OUTER: get_args(Emission), EMPTY: get_args(OnOff)}


@dataclass(frozen=True, slots=True)
class SqlstreamSettings:
    """`emission`: when an outer join gives a row without a partner: as it arrives without one, when it leaves its
    window without one, or whenever it is without one. `empty_buckets`: does a report by hour (or step) also give the
    hours in which nothing came."""

    schema: str | None = None
    emission: Emission = "arrival"
    empty_buckets: OnOff = "on"


def changed(settings: SqlstreamSettings, name: str, value: str | None) -> SqlstreamSettings:
    """The settings after SET 'name' = 'value'; None is UNSET: the default again."""
    key = name.lower()
    if key not in ALLOWED:
        near = get_close_matches(key, ALLOWED, n=1, cutoff=0.5)
        hint = f"did you mean '{near[0]}'?" if near else f"settings are {', '.join(ALLOWED)}"
        raise SqlError(f"unknown setting '{name}'", hint=hint)
    default = SqlstreamSettings()
    word: Any = None if value is None else value.strip().lower()
    if word is not None and word not in ALLOWED[key]:
        raise SqlError(f"{key} cannot be '{value}'", hint=f"one of {', '.join(map(repr, ALLOWED[key]))}")
    if key == OUTER:
        return replace(settings, emission=word or default.emission)
    return replace(settings, empty_buckets=word or default.empty_buckets)


def listed(settings: SqlstreamSettings) -> list[tuple[Any, ...]]:
    """(name, value, possible values) of each setting, for SHOW PROPERTIES."""
    values = {OUTER: settings.emission, EMPTY: settings.empty_buckets}
    return [(name, values[name], ", ".join(ALLOWED[name])) for name in ALLOWED]
