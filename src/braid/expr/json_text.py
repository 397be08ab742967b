"""JSON text: reading it without loss, and writing plain values as it.

In: JSON text; Python values. Out: Python values; JSON text.
Rule: numbers with a point or an exponent are read as their text, so nothing is rounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any


class RawNumber(str):
    """The text of a JSON number that is not an integer."""

    __slots__ = ()


def _constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_float=RawNumber, parse_constant=_constant)
_LONG_DECODER = json.JSONDecoder(parse_float=RawNumber, parse_int=RawNumber, parse_constant=_constant)
MAX_DEPTH = 200


def loads(text: str, *, to_end: bool = True) -> Any:
    """The JSON value of `text`; ValueError for anything that is not JSON, or is nested more than `MAX_DEPTH` deep.
    `to_end` false: what stands behind the value is not looked at."""
    check_depth(text)
    try:
        return _DECODER.decode(text) if to_end else _DECODER.raw_decode(text.lstrip(" \t\r\n"))[0]
    except json.JSONDecodeError:
        raise
    except ValueError:  # an integer of more digits than Python converts (or NaN, which fails again)
        return _LONG_DECODER.decode(text)


def check_depth(text: str, most: int = MAX_DEPTH) -> None:
    """Refuses JSON that is nested more than `most` deep."""
    if text.count("[") + text.count("{") > most and _depth(text) > most:
        raise ValueError("the JSON is nested too deeply")


def _depth(text: str) -> int:
    """How deep brackets nest, outside strings."""
    deepest = depth = 0
    for token in re.findall(r'"(?:[^"\\]|\\.)*"?|[\[{\]}]', text, re.DOTALL):
        if token in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif token in "]}":
            depth -= 1
    return deepest


dumps: Callable[[object], str] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Compact JSON text of plain Python values."""


def compact(value: Any) -> str:
    """Compact JSON text of what `loads` gave, numbers as they were written."""
    match value:
        case RawNumber():
            return str(value)
        case dict():
            return "{" + ",".join(f"{dumps(k)}:{compact(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ",".join(map(compact, value)) + "]"
        case _:
            return dumps(value)
