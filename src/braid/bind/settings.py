"""What SET changes: a row for each setting of each dialect.

In: a name and a value as written. Out: new `Settings`, and a notice where a name has no effect here.
Rule: ONE ROW a setting. It decides at `bind` and is spelled out in the plan. An unknown one of ours is an error, never
ignored; one of the system that the SQL comes from changes no result, here or there: scripts set it, and that is told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Literal, get_args

from braid.errors import SqlError
from braid.expr.aggregates import MOST
from braid.guess import meant
from braid.records.formats.named import FORMATS, named_in

NullKey = Literal["drop", "pad"]
KeyColumn = Literal["join", "value"]
Late = Literal["lookup", "discard"]
Strictness = Literal["default", "native", "strict"]
Emission = Literal["arrival", "expiry", "istream"]
OnOff = Literal["on", "off"]
KEY_FORMATS = named_in("ksqldb")
VALUE_FORMATS = tuple(f for f in KEY_FORMATS if FORMATS[f].of_values)
Reset = Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class SqlstreamSettings:
    """`emission`: when an outer join gives a row without a partner: as it arrives without one, when it leaves its
    window without one, or whenever it is without one. `empty_buckets`: does a report by hour (or step) also give the
    hours in which nothing came. Its documents leave both open."""

    schema: str | None = None
    emission: Emission = "arrival"
    empty_buckets: OnOff = "on"


@dataclass(frozen=True, slots=True)
class LensesSettings:
    """`autocreate`: a target that does not exist is made. `partitions`: of such targets; `of_topics`: the same by name.
    `grace` and `retention` in ms (`retention` None: for ever). `outer`: when an unmatched row goes out padded.
    `outer_table`: what `stream OUTER JOIN table` does. `bare`: what a field that is not grouped does in GROUP BY.
    `names`: how a path without AS is named. `pushdown`: do filters go below joins. `begin`: as of `Settings`."""

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
    begin: Reset = "earliest"

    def partitions_of(self, topic: str) -> int | None:
        return dict(self.of_topics).get(topic, self.partitions)


@dataclass(frozen=True, slots=True)
class RisingwaveSettings:
    """`strict`: refuse what the documentation excludes. `postgres_order`: merged columns stand in PostgreSQL's order.
    `any_join`: views may join without an equality. `search_path`: the schemas in which names without one are looked
    for. `fixed`: settings that have one value here, since others would change results."""

    strict: bool = False
    postgres_order: bool = False
    any_join: bool = False
    search_path: tuple[str, ...] = ('"$user"', "public")
    fixed: bool = True


@dataclass(frozen=True, slots=True)
class Settings:
    """`null_key`: are outer rows without a join key dropped or padded. `key_column`: does a projected join column show
    the join key or its own value. `late`: do rows too late to be stored still look up. `mode`: `native` accepts more
    where the meaning is clear, `strict` refuses what only early releases allowed. `wrap`: is a value of one column a
    record. `key_format`, `value_format`: of declarations that name none (null: each names one). `begin`: where queries
    begin to read. `collect_list`, `collect_set`: how many values these aggregates keep. `assert_topic`,
    `assert_schema`: how long ASSERT waits, in ms. `scans`: may a pull query look at all rows of a table. `why`: is
    it kept with a query's checkpoint what each row came of (in all dialects). `sqlstream`, `lenses`, `risingwave`:
    those dialects' own."""

    null_key: NullKey = "drop"
    key_column: KeyColumn = "join"
    late: Late = "lookup"
    mode: Strictness = "default"
    wrap: bool = field(default=True, repr=False)
    key_format: str = field(default="KAFKA", repr=False)
    value_format: str | None = field(default=None, repr=False)
    begin: Reset = field(default="earliest", repr=False)
    collect_list: int = field(default=1000, repr=False)
    collect_set: int = field(default=1000, repr=False)
    assert_topic: int = field(default=1000, repr=False)
    assert_schema: int = field(default=1000, repr=False)
    scans: bool = field(default=True, repr=False)
    why: OnOff = field(default="on", repr=False)
    sqlstream: SqlstreamSettings = field(default_factory=SqlstreamSettings, repr=False)
    lenses: LensesSettings = field(default_factory=LensesSettings, repr=False)
    risingwave: RisingwaveSettings = field(default_factory=RisingwaveSettings, repr=False)


