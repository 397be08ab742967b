"""The formats of records: an arm in both functions here. How a value looks is told in `values`, JSON in `codec`.

In: keys or values as JSON texts, as topics hold them, and the declared columns; typed columns. Out: a frame with the
columns, which rows have a null value, why a row is malformed (`codec.decode_values`); JSON texts. Formats with schemas
(`framed`) are bytes where there is a broker; in the topic store they are JSON that has been through the bytes once.
Rule: a line that is no JSON stands in its topic as a JSON string. `bare`: the text is the value of the only column.
DELIMITED is ksqlDB's: one line of separated values, quoted where needed; as many fields as columns, an empty field is
null, numbers are read strictly; STRUCT, ARRAY and MAP have no form here.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import polars as pl

from braid.errors import BraidError, SqlError
from braid.records import framed
from braid.records.codec import Decoded, decode_values, encode_values
from braid.records.facet import ALONE, PROTOBUFS, Facet, Manner
from braid.records.registry import Registry, Schema, subject_of
from braid.records.values import a, cut, form
from braid.types import Column, Scalar, Struct, Type, polars_type

_LINE = [Column("line", Scalar.VARCHAR)]


def written_by(facet: Facet, columns: Sequence[Column]) -> Schema:
    """The schema that columns are written by."""
    assert facet.schema is not None
    kind = framed.KINDS[facet.format]
    s = facet.schema
    if not s.text:
        return Schema(kind, framed.schema_text(columns, kind, s.name, bare=facet.bare, nulls=s.nulls))
    return Schema(kind, s.text, message=s.name if kind == "PROTOBUF" else "")


def decode(
    texts: pl.Series, columns: Sequence[Column], facet: Facet, *, manner: Manner, registry: Registry | None = None
) -> Decoded:
    if texts.dtype == pl.Binary:
        return framed.decode(texts, columns, registry, facet.format, bare=facet.bare, chosen=facet.schema)
    if facet.format in framed.KINDS and facet.schema is not None and facet.schema.text:
        chosen = written_by(facet, columns)
        texts = pl.Series(
            [t if t is None else framed.completed(t, chosen, facet.others) for t in texts], dtype=pl.String
        )
    if facet.format == "DELIMITED":
        return decode_delimited(_unquoted(texts), columns, facet.delimiter)
    if manner == "lenient" and facet.format != "JSON":
        manner = "plain"
    return decode_values(texts, columns, unwrapped=facet.bare, manner=manner)


def encode(
    frame: pl.DataFrame,
    columns: Sequence[tuple[str, Column]],
    facet: Facet,
    *,
    registry: Registry | None = None,
    topic: str = "",
) -> pl.Series:
    """With a registry, bytes in a format with schemas; else JSON texts. What has no place in the schema is null."""
    if facet.format in framed.KINDS and columns:
        schema = written_by(facet, [c for _, c in columns])
        if registry is not None:
            id = facet.schema.id if facet.schema is not None else None
            if id is None and facet.format not in ALONE:
                id = registry.register(subject_of(topic, facet.name), schema)
            return framed.encode(frame, columns, schema, facet.others, id, bare=facet.bare)[0]
        whole = facet.schema is not None and facet.schema.id is not None  # with the fields that no column gives
        found, held, why = framed.passed(frame, columns, schema, facet.others, bare=facet.bare, whole=whole)
        if not whole and schema.kind != "PROTOBUF" and why.null_count() < len(why):  # it was made for these columns
            raise RuntimeError(f"{facet.format}: {why.drop_nulls()[0]}")
        return encode_values(found, [(c.name, c) for c in held], unwrapped=facet.bare)
    if facet.format == "DELIMITED" and columns:
        lines = encode_delimited(frame, columns, facet.delimiter)
        return encode_values(lines.alias("line").to_frame(), [("line", _LINE[0])], unwrapped=True)
    return encode_values(frame, columns, unwrapped=facet.bare)


def may_refuse(facet: Facet) -> bool:
    """Whether rows of the declared types may have no place: in a schema of others, or where a list holds a null."""
    return facet.schema is not None and (facet.schema.id is not None or facet.format in PROTOBUFS)


def unwritable(frame: pl.DataFrame, columns: Sequence[tuple[str, Column]], facet: Facet) -> pl.Series | None:
    """Why the schema of a facet has no place for a row, null where it has; None: every row has one."""
    if not columns or not may_refuse(facet):
        return None
    schema = written_by(facet, [c for _, c in columns])
    _, errors = framed.encode(frame, columns, schema, facet.others, None, bare=facet.bare)
    return errors if errors.null_count() < len(errors) else None


def passed(text: str | None, columns: Sequence[Column], facet: Facet) -> str | None:
    """A JSON text as it is when it has been written and read in a format with schemas, or as a line; any other as it
    stands, and one that does not fit."""
    if text is None or facet.format not in ("DELIMITED", *framed.KINDS) or not columns:
        return text
    frame, _, error = decode_values(pl.Series([text]), columns, unwrapped=facet.bare)
    if error[0] is not None or unwritable(frame, [(c.name, c) for c in columns], facet) is not None:
        return text
    found = encode(frame, [(c.name, c) for c in columns], facet)[0]
    return text if found is None else str(found)


def inserted(text: str | None, columns: Sequence[Column], facet: Facet) -> str | None:
    """A text of values that are given, `passed`; by a schema that was chosen what is not given has its default, and a
    value for which there is no place is refused."""
    if text is None or facet.schema is None or not facet.schema.text or facet.format not in framed.KINDS:
        return passed(text, columns, facet)
    text = framed.completed(text, written_by(facet, columns), facet.others)
    frame, _, _ = decode_values(pl.Series([text]), columns, unwrapped=facet.bare)
    why = unwritable(frame, [(c.name, c) for c in columns], facet)
    if why is not None:
        raise BraidError(f"the schema of the {facet.name} has no place for this: {why[0]}", "give another value")
    return passed(text, columns, facet)


def produced(text: str, schema: Schema, others: framed.Others) -> str:
    """A JSON text as another producer writes it by a schema: fields that are missing have their defaults."""
    try:
        t, is_record = framed.type_of(schema, others, fold=False, name=schema.message)
        if t is None:
            return text
        bare = not (is_record and isinstance(t, Struct))
        columns = t.fields if isinstance(t, Struct) and not bare else (Column("value", t),)
        frame, null, error = decode_values(pl.Series([framed.completed(text, schema, others)]), columns, unwrapped=bare)
        if error[0] is not None or null[0]:
            return text
        named = [(c.name, c) for c in columns]
        found, _, why = framed.passed(frame, named, schema, others, bare=bare)
        return text if why[0] is not None else str(encode_values(found, named, unwrapped=bare)[0])
    except BraidError:
        return text


# -------------------------------------------------------- bytes, for people


def shown(
    raw: pl.Series, columns: Sequence[Column], facet: Facet, registry: Registry | None
) -> tuple[pl.Series, pl.Series]:
    """JSON texts of records' bytes in a format with schemas, and why there is none."""
    if facet.format not in ALONE:
        chosen = facet.schema is not None and facet.schema.id is not None  # then it has more fields than the columns
        own = None if chosen else (written_by(facet, columns), columns, facet.bare)
        return framed.texts(raw, framed.known(registry, facet.format), own)
    frame, null, why = framed.decode(raw, columns, None, facet.format, bare=facet.bare, chosen=facet.schema)
    made = encode_values(frame, [(c.name, c) for c in columns], unwrapped=facet.bare)
    return made.set(null | why.is_not_null(), None), why


