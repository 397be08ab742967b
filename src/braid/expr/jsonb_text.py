"""JSONB: a JSON document as the text that stands for it.

In: JSON texts and values (`json_text.loads`). Out: the one text of a document; its value.
Rule: as RisingWave keeps documents (src/common/src/types/jsonb.rs, which prints through serde_json): keys in the order
of their bytes, the last of equal ones; a whole number of 64 bits as it is, any other number as the double that is
nearest to it; a blank behind ':' and ','. Documents with one text are one value: 1 and 1.0 are two.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

from braid.expr.json_text import RawNumber, check_depth, dumps, loads

_WHOLE = range(-(2**63), 2**64)
_DEEPEST = 127  # as serde_json reads; a record that holds a document is read, too
NO_JSON = "invalid input syntax for type jsonb"


def document(text: str) -> str:
    """The text of a JSON text's document. `ValueError`: it is none."""
    try:
        value = loads(text)
    except (ValueError, RecursionError):
        raise ValueError(NO_JSON) from None
    return written(value)


def value_of(document: str) -> Any:
    """The value of a document, its numbers as they are written there."""
    return loads(document)


def written(value: Any) -> str:
    """The text of a value. `ValueError`: half a pair of surrogates, a number that no double is near to, or one
    that nests too deeply."""
    text = _text(value)
    check_depth(text, _DEEPEST)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{NO_JSON}: half a pair of surrogates") from None
    return text


def _text(value: Any) -> str:
    match value:
        case None | bool():
            return dumps(value)
        case RawNumber():
            return double(float(value))
        case str():
            return dumps(value)
        case float():
            return double(value)
        case int():
            return _whole(value)
        case dict():
            return "{" + ", ".join(f"{dumps(k)}: {_text(value[k])}" for k in sorted(value, key=_bytes)) + "}"
        case list():
            return "[" + ", ".join(map(_text, value)) + "]"
    raise ValueError(f"{NO_JSON}: {value!r:.40}")


def pretty(value: Any, indent: int = 0) -> str:
    """The text of a value over several lines, four blanks a level."""
    inner, outer = f"\n{' ' * (indent + 4)}", f"\n{' ' * indent}"
    match value:
        case dict() if value:
            each = [f"{dumps(k)}: {pretty(value[k], indent + 4)}" for k in sorted(value, key=_bytes)]
            return "{" + inner + f",{inner}".join(each) + outer + "}"
        case list() if value:
            return "[" + inner + f",{inner}".join(pretty(v, indent + 4) for v in value) + outer + "]"
    return _text(value)


def _bytes(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")


def _whole(value: int) -> str:
    return str(value) if value in _WHOLE else double(float(Decimal(value)))


def double(value: float) -> str:
    """A double as serde_json writes it: digits and a point from 1e-5 to below 1e16, else with an exponent."""
    if not math.isfinite(value):
        raise ValueError("number out of range")
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    assert isinstance(exponent, int)
    point = len(digits) + exponent if value else 1  # digits in front of it
    if 0 < point <= 16:
        text = f"{text.ljust(point, '0')[:point]}.{text[point:] or '0'}"
    elif -5 < point <= 0:
        text = f"0.{'0' * -point}{text}"
    else:
        text = f"{text[0]}{'.' if text[1:] else ''}{text[1:]}e{point - 1}"
    return f"{'-' * sign}{text}"


def plain(document: str) -> str | None:
    """A document as `->>` gives it: a text without its quotes, null as NULL."""
    if document[:1] == '"':
        found = json.loads(document)
        assert isinstance(found, str)
        return found
    return None if document == "null" else document
