"""Records to fuzz with: texts that are nearly what a column, a record, a line or a file should be.

In: declared columns, a random generator. Out: JSON texts of keys and values, lines of topics, bytes of files.
Rule: the same seed gives the same records. About half of what is made can be read.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from braid.types import MAX_DAY, MAX_TIME, Array, Column, Decimal, Map, Scalar, Struct, Type

S = Scalar

NUMBERS = (
    *("0", "1", "-1", "7", "-0", "-0.0", "0.0", "1.0", "1.5", "1e2", "1E+2", "1e400", "-1e400", "1e-400"),
    *("1" + "0" * 400,),
    *("2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808"),
    *("-9223372036854775808", *map(str, (MAX_TIME - 1, MAX_TIME, -MAX_TIME - 1, MAX_DAY)), "253402300800000", "1e15"),
    *("86399999", "86400000", "0.1", "99999999999999999999.99", "12345678.905", "01", "+1", ".5", "5.", "1e", "0x10"),
    *("NaN", "Infinity", "-Infinity", "nan", "--1", "1_000", "١", "1 2", "1e5000", "-", "1" * 5000),
)  # fmt: skip
TEXTS = (
    *('""', '"a"', '"x"', '"é"', '"😀"', '"名前"', r'"\u0000"', '"\0"', r'"\ud83d\ude00"', r'"\ud800"', r'"\udc00x"'),
    *(r'"\n"', '"\n"', '"\t"', r'"\""', r'"\x"', r'"\u12"', '"a', 'a"', "'a'", '"1"', '"1.5"', '"NaN"', '"Infinity"'),
    *('"true"', '"null"', '"YQ=="', '"YQ="', '"Y Q=="', '"2024-01-01"', '"2024-01-01T00:00:00"', '"0000-00-00"'),
    *('"' + "s" * 100_000 + '"', '"a,b"', '"{}"', r'"{\"A\":1}"', '"\u2028"', '"\ufeff"', '"e\u0301"', r'"\/"', '" "'),
)  # fmt: skip
OTHERS = (
    *("null", "true", "false", "Null", "TRUE", "nul", "", " ", "{}", "[]", "[1]", '{"a":1}'),
    *("{", "[", "]", "}", ",", ":"),
    *("[" * 300 + "]" * 300, "[" * 100_000, '{"a":' * 300 + "1" + "}" * 300, '{"a":' * 5000, "[1,]", '{"a"}'),
    *("{'a':1}",),
    *("undefined", "\ufeff1", "1 1", "null null", "\0", "\x1f", "/* c */ 1", "[null]", '{"":null}', "[[],[]]", "\\"),
)  # fmt: skip


def value(r: random.Random, t: Type) -> str:
    """A JSON text for a column of type `t`: mostly right, else anything."""
    roll = r.random()
    if roll < 0.6:
        return right(r, t)
    if roll < 0.68:
        return "null"
    return r.choice(r.choice((NUMBERS, TEXTS, OTHERS)))


def right(r: random.Random, t: Type) -> str:
    """A JSON text that is a value of `t`."""
    match t:
        case S.BOOLEAN:
            return r.choice(("true", "false"))
        case S.SMALLINT | S.INT | S.BIGINT | S.DATE | S.TIME:
            return str(r.randrange(4))
        case S.TIMESTAMP | S.TIMESTAMPTZ:
            return str(r.randrange(20) * 1000)
        case S.REAL | S.DOUBLE:
            return r.choice(("0", "1.5", "-2.25", "1e10"))
        case Decimal(precision, scale):
            return f'"{r.randrange(10 ** min(precision - scale, 4))}"'
        case S.VARCHAR:
            return json.dumps(r.choice(("a", "b", "é", "")))
        case S.BYTES:
            return '"YQ=="'
        case Array(element):
            return f"[{', '.join(value(r, element) for _ in range(r.randrange(3)))}]"
        case Map(_, item):
            return "{" + ", ".join(f"{json.dumps(k)}:{value(r, item)}" for k in "ab"[: r.randrange(3)]) + "}"
        case Struct(fields):
            return document(r, [Column(f.name, f.type) for f in fields])
        case _:
            return "null"


def document(r: random.Random, columns: Sequence[Column]) -> str:
    """An object with a member for about each column: some missing, doubled, in other case, unknown."""
    members: list[str] = []
    for c in columns:
        for _ in range(r.choices((0, 1, 2), (1, 20, 1))[0]):
            name = r.choices((c.name, c.name.lower(), c.name.title()), (6, 2, 1))[0]
            text = right(r, c.type) if r.random() < 0.85 else value(r, c.type)
            blank = r.choice(("", "", " "))
            members.append(f"{json.dumps(name)}:{blank}{text}")
    if r.random() < 0.1:
        members.append(f'"other":{value(r, S.BIGINT)}')
    r.shuffle(members)
    return "{" + ",".join(members) + "}"


def line(r: random.Random, columns: Sequence[Column], delimiter: str) -> str:
    """A delimited line."""
    fields = [_bare(value(r, c.type)) if r.random() < 0.2 else _bare(right(r, c.type)) for c in columns]
    if r.random() < 0.1:
        fields = r.choice((fields[:-1], [*fields, "x"], []))
    return delimiter.join(fields)


def _bare(text: str) -> str:
    return text[1:-1] if text.startswith('"') and text.endswith('"') and len(text) > 1 else text


def spoilt(r: random.Random, text: str) -> str:
    """One character more, less or other; or cut."""
    at = r.randrange(len(text) + 1)
    match r.randrange(4):
        case 0:
            return text[:at]
        case 1:
            return text[:at] + text[at + 1 :]
        case 2:
            return text[:at] + r.choice('{}[]",:\\ \0\n0eé') + text[at:]
    return text[:at] + chr(r.choice((0, 10, 13, 34, 92, 127, 0x85, 0x2028, 0xFFFF))) + text[at + 1 :]


def parts(
    r: random.Random, keys: Sequence[Column], values: Sequence[Column], encoding: Any
) -> tuple[str | None, str | None]:
    """The texts of a key and a value as these columns want them, or nearly."""
    return _part(r, keys, encoding.key, True, encoding), _part(
        r, values, encoding.value, not encoding.wrapped, encoding
    )


def _part(r: random.Random, columns: Sequence[Column], form: str, bare: bool, encoding: Any) -> str | None:
    if r.random() < 0.04 or not columns:
        return None if r.random() < 0.7 else r.choice(OTHERS)
    if form == "DELIMITED":
        text = json.dumps(line(r, columns, encoding.delimiter), ensure_ascii=False)
    elif len(columns) == 1 and (bare or form == "KAFKA"):
        text = value(r, columns[0].type) if r.random() < 0.3 else right(r, columns[0].type)
    else:
        text = document(r, columns)
    roll = r.random()
    if roll < 0.06:
        return spoilt(r, text)
    return r.choice(r.choice((NUMBERS, TEXTS, OTHERS))) if roll < 0.1 else text
