"""Keys as people write them, and as records have them.

In: a key that is asked for, `--key "7, abc"`; the text of a key as heads of records have it, `{"k0":7,"k1":"abc"}`.
Out: the texts that are meant by the one; what a reader sees of the other; what is left of a key for who
looks for its spelling.
Rule: what is shown can be asked for as it is shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import product

import polars as pl


def texts_of(key: str, parts: Sequence[str] = ()) -> list[str]:
    """The texts that a key may have: as JSON, or plainly. `parts`: the names of its parts, where these are several;
    their values are then also taken in a line, separated by commas."""
    made = [key, json.dumps(key), json.dumps(key, ensure_ascii=False)]
    try:
        found = json.loads(key)
        made.append(json.dumps(found, separators=(",", ":"), ensure_ascii=False))
        made += [json.dumps({n: v for n, v in found.items()})] if isinstance(found, dict) else []
    except ValueError:
        pass
    values = [v.strip() for v in key.split(",")]
    if 1 < len(values) == len(parts):
        made.append(",".join(values))  # DELIMITED
        for written in product(*map(_written, values)):
            pairs = [(json.dumps(n, ensure_ascii=False), v) for n, v in zip(parts, written, strict=True)]
            made += [
                "{" + comma.join(n + colon + v for n, v in pairs) + "}" for comma, colon in ((",", ":"), (", ", ": "))
            ]
    return list(dict.fromkeys(made))


def _written(value: str) -> Iterator[str]:
    """How JSON may write a part: as a text, or as it is where it is a value."""
    if value == "NULL":
        yield "null"
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    yield json.dumps(value[1:-1] if quoted else value, ensure_ascii=False)
    try:
        if not quoted and not isinstance(json.loads(value), str | dict | list):
            yield value
    except ValueError:
        pass


def shown_text(text: str) -> str:
    """A text of heads as people see it: without the quotes of JSON, the values of several parts in a line."""
    if not text.startswith(("{", '"')):
        return text
    try:
        found = json.loads(text, parse_float=str, parse_int=str)
    except ValueError:
        return text
    return ", ".join(map(_seen, found.values())) if isinstance(found, dict) else str(found)


def _seen(value: object) -> str:
    return "NULL" if value is None else value if isinstance(value, str) else json.dumps(value)


def has_numbers_of(asked: str, key: str) -> bool:
    """Another number is another thing, and no misspelling."""
    parts, others = asked.split(", "), key.split(", ")
    return len(parts) == len(others) and all(a == b for a, b in zip(parts, others, strict=True) if a.isdigit())


def bare(text: str) -> str:
    """What is left of a key without case, blanks, zeros in front and signs between."""
    made = "".join(c for c in text.lower() if c.isalnum())
    return made.lstrip("0") or made


def bares(texts: pl.Series) -> pl.Series:
    """The same of many keys."""
    made = texts.str.to_lowercase().str.replace_all(r"[^\p{L}\p{N}]", "")
    letters = made.str.strip_chars_start("0")
    return made.zip_with(letters == "", letters)
