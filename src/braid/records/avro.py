"""Avro bodies (what stands behind a record's schema id) into columns, by the schema that wrote them.

In: a Binary series and the declared columns, with the writer's schema. Out: `codec.Decoded`.
Rule: the reader record by record is the meaning; pyruhvro reads whole columns where it gives the same. A batch that it
refuses is halved until the bad records are found, so they cost no others. The declaration is the reader: a field that
is not there is null, or has the default of the schema that was chosen by its id (`chosen`). Texts are UTF-8.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from braid.records.avro_schema import NO_DEFAULT, Avro, AvroField, Beyond, branch_name, misread, per_ms, rewritten
from braid.records.codec import Decoded, clean, nothing, stack
from braid.records.columnar import NotAtOnce, arrow_type, finished, halved, listed, singles, zigzag
from braid.records.malformed import Malformed
from braid.records.values import WHOLE, plain_double, read_at, reader, single
from braid.types import Array, Column, Decimal, Map, Scalar, Struct, Type, physical_type, polars_type

S = Scalar
_FEW = 16  # so few records are read one by one
Read = Callable[[bytes, int], tuple[Any, int]]


def decode_bodies(
    bodies: pl.Series, columns: Sequence[Column], writer: Avro, *, bare: bool, chosen: Avro | None = None
) -> Decoded:
    """The columns of bodies, none of which is null."""
    wrong = _misread(writer, columns, bare)
    if wrong is not None:
        return nothing(columns, len(bodies), wrong)
    try:
        fast = None if any(_odd(c.type) for c in columns) else json.dumps(_wrapped(rewritten(writer), writer))
    except Beyond:
        fast = None

    def at_once(some: list[bytes]) -> Decoded:
        if fast is None:
            raise NotAtOnce
        return clean(_at_once(some, columns, writer, bare, chosen, fast))

    def alone(some: list[bytes], _: BaseException | None) -> Decoded:
        return _one_by_one(some, columns, writer, bare, chosen)

    return stack(halved(bodies.to_list(), at_once, alone, _FEW))


def _misread(writer: Avro, columns: Sequence[Column], bare: bool) -> str | None:
    if bare:
        return misread(writer, columns[0].type)
    if writer.only is None or writer.only.kind != "record":
        return f"{writer.called} is no record" if columns else None
    return misread(writer, Struct(tuple(columns)))


def _odd(t: Type) -> bool:
    """Types that are read one by one only."""
    match t:
        case Struct(fields):
            return not fields or any(_odd(f.type) for f in fields)
        case Array(element):
            return _odd(element)
        case Map(key, value):
            return _odd(key) or _odd(value)
    return t is S.NULL


def _wrapped(schema: Any, writer: Avro) -> Any:
    """Tops that are no record become the field of one."""
    if writer.real.kind == "record":
        return schema
    return {"type": "record", "name": "Top", "fields": [{"name": "f0", "type": schema}]}


# ------------------------------------------------------------- one by one


def _one_by_one(
    bodies: Sequence[bytes], columns: Sequence[Column], writer: Avro, bare: bool, chosen: Avro | None
) -> Decoded:
    read = _reader_of(writer, tuple(columns), bare, chosen)
    rows: list[tuple[Any, ...]] = []
    nulls: list[bool] = []
    errors: list[str | None] = []
    empty = (None,) * len(columns)
    for body in bodies:
        error, row, null = None, empty, False
        try:
            value, _ = read(body, 0)
            null = value is None
            if value is not None:
                row = (value,) if bare else tuple(value[c.name] for c in columns)
        except Malformed as e:
            error = str(e)
        except (IndexError, struct.error):
            error = "the record ends before its schema does"
        except RecursionError:
            error = "the record is nested too deeply"
        rows.append(row)
        nulls.append(null)
        errors.append(error)
    frame = pl.DataFrame([_series(c, [row[i] for row in rows]) for i, c in enumerate(columns)])
    return frame, pl.Series("is_null_value", nulls, pl.Boolean), pl.Series("error", errors, pl.String)


def _series(column: Column, values: list[Any]) -> pl.Series:
    made = pl.Series(column.name, values, dtype=physical_type(column.type), strict=True)
    return made.cast(polars_type(column.type))


def _reader_of(writer: Avro, columns: tuple[Column, ...], bare: bool, chosen: Avro | None) -> Read:
    return _reads(writer, columns[0].type if bare else Struct(columns), chosen)


def _reads(a: Avro, t: Type | None, chosen: Avro | None = None) -> Read:
    """A function from bytes and a place to the physical value of `t` there (None: it is only passed over) and the place
    behind it."""
    own = a.real
    match own.kind:
        case "null":
            return lambda b, p: (None, p)
        case "union":
            return _reads_union(own, t, chosen)
        case "array" | "map":
            return _reads_blocks(own, t, chosen)
        case "record":
            return _reads_record(own, t, chosen)
    raw, made = _RAW[own.kind](own), _maker(own, t)

    def read(b: bytes, p: int) -> tuple[Any, int]:
        value, p = raw(b, p)
        return (None if t is None else made(value)), p

    return read


def _long(b: bytes, p: int) -> tuple[int, int]:
    try:
        return zigzag(b, p)
    except ValueError as e:
        raise Malformed(str(e)) from None


def _int(b: bytes, p: int) -> tuple[int, int]:
    n, p = _long(b, p)
    if not -(2**31) <= n < 2**31:
        raise Malformed(f"{n} is out of range for an int")
    return n, p


def _bytes(b: bytes, p: int) -> tuple[bytes, int]:
    n, p = _long(b, p)
    if n < 0 or p + n > len(b):
        raise IndexError
    return b[p : p + n], p + n


def _boolean(b: bytes, p: int) -> tuple[bool, int]:
    if b[p] > 1:
        raise Malformed(f"{b[p]} is no boolean")
    return b[p] == 1, p + 1


def _fixed(a: Avro) -> Read:
    def read(b: bytes, p: int) -> tuple[bytes, int]:
        if p + a.size > len(b):
            raise IndexError
        return b[p : p + a.size], p + a.size

    return read


def _enum(a: Avro) -> Read:
    def read(b: bytes, p: int) -> tuple[str, int]:
        n, p = _long(b, p)
        if not 0 <= n < len(a.symbols):
            raise Malformed(f"{n} is no symbol of the enum {branch_name(a)}")
        return a.symbols[n], p

    return read


def _text(b: bytes, p: int) -> tuple[str, int]:
    found, p = _bytes(b, p)
    try:
        return found.decode(), p
    except UnicodeDecodeError:
        raise Malformed(f"{found[:20]!r} is not UTF-8") from None


_RAW: dict[str, Callable[[Avro], Read]] = {
    "boolean": lambda a: _boolean,
    "int": lambda a: _int,
    "long": lambda a: _long,
    "float": lambda a: lambda b, p: (struct.unpack_from("<f", b, p)[0], p + 4),
    "double": lambda a: lambda b, p: (struct.unpack_from("<d", b, p)[0], p + 8),
    "string": lambda a: _text,
    "bytes": lambda a: _bytes,
    "fixed": _fixed,
    "enum": _enum,
}


def _maker(a: Avro, t: Type | None) -> Callable[[Any], Any]:
    """From what Avro has to the physical value of `t`."""
    if isinstance(t, Decimal):
        fit = reader(t)
        return lambda v: fit(_decimal_text(v, a.scale))
    match t:
        case S.VARCHAR if a.kind in ("float", "double"):
            return lambda v: str(plain_double(v))
        case S.VARCHAR if a.kind == "boolean":
            return lambda v: "true" if v else "false"
        case S.VARCHAR if a.kind in ("int", "long"):
            return str
        case S.DOUBLE:
            return float
        case S.REAL:
            return _real
        case S.SMALLINT:
            return reader(t)
        case S.DATE | S.TIME | S.TIMESTAMP | S.TIMESTAMPTZ:
            return _moment(a, t)
    return lambda v: v


def _real(v: float) -> float:
    made = single(v)
    if math.isinf(made) and not math.isinf(v):
        raise Malformed(f"{v} is out of range for REAL")
    return made


def _moment(a: Avro, t: Scalar) -> Callable[[Any], Any]:
    whole, per = WHOLE[t], per_ms(a)

    def made(v: int) -> int:
        if not whole.low * per <= v < whole.high * per:
            raise Malformed(f"{v} is out of range for {t}")
        return v * whole.unit // per

    return made


def _decimal_text(value: bytes, scale: int) -> str:
    return f"{int.from_bytes(value, 'big', signed=True)}e-{scale}"


def _reads_union(a: Avro, t: Type | None, chosen: Avro | None) -> Read:
    wide = [b for b in a.branches if b.kind != "null"][1:] and isinstance(t, Struct)
    columns = {c.name.lower(): c for c in t.fields} if wide and isinstance(t, Struct) else {}
    made: list[tuple[Read, Column | None]] = []
    for b in a.branches:
        mine = columns.get(branch_name(b.real).lower())
        of = mine.type if mine is not None else None if wide else t
        made.append((_reads(b, of, None if wide else _inner(chosen)), mine))
    names = [c.name for c in t.fields] if wide and isinstance(t, Struct) else []

    def read(b: bytes, p: int) -> tuple[Any, int]:
        n, p = _long(b, p)
        if not 0 <= n < len(made):
            raise Malformed(f"{n} is no branch of a union")
        value, p = made[n][0](b, p)
        mine = made[n][1]
        if wide and a.branches[n].kind != "null":
            return {x: value if mine is not None and x == mine.name else None for x in names}, p
        return value, p

    return read


def _inner(chosen: Avro | None) -> Avro | None:
    return None if chosen is None else chosen.only


def _reads_blocks(a: Avro, t: Type | None, chosen: Avro | None) -> Read:
    """Arrays and maps."""
    assert a.items is not None
    key: Read | None = None
    entries = a.entries if isinstance(t, Map) else None
    inner = _inner(chosen)
    below = None if inner is None else inner.items
    match t:
        case Array(element):
            item = _reads(a.items, element, below)
        case Map(_, value) if a.kind == "map":
            key, item = _text, _reads(a.items, value, below)
        case Map(of_key, value) if entries is not None:
            pair = Struct((Column(entries[0].name, of_key), Column(entries[1].name, value)))
            item = _reads(a.items, pair, None)
        case _:
            key, item = (_text if a.kind == "map" else None), _reads(a.items, None)

    def read(b: bytes, p: int) -> tuple[Any, int]:
        out: list[Any] = []
        count, p = _long(b, p)
        while count:
            if count < 0:
                count = -count
                _, p = _long(b, p)
            if count > len(b):  # each item has a byte
                raise IndexError
            for _ in range(count):
                name, p = key(b, p) if key is not None else (None, p)
                value, p = item(b, p)
                if key is not None:
                    value = {"key": name, "value": value}
                elif entries is not None and value is not None:
                    value = {"key": value[entries[0].name], "value": value[entries[1].name]}
                out.append(value)
            count, p = _long(b, p)
        return out, p

    return read


def _reads_record(a: Avro, t: Type | None, chosen: Avro | None) -> Read:
    assert t is None or isinstance(t, Struct)
    columns = t.fields if isinstance(t, Struct) else ()
    mine, inner = _pairs(a, columns), _inner(chosen)
    fields: list[tuple[tuple[str, ...], Any]] = []
    for f in a.fields:
        wanted = [c for c, there in mine if there is f]
        of = wanted[0].type if wanted else None
        names = tuple(c.name for c in wanted)
        picked = inner.field(f.name) if inner is not None else None
        fields.append((names, _later(f.type, of, None if picked is None else picked.type)))
    missing = {c.name: _default_of(c, chosen) for c, there in mine if there is None}

    def read(b: bytes, p: int) -> tuple[Any, int]:
        out = dict(missing)
        for names, item in fields:
            value, p = item(b, p)
            for name in names:
                out[name] = value
        return out, p

    def step(b: bytes, p: int) -> tuple[Any, int]:
        try:
            return read(b, p)
        except Malformed as e:
            raise e if e.path else Malformed(e.why) from None

    return step


def _later(a: Avro, t: Type | None, chosen: Avro | None) -> Read:
    """The reader of a field: made when it is first needed, since a schema may hold itself."""
    made: list[Read] = []

    def read(b: bytes, p: int) -> tuple[Any, int]:
        if not made:
            made.append(_reads(a, t, chosen))
        return made[0](b, p)

    return read


def _pairs(a: Avro, columns: Sequence[Column]) -> list[tuple[Column, AvroField | None]]:
    """Columns with the fields that hold them."""
    return [(c, a.field(c.name)) for c in columns]


def _default_of(c: Column, chosen: Avro | None) -> Any:
    """The value of a column that the writer did not know."""
    found = chosen.only.field(c.name) if chosen is not None and chosen.only is not None else None
    if found is None or found.default is NO_DEFAULT or found.default is None:
        return None
    return default_value(found, c.type)


def default_value(f: AvroField, t: Type) -> Any:
    """The physical value of a field's default; bytes stand in a schema as text of their code points."""
    own, value = f.type.only, f.default
    if own is None or value is None:
        return None
    try:
        if own.kind in ("bytes", "fixed") and isinstance(value, str):
            return _maker(own, t)(value.encode("latin-1"))
        if own.kind in ("int", "long", "float", "double", "boolean", "string", "enum"):
            return _maker(own, t)(value)
        return read_at(f.name, reader(t), value)
    except (ValueError, TypeError):
        return None


