"""WITH (…), OPTIONS (…): properties of sources and sinks.

In: properties as written. Out: their values, checked; encodings.
Rule: an unknown property is an error; one that has no effect here is told, never silently ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from braid.bind.bound import DeclaredColumn, Windowing
from braid.bind.expressions import with_span
from braid.bind.settings import Settings
from braid.errors import Span, SqlError
from braid.expr import dates
from braid.guess import meant
from braid.plan.logical import Timestamp
from braid.plan.windows import KINDS
from braid.records.encoding import Encoding
from braid.records.formats.interface import keyed_otherwise
from braid.records.formats.named import FORMATS, named_in
from braid.sql import ast
from braid.sql.windows import CLAUSES
from braid.types import UNITS, Scalar

COMMON = ("KAFKA_TOPIC", "FORMAT", "KEY_FORMAT", "VALUE_FORMAT", "PARTITIONS", "REPLICAS", "TIMESTAMP",
          "TIMESTAMP_FORMAT", "WRAP_SINGLE_VALUE", "VALUE_DELIMITER", "KEY_DELIMITER", "RETENTION_MS",
          "CLEANUP_POLICY", "KEY_SCHEMA_ID", "VALUE_SCHEMA_ID", "KEY_SCHEMA_FULL_NAME", "VALUE_SCHEMA_FULL_NAME",
          "VALUE_AVRO_SCHEMA_FULL_NAME", "KEY_PROTOBUF_NULLABLE_REPRESENTATION",
          "VALUE_PROTOBUF_NULLABLE_REPRESENTATION")  # fmt: skip
OF_SOURCES = (*COMMON, "KEY", "NULL_VALUE", "WINDOW_TYPE", "WINDOW_SIZE")
OF_SINKS = COMMON
OF_INSERTS = ("QUERY_ID",)
NO_EFFECT = ("REPLICAS", "CLEANUP_POLICY")
NULLS = ("KEY_PROTOBUF_NULLABLE_REPRESENTATION", "VALUE_PROTOBUF_NULLABLE_REPRESENTATION")
DELIMITERS = {"SPACE": " ", "TAB": "\t"}


@dataclass(frozen=True, slots=True)
class Properties:
    """The properties of one WITH clause, by upper-case name; `at`: where a missing one would stand."""

    items: dict[str, ast.Property]
    at: Span

    def text(self, name: str) -> str | None:
        p = self.items.get(name)
        if p is None:
            return None
        if not isinstance(p.value.value, str):
            raise SqlError(f"{name} must be a text", p.value.span, f"write {name.lower()} = 'value'")
        return p.value.value

    def topic(self, name: str) -> str:
        """The topic of what has that name: another one where it is written."""
        written = self.text("KAFKA_TOPIC")
        return name if written is None else written

    def count(self, name: str) -> int | None:
        """A number of at least 1."""
        p = self.items.get(name)
        if p is None:
            return None
        value = p.value.value
        if isinstance(value, str) and value.strip().isdigit():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise SqlError(f"{name} must be a whole number of at least 1", p.value.span, f"write {name.lower()} = 1")
        return value

    def flag(self, name: str) -> bool | None:
        p = self.items.get(name)
        if p is None:
            return None
        value = p.value.value
        if isinstance(value, str) and value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        if not isinstance(value, bool):
            raise SqlError(f"{name} must be true or false", p.value.span, f"write {name.lower()} = false")
        return value

    def span(self, name: str) -> Span:
        return self.items[name].value.span if name in self.items else self.at

    def notices(self) -> tuple[str, ...]:
        return tuple(f"{n} has no effect here" for n in NO_EFFECT if n in self.items)


def read(properties: Sequence[ast.Property], allowed: tuple[str, ...], at: Span) -> Properties:
    """All properties, each known and written once."""
    items: dict[str, ast.Property] = {}
    for p in properties:
        if p.name in items:
            raise SqlError(f"property {p.name} is written twice", p.span, "keep one of them")
        if p.name == "KEY" and p.name not in allowed:
            hint = "the SELECT gives the key: project the key column, or write PARTITION BY"
            raise SqlError("KEY cannot be set on a query's result", p.span, hint)
        if p.name not in allowed:
            known = ", ".join(n.lower() for n in allowed if not n.startswith("WINDOW"))
            hint = meant(p.name, allowed, f"known are {known}", ways=str.lower)
            raise SqlError(f"unknown property {p.name.lower()}", p.span, hint)
        items[p.name] = p
    return Properties(items, at)


def options_of(
    written: tuple[ast.Property, ...], known: Collection[str], hint: Callable[[str], str], of: str = ""
) -> dict[str, ast.Property]:
    """Options by name, each one of the `known`, once. `hint`: for one that is not."""
    found: dict[str, ast.Property] = {}
    for o in written:
        if o.name not in known:
            raise SqlError(f"unknown option {o.name}{of}", o.span, hint(o.name))
        if o.name in found:
            raise SqlError(f"option {o.name} is written twice", o.span, "keep one of them")
        found[o.name] = o
    return found


def windowing(p: Properties) -> Windowing | None:
    """WINDOW_TYPE and WINDOW_SIZE: the windows that are parts of a source's keys."""
    name, text = p.text("WINDOW_TYPE"), p.text("WINDOW_SIZE")
    if name is None:
        if text is not None:
            raise SqlError("WINDOW_SIZE needs WINDOW_TYPE", p.span("WINDOW_SIZE"), "add window_type = 'TUMBLING'")
        return None
    kind = next((k for k in CLAUSES if k == name.strip().upper()), None)
    if kind is None:
        raise SqlError(f"no window is {name}", p.span("WINDOW_TYPE"), f"windows are {', '.join(CLAUSES)}")
    if not KINDS[kind].sized:
        if text is not None:
            raise SqlError(f"{kind} windows have no size", p.span("WINDOW_SIZE"), "leave window_size out")
        return Windowing(kind, None)
    if text is None:
        raise SqlError(f"{kind} windows need a WINDOW_SIZE", p.span("WINDOW_TYPE"), "add window_size = '1 HOUR'")
    number, _, unit = text.strip().upper().partition(" ")
    size = int(number) * UNITS.get(unit.strip(), 0) if number.isdigit() and len(number) < 16 else 0
    if size == 0:
        raise SqlError(f"{text} is no size of a window", p.span("WINDOW_SIZE"), "write window_size = '10 MINUTES'")
    return Windowing(kind, size)


