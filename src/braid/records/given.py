"""JSON texts of keys and values that are given: by a statement, by a test, by another producer.

In: a text, the declared columns and the facet; or the schema that a producer has. Out: the text as it is when it has
been written and read.
Rule: what does not fit stays as it stands; a text that a statement gives is refused where a schema was chosen for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from braid.errors import BraidError
from braid.records import framed
from braid.records.codec import decode_values, encode_values
from braid.records.formats.interface import Facet
from braid.records.registry import Schema
from braid.records.schemas.interface import Others
from braid.types import Column, Struct


def passed(text: str | None, columns: Sequence[Column], facet: Facet) -> str | None:
    """A JSON text as it is when it has been written and read in a format with schemas, or as a line; any other as it
    stands, and one that does not fit."""
    if text is None or not facet.format.rewritten or not columns:
        return text
    frame, _, error = decode_values(pl.Series([text]), columns, unwrapped=facet.bare)
    named = [(c.name, c) for c in columns]
    if error[0] is not None or facet.format.unwritable(frame, named, facet) is not None:
        return text
    found = facet.format.encode(frame, named, facet)[0]
    return text if found is None else str(found)


def inserted(text: str | None, columns: Sequence[Column], facet: Facet) -> str | None:
    """A text of values that are given, `passed`; by a schema that was chosen what is not given has its default, and a
    value for which there is no place is refused."""
    if text is None or facet.schema is None or not facet.schema.text:
        return passed(text, columns, facet)
    text = facet.format.completed(text, columns, facet)
    frame, _, _ = decode_values(pl.Series([text]), columns, unwrapped=facet.bare)
    why = facet.format.unwritable(frame, [(c.name, c) for c in columns], facet)
    if why is not None:
        raise BraidError(f"the schema of the {facet.name} has no place for this: {why[0]}", "give another value")
    return passed(text, columns, facet)


def produced(text: str, schema: Schema, others: Others) -> str:
    """A JSON text as another producer writes it by a schema: fields that are missing have their defaults."""
    try:
        kind = framed.kind_of(schema)
        t, is_record = kind.type_of(schema, others, fold=False, name=schema.message)
        if t is None:
            return text
        bare = not (is_record and isinstance(t, Struct))
        columns = t.fields if isinstance(t, Struct) and not bare else (Column("value", t),)
        frame, null, error = decode_values(pl.Series([kind.completed(text, schema, others)]), columns, unwrapped=bare)
        if error[0] is not None or null[0]:
            return text
        named = [(c.name, c) for c in columns]
        found, _, why = framed.passed(frame, named, schema, others, bare=bare)
        return text if why[0] is not None else str(encode_values(found, named, unwrapped=bare)[0])
    except BraidError:
        return text