# ------------------------------------------------------------------ at once


def _at_once(
    bodies: list[bytes], columns: Sequence[Column], writer: Avro, bare: bool, chosen: Avro | None, schema: str
) -> pl.DataFrame:
    import pyruhvro

    if writer.nullable or writer.kind == "union":
        raise NotAtOnce  # a top that may be null is a null value: rare, and told record by record
    found = pyruhvro.deserialize_array(bodies, schema)
    own = writer.real
    if bare:
        top = found.column(0) if own.kind != "record" else _whole(found)
        return pl.DataFrame([finished(_converted(top, own, columns[0].type, chosen), columns[0])])
    made = []
    for c, f in _pairs(own, columns):
        if f is None:
            value = _default_of(c, chosen)
            made.append(pl.Series(c.name, [value], dtype=physical_type(c.type)).cast(polars_type(c.type)))
            made[-1] = made[-1].new_from_index(0, found.num_rows)
            continue
        picked = chosen.only.field(f.name) if chosen is not None and chosen.only is not None else None
        x = found.column(own.fields.index(f))
        made.append(finished(_converted(x, f.type, c.type, None if picked is None else picked.type), c))
    return pl.DataFrame(made)


def _whole(found: pa.RecordBatch) -> pa.Array:
    return pa.StructArray.from_arrays(found.columns, fields=list(found.schema))


