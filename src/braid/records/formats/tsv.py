"""A toy: fields with tabs between them.

In: lines; columns. Out: see `Format`.
Rule: a tab, a line feed and a backslash of a text are written \\t, \\n and \\\\; an empty field is null.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from braid.records.codec import Decoded
from braid.records.formats.interface import Facet, Named
from braid.records.formats.lines import Lines, field_text, read_fields
from braid.types import Column

ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n"}


class Tsv(Lines):
    def read(self, lines: pl.Series, columns: Sequence[Column], facet: Facet) -> Decoded:
        fields = lines.str.split("\t")
        back = {written: plain for plain, written in ESCAPES.items()}
        plain = fields.list.eval(pl.element().str.replace_many(list(back), list(back.values())))
        return read_fields(lines, plain, columns)

    def written(self, frame: pl.DataFrame, columns: Named, facet: Facet) -> pl.Series:
        texts = [field_text(frame[name], c.type).alias(str(i)) for i, (name, c) in enumerate(columns)]
        fields = (pl.col(t.name).str.replace_many(list(ESCAPES), list(ESCAPES.values())).fill_null("") for t in texts)
        return pl.DataFrame(texts).select(pl.concat_str(*fields, separator="\t").alias("line"))["line"]