def to_bytes(
    texts: pl.Series, columns: Sequence[Column], facet: Facet, registry: Registry | None, topic: str
) -> pl.Series:
    """Bytes of JSON texts that a person wrote: by the last schema of the topic, else by that of the columns. What does
    not fit is refused."""
    id, schema, others, bare = None, written_by(facet, columns), facet.others, facet.bare
    if facet.format not in ALONE:
        there, subject = framed.known(registry, facet.format), subject_of(topic, facet.name)
        chosen = facet.schema.id if facet.schema is not None else None
        latest = there.latest(subject) if chosen is None else (chosen, schema)
        if latest is not None and latest[1].kind == schema.kind and latest[1].text != schema.text:
            name = facet.schema.name if facet.schema is not None and schema.kind == "PROTOBUF" else ""
            id, schema = latest[0], replace(latest[1], message=name)
            others = framed.others_of(there, schema)
            columns, bare = framed.columns_of(schema, others, name)
        elif chosen is not None:
            id, (columns, bare) = chosen, framed.columns_of(schema, others, schema.message)
        else:
            id = there.register(subject, schema)
    full = pl.Series([t if t is None else framed.completed(t, schema, others) for t in texts], dtype=pl.String)
    frame, null, why = decode_values(full, columns, unwrapped=bare)
    named = [(c.name, c) for c in columns]
    made, unfit = framed.encode(frame, named, schema, others, id, bare=bare)
    wrong = pl.DataFrame({"a": why, "b": unfit.set(null, None)}).select(pl.coalesce("a", "b"))["a"]
    for text, reason in zip(texts, wrong, strict=True):
        if reason is not None:
            raise BraidError(f"the {facet.name} {cut(text)} does not fit its schema: {reason}", "look at its fields")
    return made.set(null, None)


_PLAIN_STRING = r'^"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])*"$'  # JSON that every reader reads alike


def _unquoted(texts: pl.Series) -> pl.Series:
    """The lines that JSON strings hold; what is none stays as it is."""
    quoted = (texts.str.starts_with('"') & texts.str.ends_with('"')).fill_null(False)
    if not quoted.any():
        return texts
    plain = texts.str.contains(_PLAIN_STRING).fill_null(False)
    lines = texts.set(~plain, None).str.json_decode(pl.String)
    odd = (quoted & ~plain).arg_true()
    if len(odd):
        lines = lines.scatter(odd, decode_values(texts.gather(odd), _LINE, unwrapped=True)[0]["line"])
    return pl.DataFrame({"a": lines, "b": texts}).select(pl.coalesce("a", "b"))["a"]


# ------------------------------------------------------------------- DELIMITED