def _converted(x: pa.Array, a: Avro, t: Type, chosen: Avro | None) -> pa.Array:
    """A column as Arrow has it in the physical form of `t`. It raises where a value does not fit."""
    own = a.only
    if own is None:
        if any(b.kind != "null" for b in a.some):
            raise NotAtOnce
        return pa.nulls(len(x), arrow_type(t))
    if a.real.kind == "union" and pa.types.is_union(x.type):  # a union of one
        raise NotAtOnce
    inner = _inner(chosen)
    match t:
        case Array(element):
            assert own.items is not None
            below = None if inner is None else inner.items
            return listed(x, _converted(x.values, own.items, element, below))
        case Map(key, value):
            return listed(x, _entries(x, own, key, value))
        case Struct(fields):
            made = []
            for c, f in _pairs(own, fields):
                picked = inner.field(c.name) if inner is not None else None
                if f is None:
                    made.append(pa.array([_default_of(c, chosen)] * len(x), arrow_type(c.type)))
                else:
                    made.append(
                        _converted(x.field(own.fields.index(f)), f.type, c.type, picked.type if picked else None)
                    )
            return pa.StructArray.from_arrays(made, names=[c.name for c in fields], mask=x.is_null())
        case Decimal():
            return _decimals(_binary(x, own), own, t)
    return _scalar(x, own, t)


