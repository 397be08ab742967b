"""What goes into the reference, what comes out, and what its steps share: rows, keys and the values of expressions.

In: events (records, bounds, idle marks) at places of the processing order. Out: records of the result, and drops.
Rule: a value is computed from a row's columns alone, by the one implementation of expressions (`expr.compile`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import polars as pl

from braid.expr import trace
from braid.expr.compile import evaluate
from braid.expr.nodes import Col, Expr, children, columns
from braid.expr.show import NO_NAMES
from braid.plan.drop_reasons import Reason
from braid.records.key import canonical_key
from braid.records.python import python_values
from braid.types import TIMESTAMPS, Column, Scalar, Type, polars_type

Place = Any  # of the processing order: opaque, ordered, given by the caller
Values = dict[str, object]
Origin = frozenset[Place]  # of a row: which of the records that are asked for it was made of
NOBODY: Origin = frozenset()
BEFORE: Place = (-(2**61) - 2**60, 0)  # of rows that are there before any record has come


def epoch_of(place: object) -> int:
    """The epoch of a place: its first part."""
    first = place[0] if isinstance(place, tuple) else place
    assert isinstance(first, int)
    return first


# ---------------------------------------------------------------- in


@dataclass(frozen=True, slots=True)
class Record:
    """A record of the source number `leaf` (in the order of `logical.sources`), its time already taken from TIMESTAMP.

    `values`: plan column name -> Python value, key columns included; pseudo columns need not be given.
    `null`: the record's value is null (a tombstone of a table). `error`: why it could not be read. `message_key`: the
    key of the message, looked at only where the source has KEY='c'.
    """

    leaf: int
    partition: int
    offset: int
    time: int
    values: Mapping[str, object]
    null: bool = False
    headers: object = None
    place: Place = None
    message_key: object = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """No record below `time` will follow in these (leaf, partition): moves the clock, but not the stored clock."""

    partitions: tuple[tuple[int, int], ...]
    time: int
    place: Place = None


@dataclass(frozen=True, slots=True)
class Idle:
    """These (leaf, partition) fall idle, all at once. A later record wakes its partition again."""

    partitions: tuple[tuple[int, int], ...]
    place: Place = None


@dataclass(frozen=True, slots=True)
class End:
    """These (leaf, partition) end, all at once: idle from here on, or past every time (`Source.end`)."""

    partitions: tuple[tuple[int, int], ...]
    place: Place = None


@dataclass(frozen=True, slots=True)
class Clocked:
    """A record of which nothing but its time counts: what moves the clock of its source, and the clock of the records
    that a join can store. None: it does not move that one."""

    leaf: int
    partition: int
    time: int | None
    stored: int | None
    place: Place = None


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of clocks that follow each other, `count` of them, the last one at `place`: what they have shown at most,
    of each partition."""

    highest: Sequence[Clocked]
    count: int
    place: Place


Event = Record | Bound | Idle | End | Clocked

# ---------------------------------------------------------------- out


@dataclass(frozen=True, slots=True)
class OutRecord:
    """A row of the result. `key` None: a null key; `values` None: a tombstone (or a null value); `place`: its cause."""

    key: tuple[object, ...] | None
    values: Values | None
    time: int
    headers: object
    place: Place
    window: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """A row that `step` gave (a leaf, or a step numbered after the leaves, inputs first) and that its reader dropped.

    `expression`: something that `step` computed failed and became null; the row itself lives. `place`: of the record
    that completed the row; of a padded row, of that row's own record. `key`: what a join matched it by. `message`:
    which expression failed, and why; why a record could not be read.
    """

    reason: Reason
    step: int
    time: int
    values: Values
    place: Place
    key: Key | None = None
    message: str | None = None


# ---------------------------------------------------------------- between


@dataclass(frozen=True, slots=True)
class Row:
    """A row on its way. `gone`: a tombstone of a table (only its key columns are set), or a stream's null value.
    `cause`: the place of the record that completed it, if that is not the present one. `origin`: nothing follows from
    it; whoever listens knows the row by it."""

    values: Values
    time: int
    headers: object
    gone: bool = False
    cause: Place = None
    origin: Origin = field(default=NOBODY, compare=False)


