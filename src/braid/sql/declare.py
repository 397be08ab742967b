"""A declaration of given columns, in the words of a dialect.

In: a name, typed columns, which of them is the key. Out: a CREATE statement.
Rule: what is printed binds in its dialect, to just these columns; a type that the dialect has no word for is refused.
Each dialect says in its `Words` how it spells types, and (`declares`) a statement that is not like `plainly`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from braid.errors import BraidError
from braid.types import Array, Column, Decimal, Map, Scalar, Struct, Type

if TYPE_CHECKING:
    from braid.sql.dialects.base import Words

S = Scalar


@dataclass(frozen=True, slots=True)
class Declaring:
    """What is to be declared; names are taken as they are and quoted where they must be. `of`: what the columns are of:
    records as they stand, a file, a DataFrame (whose keys are JSON); the topic of the latter two is `topic`. `times`:
    the columns of which one may be the time of a row."""

    name: str
    kind: Literal["stream", "table"]
    columns: Sequence[Column]
    key: str | None = None
    of: Literal["records", "file", "frame"] = "records"
    topic: str = ""
    times: Sequence[str] = ()

    @property
    def time(self) -> str | None:
        return self.times[0] if len(self.times) == 1 else None


def declaration(words: Words, d: Declaring) -> str:
    """CREATE STREAM, TABLE or SOURCE."""
    known = {c.name for c in d.columns}
    if d.key is not None and d.key not in known:
        raise BraidError(f"{d.name} has no column {d.key}", f"it has {', '.join(known)}")
    if d.kind == "table" and d.key is None and words.keyed_tables:
        how = ": --key COLUMN" if d.of == "file" else ""
        raise BraidError(f"table {d.name} needs a key", f"name the column that distinguishes its rows{how}")
    return words.declares(words, d)


def plainly(words: Words, d: Declaring, what: str = "", tail: str = "") -> str:
    """CREATE `what` name (columns, PRIMARY KEY (key)) `tail`; `what`: by default the kind."""
    fields = [f"{quoted(words, c.name)} {typed(words, c)}" for c in d.columns]
    if d.kind == "table" and d.key is not None:
        fields.append(f"PRIMARY KEY ({quoted(words, d.key)})")
    return f"CREATE {what or d.kind.upper()} {quoted(words, d.name)} ({', '.join(fields)}){tail};"


def paths(words: Words, columns: Sequence[Column], above: str = "") -> Iterator[str]:
    """Columns of which those of a structure are paths."""
    for c in columns:
        path = above + quoted(words, c.name)
        if isinstance(c.type, Struct):
            yield from paths(words, c.type.fields, f"{path}.")
        else:
            yield f"{path} {typed(words, c)}"


def typed(words: Words, column: Column) -> str:
    """The type of a column as the dialect spells it."""
    word = _word(words, column.type)
    if word is None:
        message = f"column {column.name}: {words.title} has no type for {column.type}"
        raise BraidError(message, "cast the column, or leave it out")
    return word


_RARE = (S.SMALLINT, S.REAL, S.TIMESTAMPTZ, S.INTERVAL, S.JSONB)  # of those only that say how they spell it
_WIDER = {S.SMALLINT: S.INT, S.REAL: S.DOUBLE, S.TIMESTAMPTZ: S.TIMESTAMP}


def nearest(words: Words, t: Type) -> Type:
    """The type by which a dialect has values of `t`: a wider one where it has no word for that."""
    match t:
        case S.SMALLINT | S.REAL | S.TIMESTAMPTZ if _word(words, t) is None:
            return _WIDER[t]
        case Array(element):
            return Array(nearest(words, element))
        case Map(key, value):
            return Map(nearest(words, key), nearest(words, value))
        case Struct(fields):
            return Struct(tuple(Column(f.name, nearest(words, f.type)) for f in fields))
    return t


def _word(words: Words, t: Type) -> str | None:
    """A type as the dialect spells it; None where it has none."""
    match t:
        case Scalar():
            return words.spelled.get(t, None if t in _RARE else t.value)
        case Decimal(precision, scale):
            return f"DECIMAL({precision}, {scale})"
        case Array(element):
            return _around(words.array, _word(words, element))
        case Map(key, value):
            return _around(words.map, _word(words, key), _word(words, value))
        case Struct(fields):
            inner = [_word(words, f.type) for f in fields]
            made = ", ".join(f"{quoted(words, f.name)} {word}" for f, word in zip(fields, inner, strict=True))
            return None if None in inner else _around(words.struct, made)
    return None


def _around(form: str, *inner: str | None) -> str | None:
    return None if not form or None in inner else form.format(*inner)


def quoted(words: Words, name: str) -> str:
    """A name, quoted where it would not be read as it stands."""
    plain = name.isascii() and name.isidentifier() and name.upper() not in words.reserved
    quote = words.name_quotes[0]
    return name if plain and words.fold(name) == name else quote + name.replace(quote, quote * 2) + quote


def text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