# ------------------------------------------------------------------- the table

FOR_EVER = -1
UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
ON_OFF = {"on": "true", "off": "false", "1": "true", "0": "false", "t": "true", "f": "false"}


@dataclass(frozen=True, slots=True)
class Setting:
    """`read` gives the value, or None where the text is none; `takes` says what it takes; `show` writes a value."""

    field: str
    takes: tuple[str, ...]
    read: Callable[[str], Any]
    show: Callable[[Any], str] = str


def _one_of(field: str, *words: str) -> Setting:
    return Setting(field, words, lambda text: word if (word := text.strip().lower()) in words else None)


def _format(field: str, *words: str) -> Setting:
    read = lambda text: word if (word := text.strip().upper()) in words else None  # noqa: E731
    return Setting(field, words, read, lambda value: value or "none")


def _bare(field: str, *words: str) -> Setting:
    return Setting(field, words, lambda text: text.lower() if text.lower() in words else None)


def _flag(field: str, *words: str, yes: str, also: Mapping[str, str] | None = None) -> Setting:
    def read(text: str) -> bool | None:
        word = text.strip().lower()
        word = (also or {}).get(word, word)
        return word == yes if word in words else None

    return Setting(field, words, read)


def _only(*words: str, instead: str = "") -> Setting:
    """A setting that can have one value."""
    known = {w.lower() for w in words}
    return Setting("fixed", (words[0] + instead,), lambda text: text.strip().lower() in known or None)


def _path(text: str) -> tuple[str, ...] | None:
    """Schemas with commas between them; names without quotes are folded."""
    names = (name.strip() for name in text.split(","))
    return tuple(n if n == '"$user"' else n[1:-1] if n[:1] == n[-1:] == '"' else n.lower() for n in names if n) or None


def _yes_or_no(field: str) -> Setting:
    values = {"true": True, "false": False}
    return Setting(field, tuple(values), lambda text: values.get(text.strip().lower()), lambda on: str(on).lower())


def _duration(text: str) -> int | None:
    m = re.fullmatch(r"(\d{1,15})\s*(ms|s|m|h|d)", text.strip().lower())
    return int(m[1]) * UNITS[m[2]] if m else None


def _retention(text: str) -> int | None:
    return FOR_EVER if text.lower() == "unlimited" else _duration(text)


def _count(text: str) -> int | None:
    return int(text) if text.isdigit() and 0 < int(text) <= 10_000 else None


def _values(text: str) -> int | None:
    """How many values an aggregate keeps; a negative number: as many as there may be."""
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", text.strip()):
        return None
    return MOST if int(text) < 0 else min(int(text), MOST)


def _milliseconds(text: str) -> int | None:
    return int(text) if text.isdigit() and int(text) <= 86_400_000 else None


OF_ALL = {"braid.why": _one_of("why", *get_args(OnOff))}  # of the dialects: fields of `Settings` itself

_ZONES = " (for the time of another zone write t AT TIME ZONE 'Asia/Tokyo')"
PARTITIONS = Setting("partitions", ("a number of partitions",), _count, lambda n: str(n or "as the first source"))