@dataclass(frozen=True, slots=True)
class Key:
    """`text` is the canonical key bytes as text (which sorts as its bytes do): keys are equal iff their texts are."""

    values: tuple[object, ...]
    text: str


def bytes_of(key: Key, exprs: Sequence[Expr], binary: bool) -> bytes:
    """The bytes of a key, for their order. `binary`: of the number of one column, the highest first; else its text."""
    first, t = key.values[0], exprs[0].type
    if binary and len(exprs) == 1 and isinstance(first, int) and t in (Scalar.INT, Scalar.BIGINT):
        return first.to_bytes(4 if t is Scalar.INT else 8, "big", signed=True)
    if binary and len(exprs) == 1 and isinstance(first, float):
        return struct.pack(">d", first)
    return key.text.encode()


What = Literal[
    "read", "dropped", "filtered", "empty", "met", "missed", "failed", "alone", "padded", "waits", "stands", "gone",
    "grouped", "gave",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fact:
    """What becomes of a row in a step, at a place, as its step says it.

    read: it goes on. dropped: as of `Drop`; of a late one the `clock`, and the `limit` that its time is below, or when
    its window `closed`. filtered: the predicate is not true. empty: it has no elements. met: a pair with the row of
    `other`. missed: the row of `other` has its key and gives no pair: their times are `apart` by more than the join
    allows (ms), or (0) it was not seen any more. failed: they meet, and the residual is not true. alone: it met nothing
    when it came. padded: it goes out alone. waits: `until` a clock passes that; `now` gives that clock. stands, gone: a
    row of a table under a key. grouped: it counts in a group. gave: it is written.
    """

    what: What
    step: int
    place: Place
    origin: Origin
    row: Row
    detail: Mapping[str, Any]


@dataclass(slots=True)
class Run:
    """What all steps share: the place of now, the drops, and values computed before. `listener`: is told what becomes
    of the records at the places `asked`, and of all rows of tables."""

    place: Place = None
    number: int = 0  # of the place; two sources that read one record do so at one
    whole: bool = True  # the place's record has come to all sources that read it
    drops: list[Drop] = field(default_factory=list)
    _known: dict[tuple[int, str], tuple[object, bool]] = field(default_factory=dict)
    _learnt: dict[int, Expr] = field(default_factory=dict)  # by its number, which no other has while it is here
    _texts: dict[tuple[str, str], str] = field(default_factory=dict)
    listener: Callable[[Fact], None] | None = None
    asked: Origin = NOBODY
    only: Collection[What] = ()  # it is told nothing else, if it says so

    def wants(self, what: What) -> bool:
        return self.listener is not None and (not self.only or what in self.only)

    def tell(self, what: What, step: int, row: Row, **detail: object) -> None:
        """Nothing follows from it."""
        if self.listener is not None and (row.origin or what in ("stands", "gone")) and self.wants(what):
            self.listener(Fact(what, step, self.place, row.origin, row, detail))

    def drop(
        self,
        reason: Reason,
        step: int,
        row: Row,
        key: Key | None = None,
        message: str | None = None,
        **more: object,
    ) -> None:
        self.drops.append(Drop(reason, step, row.time, row.values, self.placed(row).cause, key, message))
        self.tell("dropped", step, row, reason=reason, key=key, message=message, **more)

    def placed(self, row: Row) -> Row:
        """The row as it is kept: with its cause, wherever it goes on."""
        return row if row.cause is not None else replace(row, cause=self.place)

    def value(self, e: Expr, step: int, row: Row, names: Mapping[str, str] = NO_NAMES) -> object:
        """The value of `e` for a row that is in `step`."""
        return self.values([e], step, row, names)[0]

    def values(
        self, exprs: Iterable[Expr], step: int, row: Row, names: Mapping[str, str] = NO_NAMES
    ) -> tuple[object, ...]:
        """The values of several. A row is told once, however many of them fail; one that goes was told when it came."""
        exprs = list(exprs)
        found = [self.look(e, row) for e in exprs]
        if not row.gone and any(failed for _, failed in found):
            self.drop(Reason.EXPRESSION, step, row, message=reason(exprs, row.values, names))
        return tuple(value for value, _ in found)

    def look(self, e: Expr, row: Row) -> tuple[object, bool]:
        """The value of `e`, and whether it is null for a failure. Computed once per combination of inputs."""
        if isinstance(e, Col):
            return row.values[e.name], False
        known = (id(e), _inputs(e, row.values))
        if known not in self._known:
            self.learn(e, [row.values])
        return self._known[known]

    def learn(self, e: Expr, rows: Sequence[Mapping[str, object]]) -> None:
        """Computes `e` for many rows at once."""
        new = {_inputs(e, x): x for x in rows if (id(e), _inputs(e, x)) not in self._known}
        if new:
            self._learnt[id(e)] = e
            values, failed = evaluated([("x", e)], list(new.values()))
            for i, inputs in enumerate(new):
                self._known[id(e), inputs] = values["x"][i], failed[i]

    def key(self, exprs: Sequence[Expr], step: int, row: Row) -> Key | None:
        """A row's key; None for a null key: all of its columns are null."""
        values = self.values(exprs, step, row)
        return None if all(v is None for v in values) else Key(values, self._text(values, [e.type for e in exprs]))

    def _text(self, values: Sequence[object], types: Sequence[Type]) -> str:
        known = (" ".join(map(str, types)), repr(values))
        if known not in self._texts:
            names = [f"c{i}" for i in range(len(types))]
            data = [series_of(n, [v], t) for n, v, t in zip(names, values, types, strict=True)]
            fields = [Column(n, t) for n, t in zip(names, types, strict=True)]
            self._texts[known] = canonical_key(pl.DataFrame(data), fields)[0]
        return self._texts[known]


def _inputs(e: Expr, values: Mapping[str, object]) -> str:
    return repr([values[name] for name in columns(e)])


def _types(e: Expr) -> dict[str, Type]:
    """The columns that `e` reads, with their types."""
    own: dict[str, Type] = {e.name: e.type} if isinstance(e, Col) else {}
    return own | {name: t for x in children(e) for name, t in _types(x).items()}


def reason(exprs: Sequence[Expr], values: Mapping[str, object], names: Mapping[str, str] = NO_NAMES) -> str | None:
    """Which of the expressions failed for a row, and why."""
    told: str | None = trace.messages(_frame(exprs, [values]), exprs, names)[0]
    return told


def evaluated(
    outputs: Sequence[tuple[str, Expr]], rows: Sequence[Mapping[str, object]]
) -> tuple[dict[str, list[object]], list[bool]]:
    """The expressions' values for all rows, and for which rows one of them failed."""
    result, failed = evaluate(_frame([e for _, e in outputs], rows), list(outputs))
    return {name: python_values(result[name]) for name, _ in outputs}, failed.to_list()


def _frame(exprs: Sequence[Expr], rows: Sequence[Mapping[str, object]]) -> pl.DataFrame:
    """The columns that expressions read."""
    types = {name: t for e in exprs for name, t in _types(e).items()}
    data = [series_of(name, [x[name] for x in rows], t) for name, t in types.items()]
    return pl.DataFrame([pl.Series("_row", range(len(rows)), dtype=pl.Int64), *data])


def series_of(name: str, values: Sequence[object], t: Type) -> pl.Series:
    """The column of such values, among them dates and times that Python has none for (`python_values`)."""
    dtype = polars_type(t)
    if t in (Scalar.DATE, *TIMESTAMPS) and any(type(v) is int for v in values):
        return pl.concat([pl.Series(name, [v], dtype=dtype) for v in values])
    return pl.Series(name, values, dtype=dtype)