def _entries(x: pa.Array, a: Avro, key: Type, value: Type) -> pa.Array:
    assert a.items is not None
    if a.kind == "map":
        both = [_scalar(x.keys, Avro("string"), S.VARCHAR), _converted(x.items, a.items, value, None)]
        return pa.StructArray.from_arrays(both, names=["key", "value"])
    entries, inside = a.entries, x.values
    assert entries is not None
    both = [_converted(inside.field(i), entries[i].type, t, None) for i, t in enumerate((key, value))]
    return pa.StructArray.from_arrays(both, names=["key", "value"], mask=inside.is_null())


def _scalar(x: pa.Array, a: Avro, t: Type) -> pa.Array:
    if a.kind == "int":
        x = x.cast(pa.int32())  # refuses what is out of range
    match t:
        case S.BOOLEAN:
            return x
        case S.VARCHAR if a.kind in ("string", "enum"):
            x.validate(full=True)
            return x
        case S.VARCHAR if a.kind in ("int", "long", "boolean"):
            return x.cast(pa.string())
        case S.INT:
            return x
        case S.BIGINT:
            return x.cast(pa.int64())
        case S.SMALLINT:
            return x.cast(pa.int16())  # the same
        case S.DOUBLE:
            return x.cast(pa.float64(), safe=False)
        case S.REAL:
            return singles(x)
        case S.BYTES:
            return _binary(x, a)
        case S.DATE | S.TIME | S.TIMESTAMP | S.TIMESTAMPTZ:
            return _moments(x.cast(pa.int64()), a, t)
    raise NotAtOnce


