"""A declaration of given columns, in the words of a dialect.

In: a name, typed columns, which of them is the key. Out: a CREATE statement.
Rule: what is printed binds in its dialect, to just these columns; a type that the dialect has no word for is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from braid.errors import BraidError
from braid.plan.logical import Kind
from braid.sql.dialects import dialect_named
from braid.sql.dialects.base import Dialect
from braid.types import Array, Column, Decimal, Map, Scalar, Struct, Type

_WORDS: Mapping[str, Mapping[Scalar, str]] = {
    "ksqldb": {Scalar.INT: "INT", Scalar.VARCHAR: "STRING"},
    "risingwave": {Scalar.DOUBLE: "DOUBLE PRECISION", Scalar.BYTES: "BYTEA"},
    "sqlstream": {Scalar.VARCHAR: "VARCHAR(65535)", Scalar.BYTES: "VARBINARY"},
    "lenses": {Scalar.INT: "INT", Scalar.BIGINT: "LONG", Scalar.VARCHAR: "STRING"},
}  # where they differ from ours
_MISSING = {("lenses", Scalar.TIME)}
_PLAIN_KEYS = (Scalar.INT, Scalar.BIGINT, Scalar.VARCHAR, Scalar.DOUBLE)  # formats of keys in Lenses


def declaration(
    dialect: str,
    name: str,
    kind: Kind,
    columns: Sequence[Column],
    key: str | None = None,
    options: Mapping[str, str] | None = None,
) -> str:
    """CREATE STREAM, TABLE or SOURCE. Names are taken as they are and quoted where they must be. `options`: of WITH or
    OPTIONS, for dialects that have them. In Lenses the key column is `_key`, and stays a field of the value too."""
    spoken = dialect_named(dialect)
    known = {c.name for c in columns}
    if key is not None and key not in known:
        raise BraidError(f"{name} has no column {key}", f"it has {', '.join(known)}")
    if kind == "table" and key is None and dialect in ("ksqldb", "lenses"):
        raise BraidError(f"table {name} needs a key", "name the column that tells its rows apart")
    match dialect:
        case "ksqldb":
            mark = " PRIMARY KEY" if kind == "table" else " KEY"
            fields = [f"{n} {t}{mark if c == key else ''}" for c, n, t in _fields(spoken, columns)]
            given = {"value_format": "JSON"} | dict(options or {})
            tail = f" WITH ({', '.join(f'{k} = {_text(v)}' for k, v in given.items())})"
            return f"CREATE {kind.upper()} {_name(spoken, name)} ({', '.join(fields)}){tail};"
        case "risingwave":
            what = "TABLE" if kind == "table" else "SOURCE"
            fields = [f"{n} {t}" for _, n, t in _fields(spoken, columns)]
            if kind == "table" and key is not None:
                fields.append(f"PRIMARY KEY ({_name(spoken, key)})")
            return f"CREATE {what} {_name(spoken, name)} ({', '.join(fields)});"
        case "sqlstream":
            fields = [f"{n} {t}" for _, n, t in _fields(spoken, columns)]
            if kind == "table" and key is not None:
                fields.append(f"PRIMARY KEY ({_name(spoken, key)})")
            tail = f" OPTIONS ({', '.join(f'{k} {_text(v)}' for k, v in options.items())})" if options else ""
            return f"CREATE {kind.upper()} {_name(spoken, name)} ({', '.join(fields)}){tail};"
        case _:
            known_key = next((c for c in columns if c.name == (key or "_key")), Column("_key", Scalar.VARCHAR))
            fields = [f"_key {_type(spoken, known_key)}", *_paths(spoken, [c for c in columns if c.name != "_key"])]
            format = _type(spoken, known_key) if known_key.type in _PLAIN_KEYS else "JSON"
            return f"CREATE {kind.upper()} {_name(spoken, name)} ({', '.join(fields)}) FORMAT ({format}, JSON);"


def quoted(dialect: str, name: str) -> str:
    """A name as it is written there."""
    return _name(dialect_named(dialect), name)


def _fields(spoken: Dialect, columns: Sequence[Column]) -> Iterator[tuple[str, str, str]]:
    """(name, name as written, type) of each column."""
    for c in columns:
        yield c.name, _name(spoken, c.name), _type(spoken, c)


def _paths(spoken: Dialect, columns: Sequence[Column], above: str = "") -> Iterator[str]:
    """Fields in Lenses: those of a structure are paths."""
    for c in columns:
        path = above + _name(spoken, c.name)
        if isinstance(c.type, Struct):
            yield from _paths(spoken, c.type.fields, f"{path}.")
        else:
            yield f"{path} {_type(spoken, c)}"


def _type(spoken: Dialect, column: Column) -> str:
    word = _word(spoken, column.type)
    if word is None:
        message = f"column {column.name}: {spoken.title} has no type for {column.type}"
        raise BraidError(message, "cast the column, or leave it out")
    return word


def _word(spoken: Dialect, t: Type) -> str | None:
    """A type as the dialect spells it; None where it has none."""
    match t, spoken.name:
        case Scalar(), name:
            return None if (name, t) in _MISSING else _WORDS[name].get(t, t.value)
        case Decimal(precision, scale), _:
            return f"DECIMAL({precision}, {scale})"
        case Array(element), "ksqldb":
            return _around("ARRAY<{}>", _word(spoken, element))
        case Array(element), "risingwave" | "lenses":
            return _around("{}[]", _word(spoken, element))
        case Map(key, value), "ksqldb":
            return _around("MAP<{}, {}>", _word(spoken, key), _word(spoken, value))
        case Struct(fields), "ksqldb":
            words = [_word(spoken, f.type) for f in fields]
            made = ", ".join(f"{_name(spoken, f.name)} {word}" for f, word in zip(fields, words, strict=True))
            return None if None in words else f"STRUCT<{made}>"
    return None


def _around(form: str, *words: str | None) -> str | None:
    return None if None in words else form.format(*words)


def _name(spoken: Dialect, name: str) -> str:
    """A name, quoted where it would not be read as it stands."""
    plain = name.isascii() and name.isidentifier() and name.upper() not in spoken.reserved
    quote = spoken.name_quotes[0]
    return name if plain and spoken.fold(name) == name else quote + name.replace(quote, quote * 2) + quote


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
