"""What SET changes: how null keys, late rows and result keys are treated, and how strict the dialect is.

In: a key and a value as written. Out: a new `Settings`, and a notice where a key has no effect here.
Rule: a setting decides at `bind` and is spelled out in the plan; an unknown key of ours is an error, never ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Literal, get_args

from braid.bind.lenses.settings import LensesSettings
from braid.bind.risingwave.settings import RisingwaveSettings
from braid.bind.sqlstream.settings import SqlstreamSettings
from braid.errors import SqlError

NullKey = Literal["drop", "pad"]
KeyColumn = Literal["join", "value"]
Late = Literal["lookup", "discard"]
Strictness = Literal["default", "native", "strict"]

ALLOWED: dict[str, tuple[str, ...]] = {
    "braid.null.key": get_args(NullKey),
    "braid.key.column": get_args(KeyColumn),
    "braid.late": get_args(Late),
    "braid.mode": get_args(Strictness),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """`null_key`: are outer rows without a join key dropped or padded. `key_column`: does a projected join column show
    the join key or its own value. `late`: do rows too late to be stored still look up. `mode`: `native` accepts more
    where the meaning is clear, `strict` refuses what only early releases allowed. `sqlstream`, `lenses`,
    `risingwave`: those dialects' own."""

    null_key: NullKey = "drop"
    key_column: KeyColumn = "join"
    late: Late = "lookup"
    mode: Strictness = "default"
    sqlstream: SqlstreamSettings = field(default_factory=SqlstreamSettings, repr=False)
    lenses: LensesSettings = field(default_factory=LensesSettings, repr=False)
    risingwave: RisingwaveSettings = field(default_factory=RisingwaveSettings, repr=False)


def changed(settings: Settings, name: str, value: str) -> tuple[Settings, str | None]:
    """The settings after SET 'name'='value', with a notice if it changes nothing."""
    _check_key(name)
    if name not in ALLOWED:
        return settings, f"{name} is a setting of another system and changes nothing here"
    word: Any = value.strip().lower()  # checked below against the words that the field takes
    match name:
        case "braid.null.key":
            if word in get_args(NullKey):
                return replace(settings, null_key=word), None
        case "braid.key.column":
            if word in get_args(KeyColumn):
                return replace(settings, key_column=word), None
        case "braid.late":
            if word in get_args(Late):
                return replace(settings, late=word), None
        case "braid.mode":
            if word in get_args(Strictness):
                return replace(settings, mode=word), None
    raise SqlError(f"{name} cannot be '{value}'", hint=f"one of {', '.join(repr(v) for v in ALLOWED[name])}")


def unset(settings: Settings, name: str) -> tuple[Settings, str | None]:
    """The settings after UNSET 'name': the default again."""
    _check_key(name)
    default = Settings()
    match name:
        case "braid.null.key":
            return replace(settings, null_key=default.null_key), None
        case "braid.key.column":
            return replace(settings, key_column=default.key_column), None
        case "braid.late":
            return replace(settings, late=default.late), None
        case "braid.mode":
            return replace(settings, mode=default.mode), None
        case _:
            return settings, f"{name} is a setting of another system and changes nothing here"


def value_of(settings: Settings, name: str) -> str:
    match name:
        case "braid.null.key":
            return settings.null_key
        case "braid.key.column":
            return settings.key_column
        case "braid.late":
            return settings.late
        case "braid.mode":
            return settings.mode
    raise SqlError(f"unknown setting '{name}'", hint=f"one of {', '.join(ALLOWED)}")


def _check_key(name: str) -> None:
    """Ours, or of the source system: scripts set theirs, and none of them changes what a query means here."""
    if name in ALLOWED:
        return
    near = get_close_matches(name.lower(), ALLOWED, n=1, cutoff=0.5)
    if name.lower().startswith("braid"):
        hint = f"did you mean '{near[0]}'?" if near else f"settings are {', '.join(ALLOWED)}"
        raise SqlError(f"unknown setting '{name}'", hint=hint)
    if get_close_matches(name.lower(), ALLOWED, n=1, cutoff=0.85):
        raise SqlError(f"unknown setting '{name}'", hint=f"did you mean '{near[0]}'?")