def _moments(x: pa.Array, a: Avro, t: Scalar) -> pa.Array:
    whole, per = WHOLE[t], per_ms(a)
    numbers = pl.Series("x", x)
    if not numbers.is_between(max(whole.low * per, -(2**63)), min(whole.high * per, 2**63) - 1).all():
        raise Malformed(f"out of range for {t}")
    unit = whole.unit
    made = numbers * (unit // per) if unit >= per else numbers // (per // unit)
    return made.to_arrow()


def _binary(x: pa.Array, a: Avro) -> pa.Array:
    """What was read as text is bytes again; a record of numbers is one row of bytes."""
    if a.kind == "bytes":
        return x.view(pa.binary())
    if not len(x):
        return pa.array([], pa.binary())
    columns = [pc.fill_null(x.field(i), 0.0).to_numpy() for i in range(x.type.num_fields)]
    raw = np.hstack([c.view(np.uint8).reshape(len(x), c.dtype.itemsize) for c in columns])
    made = pa.FixedSizeBinaryArray.from_buffers(pa.binary(a.size), len(x), [None, pa.py_buffer(raw.tobytes())])
    out = made.cast(pa.binary())
    return pc.if_else(x.is_null(), pa.scalar(None, pa.binary()), out) if x.null_count else out


def _decimals(x: pa.Array, a: Avro, t: Decimal) -> pa.Array:
    """Numbers of up to 16 bytes, the highest first."""
    if a.scale != t.scale:
        raise NotAtOnce
    offsets = np.frombuffer(x.buffers()[1], np.int32, len(x) + 1, x.offset * 4)
    data = np.frombuffer(x.buffers()[2] or b"\0", np.uint8)
    size, end = np.diff(offsets), offsets[1:]
    if size.max(initial=0) > 16 or ((size == 0).any() and x.null_count == 0):
        raise Malformed("too many digits")
    first = data[np.minimum(offsets[:-1], len(data) - 1)]
    sign = np.where((size > 0) & (first >= 0x80), 255, 0).astype(np.uint8)
    low = np.empty((len(x), 16), np.uint8)
    for i in range(16):
        low[:, i] = np.where(i < size, data[np.clip(end - 1 - i, 0, len(data) - 1)], sign)
    made = pa.Array.from_buffers(pa.decimal128(38, a.scale), len(x), [None, pa.py_buffer(low.tobytes())])
    if x.null_count:
        made = pc.if_else(x.is_null(), pa.scalar(None, made.type), made)
    return made.cast(pa.decimal128(t.precision, t.scale))  # refuses what has too many digits
