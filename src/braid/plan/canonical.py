"""The canonical text of a query, for fingerprints in checkpoints.

In: a logical query. Out: JSON text that is equal iff the queries mean the same, letter for letter.
Rule: types are in it; SQL text, spans, notices and the order in which columns are shown are not. A field that has its
default value is left out, so that a new field does not change old texts.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from dataclasses import MISSING, Field, fields, is_dataclass
from decimal import Decimal as PyDecimal
from typing import Any

from braid.plan.logical import Query
from braid.types import Scalar

NOT_MEANING = {"Query": ("sql", "notices"), "Sink": ("columns",)}


def canonical(query: Query) -> str:
    """The text; two queries with the same text run from the same checkpoint."""
    return json.dumps(_form(query), ensure_ascii=False, separators=(",", ":"))


def _form(x: Any) -> Any:
    """JSON data for a plan value; a node is `[its name, {field: value}]`."""
    if isinstance(x, Scalar):
        return x.name
    if is_dataclass(x):
        name = type(x).__name__
        skipped = NOT_MEANING.get(name, ())
        return [name, {f.name: _form(getattr(x, f.name)) for f in fields(x)
                       if f.name not in skipped and getattr(x, f.name) != _default(f)}]  # fmt: skip
    match x:
        case tuple() | list():
            return [_form(i) for i in x]
        case dict():
            return {"map": [[_form(k), _form(v)] for k, v in x.items()]}
        case PyDecimal():
            return {"decimal": str(x)}
        case bytes():
            return {"bytes": base64.b64encode(x).decode()}
        case dt.datetime() | dt.date() | dt.time():
            return {"time": x.isoformat()}
        case float():
            return {"double": repr(x)}
        case None | bool() | int() | str():
            return x
    raise TypeError(f"no canonical form for {type(x).__name__}")


def _default(f: Field[Any]) -> Any:
    return f.default if f.default is not MISSING else MISSING
