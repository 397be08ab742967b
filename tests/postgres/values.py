"""Values of each type, edges first, as constants that PostgreSQL and risingwave read alike.

In: a seed. Out: texts of SQL.
Rule: what a column of Braid cannot hold (numbers behind 38 digits, microseconds, infinite times) is not among them.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from braid.types import Array, Decimal, Scalar, Type

S = Scalar
SMALL = Decimal(4, 2)
WIDE = Decimal(20, 6)
FREE = Decimal(38, 10)
TYPES: dict[str, Type] = {
    "boolean": S.BOOLEAN,
    "smallint": S.SMALLINT,
    "integer": S.INT,
    "bigint": S.BIGINT,
    "numeric(4,2)": SMALL,
    "numeric(20,6)": WIDE,
    "numeric": FREE,
    "real": S.REAL,
    "double precision": S.DOUBLE,
    "varchar": S.VARCHAR,
    "bytea": S.BYTES,
    "date": S.DATE,
    "time": S.TIME,
    "timestamp": S.TIMESTAMP,
    "timestamptz": S.TIMESTAMPTZ,
    "integer[]": Array(S.INT),
    "varchar[]": Array(S.VARCHAR),
    "jsonb": S.JSONB,
}
NAMES = {t: n for n, t in TYPES.items()}
_TEXTS = ["", " ", "a", "Abc", "abc abc", "ÄÖü ß", "日本語", "😀x😀", "e\u0301", "12", "-7", "1.5", "true", "no",
          "2024-02-29", "%_", "a\\b", "  pad ", "x,y,,z", "ABCDEFGHIJ", "{1,2}", "hex",
          "YYYY-MM-DD", "xyxyx"]  # fmt: skip
_WHOLE = [0, 1, -1, 2, 3, -2, 7, 10, 64]
_DOUBLES = ["0", "-0", "1", "-1", "0.5", "-2.5", "2.5", "1.6", "1e300", "-1e300", "1e-300", "NaN", "Infinity",
            "-Infinity", "0.1", "123456.789", "1e15", "1e-5"]  # fmt: skip
_DATES = ["1970-01-01", "2024-02-29", "2023-12-31", "2000-01-01", "1969-12-31", "0001-01-01", "9999-12-31",
          "12000-03-04", "0044-03-15 BC", "1900-02-28"]  # fmt: skip
_TIMES = ["00:00:00", "23:59:59.999", "12:30:00", "01:02:03.5", "06:00:00"]


# Where both write the same: members of one length, numbers in the fewest digits. None is null as a whole, which a topic
# has as NULL.
_DOCUMENTS = ["{}", "[]", "1", "-3.25", '""', '"b"', "true", "false", '{"a": 1, "b": "b"}',
              '{"a": {"b": [1, "b", null]}}', "[1, 2, 3]", '["a", "b", "b"]', '[1, [2, {"a": null}]]',
              '{"b": null}', '{"Ä": "😀", "😀": 7}']  # fmt: skip


def _whole(bits: int) -> Callable[[random.Random], str]:
    edges = [*_WHOLE, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 2 ** (bits - 2)]

    def draw(r: random.Random) -> str:
        return str(
            r.choice(edges)
            if r.random() < 0.6
            else r.randint(-(2 ** r.randint(1, bits - 1)), 2 ** r.randint(1, bits - 1) - 1)
        )

    return draw


def _numeric(t: Decimal) -> Callable[[random.Random], str]:
    def draw(r: random.Random) -> str:
        whole = t.precision - t.scale
        digits = r.randint(0, min(whole, r.choice((1, 2, 6, 12, whole))))
        front = str(r.randint(0, 10**digits - 1)) if digits else "0"
        back = (
            r.choice(("0", "5", "25", "75", "99", "1", "0000001"))[: t.scale]
            if r.random() < 0.7
            else str(r.randint(0, 10**t.scale - 1)).zfill(t.scale)
        )
        made = f"{r.choice(('', '-'))}{front}.{back}"
        return made.rstrip("0").rstrip(".") if t == FREE else made  # Braid knows no zeros that nobody declared

    return draw


def _text(r: random.Random) -> str:
    made = r.choice(_TEXTS) if r.random() < 0.8 else "".join(r.choice("ab cXYé1-_.%😀") for _ in range(r.randint(0, 9)))
    return made


def _quoted(text: str, name: str) -> str:
    return f"'{text.replace(chr(39), chr(39) * 2)}'::{name}"


def _moment(r: random.Random, dates: list[str]) -> str:
    date = (
        r.choice(dates)
        if r.random() < 0.7
        else f"{r.randint(1600, 2400):04}-{r.randint(1, 12):02}-{r.randint(1, 28):02}"
    )
    day, _, era = date.partition(" ")
    return f"{day} {r.choice(_TIMES)}{' ' + era if era else ''}"


def constant(t: Type, r: random.Random, nulls: float = 0.1) -> str:
    """A constant of a type."""
    name = NAMES[t]
    if r.random() < nulls:
        return f"NULL::{name}"
    match t:
        case S.BOOLEAN:
            return r.choice(("TRUE", "FALSE"))
        case S.SMALLINT | S.INT | S.BIGINT:
            return f"'{_whole({S.SMALLINT: 16, S.INT: 32, S.BIGINT: 64}[t])(r)}'::{name}"
        case Decimal():
            return f"'{_numeric(t)(r)}'::{name}"
        case S.REAL | S.DOUBLE:
            text = r.choice(_DOUBLES) if r.random() < 0.7 else repr(r.uniform(-1000, 1000))
            return f"'{text if t is S.DOUBLE else text.replace('300', '30')}'::{name}"
        case S.BYTES:
            return _quoted("\\x" + r.choice(("", "00", "ff00", "616263", "deadbeef", "c3a4")), name)
        case S.DATE:
            return _quoted(_moment(r, _DATES).partition(" ")[0], name)
        case S.TIME:
            return _quoted(r.choice(_TIMES), name)
        case S.TIMESTAMP:
            return _quoted(_moment(r, _DATES), name)
        case S.TIMESTAMPTZ:
            return _quoted(_moment(r, _DATES), name)
        case Array(element=S.INT):
            items = [r.choice(("1", "2", "3", "-5", "NULL", "2")) for _ in range(r.randint(0, 4))]
            return _quoted("{" + ",".join(items) + "}", name)
        case Array():
            items = [r.choice(("a", "b", "NULL", '"x y"', "Abc")) for _ in range(r.randint(0, 4))]
            return _quoted("{" + ",".join(items) + "}", name)
        case S.JSONB:
            return _quoted(r.choice(_DOCUMENTS), name)
    return _quoted(_text(r), name)