def column_named(p: Properties, name: str, columns: Sequence[DeclaredColumn]) -> DeclaredColumn | None:
    """The column a property names: as written, else without regard to case."""
    text = p.text(name)
    if text is None:
        return None
    text = text.strip().strip('`"')
    found = [c for c in columns if c.name == text] or [c for c in columns if c.name.upper() == text.upper()]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(c.name for c in columns)
    hint = meant(text, [c.name for c in columns], f"columns are {listed}")
    raise SqlError(f"{name} names no column: {text}", p.span(name), hint)


def timestamp(p: Properties, columns: Sequence[DeclaredColumn]) -> Timestamp | None:
    """The column that gives the time, of ksqldb's: no time lies before 1970 there."""
    column = column_named(p, "TIMESTAMP", columns)
    pattern = p.text("TIMESTAMP_FORMAT")
    if column is None:
        if pattern is not None:
            raise SqlError("TIMESTAMP_FORMAT needs TIMESTAMP", p.span("TIMESTAMP_FORMAT"), "add timestamp = 'column'")
        return None
    if column.type is Scalar.VARCHAR:
        if pattern is None:
            hint = "add timestamp_format = 'yyyy-MM-dd HH:mm:ss', or use a BIGINT (ms) or TIMESTAMP column"
            raise SqlError(f"timestamp column {column.name} is VARCHAR", p.span("TIMESTAMP"), hint)
        with with_span(p.span("TIMESTAMP_FORMAT")):
            dates.check_parse(pattern)
        return Timestamp(column.name, pattern, since_1970=True)
    if column.type not in (Scalar.BIGINT, Scalar.TIMESTAMP):
        hint = "use a BIGINT (ms since 1970), TIMESTAMP or VARCHAR column"
        raise SqlError(f"timestamp column {column.name} is {column.type}", p.span("TIMESTAMP"), hint)
    if pattern is not None:
        hint = "leave timestamp_format out"
        message = f"TIMESTAMP_FORMAT is for VARCHAR columns; {column.name} is {column.type}"
        raise SqlError(message, p.span("TIMESTAMP_FORMAT"), hint)
    return Timestamp(column.name, since_1970=True)


def encoding(
    p: Properties,
    keys: Sequence[DeclaredColumn],
    values: Sequence[DeclaredColumn],
    inherited: Encoding | None,
    settings: Settings,
) -> Encoding:
    """How records are written. What no property says is `inherited` (a sink's: from the first source), else as the
    settings have it: JSON values and KAFKA keys. `native` takes JSON keys where such a format cannot hold them."""
    both = _format(p, "FORMAT")
    for one in ("KEY_FORMAT", "VALUE_FORMAT"):
        if both is not None and one in p.items:
            raise SqlError(f"FORMAT and {one} exclude each other", p.span(one), "keep KEY_FORMAT and VALUE_FORMAT")
    value = _format(p, "VALUE_FORMAT") or both or (inherited.value if inherited else settings.value_format or "JSON")
    if not FORMATS[value].of_values:
        hint = f"write value_format = 'JSON'; only keys may be {value}"
        raise SqlError(
            f"{value} is a key format", p.span("VALUE_FORMAT" if "VALUE_FORMAT" in p.items else "FORMAT"), hint
        )
    _check_format("VALUE_FORMAT", value, values, p, both is not None)
    key = _key_format(p, keys, both, inherited, settings)
    delimiter = _delimiter(p, "value", value, inherited.delimiter if inherited else None)
    of_keys = _delimiter(p, "key", key, inherited.key_delimiter if inherited else None)
    return Encoding(
        key, value, delimiter, _wrapped(p, value, values, settings.wrap), key_delimiter=of_keys, lenient=True
    )


