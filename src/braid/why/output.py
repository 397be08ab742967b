"""Rows of the result, as they lie in the topic that a query writes.

In: topics, a sink, a place or a key. Out: the rows there, decoded, and which others are equal to them.
Rule: a row is known by what it says: key, values, window, and its time, but where that is only when its epoch was. Of
equal ones the first that a query gave is the first in the topic; where records are gone from its beginning, the last
is the last.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from braid.bind.program import first_match
from braid.errors import BraidError
from braid.face.tabular import IS_NULL, is_inner, shown_key
from braid.operators.changes import DIFF, TIME
from braid.plan.epochs import in_epochs
from braid.plan.logical import Query, Sink, Source, SourceColumn
from braid.records.python import python_values
from braid.reference import OutRecord
from braid.reference.rows import series_of
from braid.stage.inputs import TopicInput
from braid.topics.interface import Topics
from braid.types import Column, Scalar
from braid.why.key_text import texts_of
from braid.why.pages import AT_ONCE
from braid.why.reading import KEY, OFFSET

VALUE = "_value"
PAGE = AT_ONCE  # records read at a time
SHOWN = 10  # rows of a key


@dataclass(frozen=True, slots=True)
class There:
    """A row of the topic; `equal`: the offsets of all rows there that say the same, in order, with their partitions;
    `before`: the offset of the row of its key that it replaces."""

    partition: int
    offset: int
    time: int
    key: tuple[object, ...] | None
    values: Mapping[str, object] | None
    window: tuple[int, int] | None
    says: str
    equal: Sequence[tuple[int, int]] = ()
    before: int | None = None


@dataclass(slots=True)
class Output:
    """The topic that a query writes."""

    query: Query
    topics: Topics
    _input: TopicInput = field(init=False)

    def __post_init__(self) -> None:
        self._input = TopicInput(self.topics, _source_of(self.query.sink))

    def at(self, partition: int | None, offset: int) -> There:
        """The row at an offset. Without a partition that of the only one."""
        topic, ends = self.query.sink.topic, self._input.ends()
        if partition is None and len(ends) > 1:
            raise BraidError(f"{topic} has {len(ends)} partitions", "name one: -p PARTITION")
        p = partition or 0
        if p >= len(ends) or offset >= ends[p]:
            there = f"its last offset is {ends[p] - 1}" if p < len(ends) else f"it has {len(ends)} partition(s)"
            raise BraidError(f"{topic} has no record {p}:{offset}", there)
        start = self.topics.start_offsets(topic)[p]
        found = self._input.read(p, offset, offset + 1).rows
        if not found.height:
            gone = f"partition {p} begins at {start} now" if offset < start else "it is not in its topic any more"
            raise BraidError(f"{topic} has no record {p}:{offset}", gone)
        key, value = (found[c].cast(pl.String, strict=False)[0] for c in (KEY, VALUE))
        alike = pl.col(KEY).eq_missing(pl.lit(key, pl.String))
        if key is None:  # all rows may be so
            alike &= pl.col(VALUE).cast(pl.String, strict=False).eq_missing(pl.lit(value, pl.String))
        (whole,) = (x for x in self._told([*self._all(alike)]) if (x.partition, x.offset) == (p, offset))
        return whole

    def behind(self, row: There) -> int:
        """How many records there are behind a row in its partition."""
        end = self._input.ends()[row.partition]
        if self.topics.dense:
            return end - 1 - row.offset
        pages = ((first, min(first + PAGE, end)) for first in range(row.offset + 1, end, PAGE))
        return sum(self.topics.times(self.query.sink.topic, row.partition, *page).height for page in pages)

    def with_key(self, key: str) -> tuple[Sequence[There], int]:
        """The last rows of a key, as it is written or as it is shown, and how many there are."""
        which = pl.col(KEY).is_in(texts_of(key, [o.name for o in self.query.sink.key]))
        if is_inner(o.name for o in self.query.sink.key):
            which |= pl.col(KEY).map_elements(lambda x: shown_key(json.loads(x)) == key, return_dtype=pl.Boolean)
        found = [*self._all(which)]
        return self._told(found)[-SHOWN:], len(found)

    def shown(self, there: There) -> str | None:
        """The key of a row, as people see it."""
        key = there.key
        if key is not None and is_inner(o.name for o in self.query.sink.key):
            key = tuple(x for o, x in zip(self.query.sink.key, key, strict=True) if not o.name.endswith(IS_NULL))
        return None if key is None else ", ".join("NULL" if v is None else str(v) for v in key)

    def _all(self, which: pl.Expr) -> Iterator[There]:
        starts = self.topics.start_offsets(self.query.sink.topic)
        for p, end in enumerate(self._input.ends()):
            for first in range(starts[p], end, PAGE):
                yield from self._rows(p, first, min(first + PAGE, end), which)

    def _told(self, rows: Sequence[There]) -> list[There]:
        """Rows of one key, with those that are equal, and those that they replace."""
        equal, last = dict[str, list[tuple[int, int]]](), dict[tuple[int, object], int]()
        made = []
        for x in rows:
            equal.setdefault(x.says, []).append((x.partition, x.offset))
            window = (x.partition, x.window)
            before = last.get(window) if self.query.sink.kind == "table" else None
            last[window] = x.offset
            made.append((x, before))
        return [
            There(x.partition, x.offset, x.time, x.key, x.values, x.window, x.says, equal[x.says], before)
            for x, before in made
        ]

    def _rows(self, partition: int, first: int, last: int, which: pl.Expr) -> Iterator[There]:
        rows = self._input.read(partition, first, last).rows.with_columns(pl.col(KEY).cast(pl.String, strict=False))
        rows = rows.filter(which)
        sink = self.query.sink
        names = {c.name: python_values(rows[c.name]) for c in self._input.source.columns}
        keys = [names[f"k{i}"] for i in range(len(sink.written_key))]
        values = {o.name: names[f"v{i}"] for i, o in enumerate(sink.values)}
        for i, (offset, time, diff, text) in enumerate(rows.select(OFFSET, TIME, DIFF, KEY).iter_rows()):
            key = None if text is None else tuple(k[i] for k in keys)
            window = None if sink.window is None else (int(names["w0"][i]), int(names["w1"][i]))
            mine = None if diff == -1 else {n: column[i] for n, column in values.items()}
            says = self._says(key, mine, time, window)
            yield There(partition, offset, time, key, mine, window, says)

    def says(self, row: OutRecord) -> str:
        """What a row says that the definitions give."""
        return self._says(row.key, row.values, row.time, row.window)

    def say_as_read(self, rows: Sequence[OutRecord]) -> list[str]:
        """The same of rows as they are read back: a format may write what it has not got (a null) as another value."""
        columns = [Column(o.name, o.expr.type) for o in self.query.sink.values]
        facet, values = self.query.sink.encoding.of_values(len(columns)), [r.values or {} for r in rows]
        frame = pl.DataFrame([series_of(c.name, [v.get(c.name) for v in values], c.type) for c in columns])
        texts = facet.format.encode(frame, [(c.name, c) for c in columns], facet)
        there = pl.Series([r.values is not None for r in rows], dtype=pl.Boolean)
        read, null, _ = facet.decode(texts.zip_with(there, pl.Series([None], dtype=texts.dtype)), columns)
        names = {c.name: python_values(read[c.name]) for c in columns}
        made = ({n: x[i] for n, x in names.items()} for i in range(len(rows)))
        return [
            self._says(r.key, None if gone else mine, r.time, r.window)
            for r, mine, gone in zip(rows, made, null, strict=True)
        ]

    def _says(
        self,
        key: tuple[object, ...] | None,
        values: Mapping[str, object] | None,
        time: int,
        window: tuple[int, int] | None,
    ) -> str:
        sink = self.query.sink
        named = None if sink.encoding.key == "NONE" or key is None or all(k is None for k in key) else key
        return repr((named, values, None if in_epochs(self.query.root) else time, window))


def _source_of(sink: Sink) -> Source:
    """What a sink writes, as something that is read."""
    names = [o.name for o in sink.key] or [f"KEY_{i}" for i in range(len(sink.written_key))]
    keys = [
        SourceColumn(f"k{i}", n, Column(n, e.type), "key")
        for i, (n, e) in enumerate(zip(names, sink.written_key, strict=True))
    ]
    values = [SourceColumn(f"v{i}", o.name, Column(o.name, o.expr.type), "value") for i, o in enumerate(sink.values)]
    bounds = [
        SourceColumn("w0", "WINDOWSTART", Column("WINDOWSTART", Scalar.BIGINT), "windowstart"),
        SourceColumn("w1", "WINDOWEND", Column("WINDOWEND", Scalar.BIGINT), "windowend"),
    ]
    columns = (*keys, *values, *(bounds if sink.window is not None else ()))
    return Source("OUT", sink.name, sink.topic, sink.kind, columns, sink.encoding)


def topic_named(topics: Topics, name: str) -> str:
    found = first_match(name, topics.names())
    if found is None:
        raise BraidError(f"no topic {name} in this store", f"topics: {', '.join(topics.names()) or 'none'}")
    return found