S = Scalar
F = TypeVar("F")
# What ksqlDB quotes (by Commons CSV 1.4, "minimal"): the first field of a line unless it begins with a letter or digit
# of ASCII, an empty one too; others where a reader might trim them, or take them for a comment.
_FIRST, _BLANK_EDGE = r"\A(?:[^0-9A-Za-z]|\z)|[\x00- ]\z", r"\A[\x00-#]|[\x00- ]\z"
_APART = ",;|\t "  # delimiters that no number or time has in it
_NAMED = {"SPACE": " ", "TAB": "\t"}


def delimiter_of(text: str) -> str:
    """The delimiter that a `value_delimiter` property names: one character, SPACE or TAB."""
    found = _NAMED.get(text.upper(), text)
    if len(found) != 1 or found in '"\n\r':
        raise SqlError(f"{text!r} is not a delimiter", hint="write one character, 'SPACE' or 'TAB'")
    return found


def decode_delimited(
    texts: pl.Series, columns: Sequence[Column], delimiter: str = ","
) -> tuple[pl.DataFrame, pl.Series, pl.Series]:
    """Columns, `is_null_value`, and `error` (null where the line is well formed)."""
    by = delimiter_of(delimiter)
    parts = texts.str.split(by)
    quoted = texts.str.contains('"', literal=True).fill_null(False)
    if quoted.any():  # slow path: the csv module, for lines with quotes
        rows = pl.Series([_fields(t, by) for t in texts.filter(quoted).to_list()], dtype=pl.List(pl.String))
        order = pl.concat([(~quoted).arg_true(), quoted.arg_true()]).arg_sort()
        parts = pl.concat([parts.filter(~quoted), rows]).gather(order)
    frame = pl.DataFrame({"_p": parts})
    count = pl.col("_p").list.len()
    wrong = (
        pl.when(pl.col("_p").is_null() & texts.is_not_null())
        .then(pl.lit("the quotes of the line do not match"))
        .when(count != len(columns))
        .then(pl.concat_str([pl.lit(f"{len(columns)} fields expected, "), count.cast(pl.String), pl.lit(" found")]))
    )
    values: list[pl.Expr] = []
    for i, c in enumerate(columns):
        raw = pl.col("_p").list.get(i, null_on_oob=True)
        raw = pl.when(raw != "").then(raw)
        value = _known(form(c.type).from_text, c.type)(raw, c.type, False)
        why = pl.concat_str([pl.lit(f"field {c.name}: '"), raw, pl.lit(f"' is not {a(c.type)}")])
        wrong = wrong.when(raw.is_not_null() & value.is_null()).then(why)
        values.append(value.cast(polars_type(c.type)).alias(c.name))
    out = frame.select(*values, wrong.cast(pl.String).alias("_error"))
    errors = out.get_column("_error").rename("error")
    out = out.drop("_error")
    bad = errors.is_not_null()
    if bad.any():
        out = out.select(pl.when(~bad).then(pl.col(c.name)).alias(c.name) for c in columns)
    return out, texts.is_null().rename("is_null_value"), errors


def _fields(line: str, by: str) -> list[str] | None:
    try:
        found = list(csv.reader(io.StringIO(line), delimiter=by, strict=True))
    except csv.Error:
        return None
    return found[0] if len(found) == 1 else None


def encode_delimited(frame: pl.DataFrame, columns: Sequence[tuple[str, Column]], delimiter: str = ",") -> pl.Series:
    """One line per row; a null is an empty field, quoted where it is the first."""
    by = delimiter_of(delimiter)
    texts = [_write(frame.get_column(name), c.type, by, i == 0).alias(str(i)) for i, (name, c) in enumerate(columns)]
    if not texts:
        return pl.Series("value", [""] * frame.height, dtype=pl.String)
    joined = pl.concat_str([pl.col(t.name).fill_null("") for t in texts], separator=by)
    return pl.DataFrame(texts).select(joined.alias("value")).to_series()


def _write(s: pl.Series, t: Type, by: str, first: bool) -> pl.Series:
    texts = _known(form(t).to_text, t)(s, t)
    if first:
        texts = texts.fill_null("")
    odd = _odd(texts, t, by, first)
    if odd is None or not odd.any():
        return texts
    quoted = pl.concat_str([pl.lit('"'), pl.col("s").str.replace_all('"', '""', literal=True), pl.lit('"')])
    both = pl.DataFrame({"s": texts, "odd": odd})
    return both.select(pl.when(pl.col("odd")).then(quoted).otherwise(pl.col("s"))).to_series()


def _odd(texts: pl.Series, t: Type, by: str, first: bool) -> pl.Series | None:
    """Which fields are quoted; None where none can be."""
    if t is S.VARCHAR or by not in _APART:
        edge = texts.str.contains(_FIRST if first else _BLANK_EDGE)
        return (edge | texts.str.contains_any([by, '"', "\n", "\r"])).fill_null(False)
    return texts.str.contains(_FIRST) if first else None


def _known(cell: F | None, t: Type) -> F:
    if cell is None:
        raise SqlError(f"DELIMITED has no form for {t}", hint="use format='JSON'")
    return cell