def written_format(p: Properties, facet: str) -> str | None:
    """The format that the properties give keys, or values."""
    return _format(p, f"{facet}_FORMAT".upper()) or _format(p, "FORMAT")


def _key_format(
    p: Properties, keys: Sequence[DeclaredColumn], both: str | None, inherited: Encoding | None, settings: Settings
) -> str:
    written = _format(p, "KEY_FORMAT") or both
    if written is not None:
        if written == "NONE" and keys:
            hint = f"leave key_format out, or leave KEY of {keys[0].name} out"
            raise SqlError("key_format NONE, but there is a key column", p.span("KEY_FORMAT"), hint)
        _check_format("KEY_FORMAT", written, keys, p, both is not None)
        return written
    key = settings.key_format if inherited is None or (inherited.key == "NONE" and keys) else inherited.key
    if settings.mode == "native" and not _fits(key, keys, True):
        return "JSON"
    _check_format("KEY_FORMAT", key, keys, p, both=False)
    return key


def _format(p: Properties, name: str) -> str | None:
    text = p.text(name)
    if text is None:
        return None
    word = text.strip().upper()
    known = named_in("ksqldb")
    if word not in known:
        hint = meant(word, known, f"formats are {', '.join(known)}")
        raise SqlError(f"unknown format {text}", p.span(name), hint)
    return word


def _fits(f: str, columns: Sequence[DeclaredColumn], is_key: bool) -> bool:
    """Can the format hold these columns?"""
    if not all(FORMATS[f].holds(c.type) for c in columns):
        return False
    return not _is_one_value(f) or len(columns) == 1 or (is_key and not columns)


def _is_one_value(f: str) -> bool:
    return FORMATS[f].single == "value" and FORMATS[f].of_values


def _check_format(name: str, f: str, columns: Sequence[DeclaredColumn], p: Properties, both: bool) -> None:
    """A format that is written, or inherited by a value, must be able to hold the columns."""
    is_key = name == "KEY_FORMAT"
    if _fits(f, columns, is_key):
        return
    what = "key" if is_key else "value"
    span = p.span("FORMAT" if both else name)
    if _is_one_value(f) and len(columns) != 1:
        message = f"format {f} holds one column; the {what} has {len(columns)}"
    else:
        bad = next(c for c in columns if not _fits(f, [c], True))
        message = f"format {f} cannot hold {bad.name}, which is {bad.type}"
        if keyed_otherwise(bad.type):
            raise SqlError(message, span, "formats hold MAPs with VARCHAR keys only")
    raise SqlError(message, span, f"write {name.lower()} = 'JSON'")


def check_holds(e: Encoding, values: Sequence[DeclaredColumn], span: Span) -> None:
    """A format that values have must be able to hold more columns."""
    if not e.wrapped and len(values) > 1:
        raise SqlError("the value is unwrapped: WRAP_SINGLE_VALUE is false", span, "declare it again")
    if not _fits(e.value, values, False):
        raise SqlError(f"format {e.value} cannot hold these columns", span, "declare it again, with another format")


def _delimiter(p: Properties, facet: str, format: str, inherited: str | None) -> str:
    name = f"{facet}_DELIMITER".upper()
    text = p.text(name)
    if text is None:
        return inherited or ","
    if not FORMATS[format].delimited:
        some = " or ".join(n for n in named_in("ksqldb") if FORMATS[n].delimited)
        raise SqlError(f"{name} is for {some} {facet}s, not {format}", p.span(name), "leave it out")
    text = DELIMITERS.get(text.upper(), text if text.strip() else "")
    if len(text) != 1:
        raise SqlError(f"{name} must be one character", p.span(name), "or SPACE, or TAB")
    return text


def _wrapped(p: Properties, value: str, values: Sequence[DeclaredColumn], wrap: bool) -> bool:
    flag, single = p.flag("WRAP_SINGLE_VALUE"), FORMATS[value].single
    if flag is None:
        return wrap or len(values) != 1 or single != "either"
    if len(values) != 1:
        message = f"WRAP_SINGLE_VALUE is for one value column; there are {len(values)}"
        raise SqlError(message, p.span("WRAP_SINGLE_VALUE"), "leave it out")
    if single != "either" and flag != (single == "record"):
        never = "are never alone" if single == "record" else "are always unwrapped"
        raise SqlError(f"values in {value} {never}", p.span("WRAP_SINGLE_VALUE"), "leave WRAP_SINGLE_VALUE out")
    return flag or single != "either"