SETTINGS: dict[str, dict[str, Setting]] = {
    "ksqldb": {
        "braid.null.key": _one_of("null_key", *get_args(NullKey)),
        "braid.key.column": _one_of("key_column", *get_args(KeyColumn)),
        "braid.late": _one_of("late", *get_args(Late)),
        "braid.mode": _one_of("mode", *get_args(Strictness)),
        "ksql.persistence.wrap.single.values": _yes_or_no("wrap"),
        "ksql.query.pull.table.scan.enabled": _yes_or_no("scans"),
        "ksql.persistence.default.format.key": _format("key_format", *KEY_FORMATS),
        "ksql.persistence.default.format.value": _format("value_format", *VALUE_FORMATS),
        "auto.offset.reset": _one_of("begin", *get_args(Reset)),
        "ksql.functions.collect_list.limit": Setting("collect_list", ("a number of values",), _values),
        "ksql.functions.collect_set.limit": Setting("collect_set", ("a number of values",), _values),
        "ksql.assert.topic.default.timeout.ms": Setting("assert_topic", ("milliseconds",), _milliseconds),
        "ksql.assert.schema.default.timeout.ms": Setting("assert_schema", ("milliseconds",), _milliseconds),
    },
    "sqlstream": {
        "braid.outer.emission": _one_of("emission", *get_args(Emission)),
        "braid.empty.buckets": _one_of("empty_buckets", *get_args(OnOff)),
    },
    "risingwave": {
        "strict": _flag("strict", "true", "false", yes="true", also=ON_OFF),
        "merged_columns": _flag("postgres_order", "upstream", "postgres", yes="postgres"),
        "joins_without_equality": _flag("any_join", "refuse", "accept", yes="accept"),
        "search_path": Setting("search_path", ("names of schemas",), _path, ", ".join),
        "timezone": _only("UTC", "etc/utc", "gmt", "etc/gmt", instead=_ZONES),
        "batch_expr_strict_mode": _only("true", "on", "1", "t"),
        "bytea_output": _only("hex", instead=" (for a text write encode(b, 'escape'))"),
        "query_epoch": _only("0", instead=" (write FOR SYSTEM_TIME AS OF now() - '5' second)"),
        "standard_conforming_strings": _only("on", "true", "1", "t"),
    },
    "lenses": {
        "defaults.topic.autocreate": _bare("autocreate", "true", "false"),
        "defaults.topic.partitions": PARTITIONS,
        "braid.lenses.grace": Setting("grace", ("a duration such as 5s",), _duration, "{}ms".format),
        "braid.lenses.retention": Setting(
            "retention", ("a duration such as 1d, or unlimited",), _retention,
            lambda ms: "unlimited" if ms is None else f"{ms}ms",
        ),
        "braid.lenses.outer": _bare("outer", "deferred", "eager"),
        "braid.lenses.outer.table": _bare("outer_table", "reject", "left"),
        "braid.lenses.bare": _bare("bare", "latest", "reject"),
        "braid.lenses.names": _bare("names", "last", "text"),
        "braid.lenses.pushdown": _bare("pushdown", "on", "off"),
        "auto.offset.reset": _bare("begin", *get_args(Reset)),
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Manner:
    """How a dialect names settings, and what it makes of names that are not in the table. `row`: a name as the table
    has it. `sure`: another system's name that is so alike is a mistake (None: every unknown one is). `others`: whose
    the rest may be; `accepted`: taken without a word."""

    row: Callable[[str], str]
    sure: float | None = None
    others: str = ""
    accepted: frozenset[str] = frozenset()
    quote: str = ""
    takes: str = "one of "
    known: str = "settings are "

    def quoted(self, word: str) -> str:
        return f"{self.quote}{word}{self.quote}"


# What RisingWave lets a session set and changes no result: how a query is run, how a client is called.
_RISINGWAVE = frozenset({
    "allow_drop_cascade", "application_name", "backfill_rate_limit", "background_ddl", "batch_enable_distributed_dml",
    "batch_enable_lookup_join", "batch_enable_sort_agg", "batch_parallelism", "bypass_cluster_limits",
    "cdc_source_wait_streaming_start_timeout", "client_encoding", "client_min_messages",
    "create_compaction_group_for_mv", "datestyle", "dml_rate_limit", "enable_index_selection",
    "enable_join_ordering", "enable_locality_backfill", "enable_share_plan", "enable_two_phase_agg",
    "extra_float_digits", "force_split_distinct_agg", "force_two_phase_agg", "iceberg_engine_connection",
    "idle_in_transaction_session_timeout", "implicit_flush", "intervalstyle", "lock_timeout",
    "max_split_range_gap", "query_mode", "row_security", "server_encoding", "sink_decouple", "sink_rate_limit",
    "source_rate_limit", "statement_timeout", "streaming_enable_bushy_join", "streaming_enable_delta_join",
    "streaming_enable_unaligned_join", "streaming_force_filter_inside_join", "streaming_join_encoding",
    "streaming_join_encoding_optimized_for",
    "streaming_max_parallelism", "streaming_over_window_cache_policy", "streaming_parallelism",
    "streaming_parallelism_for_backfill", "streaming_parallelism_for_index",
    "streaming_parallelism_for_materialized_view", "streaming_parallelism_for_sink",
    "streaming_parallelism_for_source", "streaming_parallelism_for_table", "streaming_parallelism_strategy",
    "streaming_separate_consecutive_join", "streaming_separate_sink", "streaming_use_arrangement_backfill",
    "streaming_use_shared_source", "streaming_use_snapshot_backfill", "synchronize_seqscans",
    "transaction_isolation", "visibility_mode",
})  # fmt: skip


def _of_risingwave(name: str) -> str:
    """A name as the table has it: RisingWave takes any case, once with `rw_` before some."""
    plain = name.lower().removeprefix("braid.").removeprefix("rw_")
    return {"time_zone": "timezone"}.get(plain, plain)


MANNERS: dict[str, Manner] = {
    "ksqldb": Manner(lambda name: name.removeprefix("ksql.streams."), 0.85, "another system", quote="'"),
    "sqlstream": Manner(str.lower, quote="'"),
    "lenses": Manner(str.lower, 0.9, "Lenses or Kafka", takes="it takes: "),
    "risingwave": Manner(_of_risingwave, known="Braid's settings are ", accepted=_RISINGWAVE),
}  # fmt: skip


# --------------------------------------------------------------- SET, UNSET, SHOW


def changed(settings: Settings, dialect: str, name: str, value: str | None) -> tuple[Settings, str | None]:
    """The settings after SET name = value (None: UNSET, the default again), with a notice if it changes nothing."""
    rows, manner = _rows(dialect), MANNERS.get(dialect, Manner(str))
    topic = re.fullmatch(r"topic\.(.+)\.partitions", name) if dialect == "lenses" else None
    if topic is not None and value is not None:
        others = tuple(x for x in settings.lenses.of_topics if x[0] != topic[1])
        count = _read(name, PARTITIONS, value, manner)
        return replace(settings, lenses=replace(settings.lenses, of_topics=(*others, (topic[1], count)))), None
    setting = rows.get(manner.row(name))
    if setting is None:
        _check_known(name, rows, manner)
        return settings, f"{name} is a setting of {manner.others} and changes nothing here" if manner.others else None
    own = _own(settings, dialect, setting)
    shown = name if dialect == "lenses" else manner.row(name)
    found = getattr(type(own)(), setting.field) if value is None else _read(shown, setting, value, manner)
    made: Any = replace(own, **{setting.field: None if found == FOR_EVER else found})
    return made if isinstance(made, Settings) else replace(settings, **{dialect: made}), None


def shown(settings: Settings, dialect: str) -> list[tuple[str, str, str]]:
    """Name, value and what it takes, for SHOW PROPERTIES."""
    return [
        (n, s.show(getattr(_own(settings, dialect, s), s.field)), ", ".join(s.takes)) for n, s in _rows(dialect).items()
    ]


def _rows(dialect: str) -> dict[str, Setting]:
    """The settings that a dialect has, under its names for them."""
    row = MANNERS[dialect].row if dialect in MANNERS else str
    return SETTINGS.get(dialect, {}) | {row(name): s for name, s in OF_ALL.items()}


def _own(settings: Settings, dialect: str, setting: Setting) -> Any:
    return settings if setting in OF_ALL.values() else getattr(settings, dialect, settings)


def _read(name: str, setting: Setting, value: str, manner: Manner) -> Any:
    found = setting.read(value)
    if found is None:
        hint = manner.takes + ", ".join(map(manner.quoted, setting.takes))
        raise SqlError(f"{name} cannot be {manner.quoted(value)}", hint=hint)
    return found


def _check_known(name: str, rows: Mapping[str, Setting], manner: Manner) -> None:
    """Refuses an unknown setting of ours, and what looks like one."""
    like = manner.row(name) if manner.sure is None else name.lower()
    if like in manner.accepted:
        return
    ours = manner.sure is None or like.startswith("braid")
    if ours or get_close_matches(like, rows, n=1, cutoff=manner.sure or 1):
        hint = meant(like, (*rows, *manner.accepted), manner.known + ", ".join(rows), ways=manner.quoted)
        raise SqlError(f"unknown setting {manner.quoted(name)}", hint=hint)
