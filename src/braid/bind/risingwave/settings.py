"""SET in RisingWave: what Braid reads of it, and what is accepted since scripts set it.

In: SET name = value. Out: new settings, or a refusal.
Rule: settings of how RisingWave runs (parallelism, backfill, delta joins) change no result, here or there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches

from braid.errors import SqlError
from braid.sql import ast

OURS = {
    "strict": ("true", "false"),
    "merged_columns": ("upstream", "postgres"),
    "joins_without_equality": ("refuse", "accept"),
}
_PREFIXES = ("streaming_", "rw_", "batch_", "background_", "backfill_", "source_", "sink_", "visibility_", "query_")
_OTHERS = ("timezone", "time_zone", "extra_float_digits", "application_name", "datestyle", "search_path",
           "client_encoding", "statement_timeout", "max_split_range_gap", "enable_join_ordering",
           "create_compaction_group_for_mv", "sqlsmith", "bypass_cluster_limits")  # fmt: skip
_WORDS = {"on": "true", "off": "false", "1": "true", "0": "false", "t": "true", "f": "false"}


@dataclass(frozen=True, slots=True)
class RisingwaveSettings:
    """`strict`: refuse what the documentation excludes. `postgres_order`: merged columns stand in PostgreSQL's order.
    `any_join`: views may join without an equality."""

    strict: bool = False
    postgres_order: bool = False
    any_join: bool = False


def changed(settings: RisingwaveSettings, s: ast.Set) -> RisingwaveSettings:
    """The settings after SET."""
    name = s.name.removeprefix("braid.")
    if name in OURS:
        value = s.value.strip().lower()
        value = _WORDS.get(value, value) if name == "strict" else value
        if value not in OURS[name]:
            raise SqlError(f"{name} cannot be {s.value}", s.span, f"one of {', '.join(OURS[name])}")
        match name:
            case "strict":
                return replace(settings, strict=value == "true")
            case "merged_columns":
                return replace(settings, postgres_order=value == "postgres")
            case _:
                return replace(settings, any_join=value == "accept")
    if s.name.startswith(_PREFIXES) or s.name in _OTHERS:
        return settings
    near = get_close_matches(name, OURS, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else f"Braid's settings are {', '.join(OURS)}"
    raise SqlError(f"unknown setting {s.name}", s.span, hint)


def value_of(settings: RisingwaveSettings, name: str) -> str:
    match name:
        case "strict":
            return str(settings.strict).lower()
        case "merged_columns":
            return "postgres" if settings.postgres_order else "upstream"
        case _:
            return "accept" if settings.any_join else "refuse"
