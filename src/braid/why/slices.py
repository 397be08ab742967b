"""Slices: which records of a query have to do with each other, so that the others need not be looked at.

In: a logical query; the decoded records of its sources. Out: groups of sources by the keys at which their rows meet;
the records that have to do with some.
Rule: a node says by which keys its rows have to do with each other. A key is followed down to the columns of one source
a side; of a key of several parts those count that can be followed, so that a slice is too large rather than too small.
A node of which no part of a key can be followed (no equality, LIMIT, frames that count rows) has one slice: all.
A row of a stream that looks into a table has nothing to do with the other rows of that stream, unless they meet above
by what they find there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import assert_never

import polars as pl

from braid.expr.compile import evaluate
from braid.expr.nodes import Call, Col, Expr, columns, substituted
from braid.expr.show import show
from braid.plan import epochs, groups, joins, logical, sliding
from braid.plan.analytic import Analytic
from braid.plan.over import Over
from braid.records.key import canonical_key
from braid.types import Column
from braid.why.pages import Flags, Rows

Part = Mapping[int, Expr]  # of a key: by source, the expression that gives it


@dataclass(frozen=True, slots=True)
class Met:
    """Records with one key have to do with each other: `keys`, by the number of the source. `of`: the node at which
    they meet, or the meeting in it; `sides`: the sources of each. `from_`: of these sources none by itself: records
    come in by the others alone. `nulls`: a key with a NULL is one, too. `told`: it is only what people call records by;
    nothing follows."""

    of: logical.Node | sliding.Meeting
    sides: Mapping[str, frozenset[int]]
    keys: Mapping[int, tuple[Expr, ...]]
    from_: frozenset[int] = frozenset()
    nulls: bool = False
    told: bool = False


@dataclass(frozen=True, slots=True)
class Sliced:
    """`mets`: what belongs together; `whole`: why nothing can be left out, if so."""

    mets: tuple[Met, ...]
    whole: str | None = None


def sliced(query: logical.Query) -> Sliced:
    """How the records of a query fall into slices."""
    numbers = _Numbers(query.root)
    mets, whole = list[Met](), None
    for node in query.root.walk():
        for sides, alone, nulls in _meetings(node):
            found = numbers.followed(sides, nulls)
            if found is None:
                whole = whole or f"the {node.called} has no key by which its rows fall into groups"
                continue
            keys, by_side = found
            named = dict(zip(("left", "right") if len(by_side) > 1 else ("own",), by_side, strict=True))
            mets.append(Met(node, named, keys, by_side[0] if alone else frozenset(), nulls))
        if isinstance(node, sliding.SlidingJoin):
            mets += numbers.of_windows(node)
    if query.root.mode == "retract" and not _tells_apart(query.sink.written_key, query.root):
        found = numbers.followed([(query.root, query.sink.written_key)], nulls=True)
        whole = whole or ("its table is written under a key that no source has" if found is None else None)
        mets += [] if found is None else [Met(query.root, {"own": found[1][0]}, found[0], nulls=True)]
    if query.sink.written_key and (own := numbers.followed([(query.root, query.sink.written_key)], nulls=True)):
        mets.append(Met(query.root, {"own": own[1][0]}, own[0], nulls=True, told=True))
    if query.sink.limit is not None:
        whole = "LIMIT counts all rows"
    return Sliced(tuple(replace(m, from_=frozenset()) if _looked_up_together(m, mets) else m for m in mets), whole)


def _looked_up_together(met: Met, mets: Sequence[Met]) -> bool:
    """Whether rows that look up one row of a table meet above, by what they find there: by a key that is the table's
    alone."""
    if not met.from_:
        return False
    above = (m for m in mets if not m.told and isinstance(m.of, logical.Node) and any(x is met.of for x in m.of.walk()))
    found = frozenset(met.keys) - met.from_
    return any(m.of is not met.of and met.from_.isdisjoint(m.keys) and not found.isdisjoint(m.keys) for m in above)


def _tells_apart(key: Sequence[Expr], node: logical.Node) -> bool:
    """Whether rows with one key are one row."""
    return bool(node.row_key) and set(node.row_key) <= set(key)


Side = tuple[logical.Node, Sequence[Expr]]


def _meetings(node: logical.Node) -> Iterator[tuple[Sequence[Side], bool, bool]]:
    """By which keys the rows of a node have to do with each other: the keys of each side, whether rows of the first
    side do so only with the others, and whether NULLs are keys."""
    match node:
        case joins.OnKeys():
            left, right = node.spread_by
            yield [(node.left, left), (node.right, right)], isinstance(node, joins.StreamTableJoin), False
            if isinstance(node, joins.ForeignKeyJoin):
                yield [(node.left, node.left.row_key)], False, False
        case epochs.RegularJoin() | epochs.AsOfJoin() | epochs.TemporalJoin():
            sides = [(node.left, node.on.left), (node.right, node.on.right)]
            yield sides, isinstance(node, epochs.TemporalJoin), any(node.on.null_safe)
        case groups.Aggregate():
            # a part that says whether the next one is NULL tells groups apart, and people ask without it
            keys = [e for _, e in node.keys if not (isinstance(e, Call) and e.function == "is_null")]
            yield [(node.input, keys or [e for _, e in node.keys])], False, True
        case Over() | Analytic():
            yield [(node.input, node.partition)], False, True
        case epochs.Coalesce():
            if node.input.mode != "append" and not _tells_apart(node.key, node.input):
                yield [(node.input, node.key)], False, True
        case logical.Source():
            if node.kind == "table" and not node.captured:
                yield [(node, node.spread_by)], False, False
        case sliding.SlidingJoin():
            if len(node.operands) > 1:
                yield [(node, ())], False, False
        case (
            logical.Filter() | logical.Project() | logical.Lateral() | logical.Materialize()
            | groups.TimeWindows() | groups.Sessions() | groups.Final() | groups.Closed()
            | epochs.Changes() | epochs.Clocked() | epochs.OnTime() | epochs.Windows() | epochs.Union()
            | epochs.EmitOnClose() | epochs.TemporalFilter()
        ):  # fmt: skip
            pass  # each row by itself, or rows that meet below
        case _:
            assert_never(node)


def given_by(query: logical.Query) -> Sequence[tuple[Expr, Part]]:
    """Of the columns of the result, keys first, those that have the value of an expression over one source; or over
    each of several, where these are equal. An expression may have a value where its source gave nothing (COALESCE): of
    a source that may be missing only columns say that it was there."""
    numbers, root = _Numbers(query.root), query.root
    slides = any(isinstance(x, sliding.SlidingJoin) for x in root.walk())
    found = ((e, numbers.part(root, e)) for e in (*query.sink.written_key, *(o.expr for o in query.sink.values)))
    return [
        (e, p)
        for e, p in found
        if p is not None and (len(p) > 1 or _are_columns(p) or not (slides or numbers.may_lack(root, p)))
    ]


def _are_columns(part: Part) -> bool:
    """Whether a missing source gives NULL. An expression may have a value even then."""
    return all(isinstance(x, Col) for x in part.values())


class _Numbers:
    """The sources of a query, by number, and keys followed down to them."""

    def __init__(self, root: logical.Node) -> None:
        self._leaves: dict[int, list[int]] = {}  # the sources below each node, by its id
        self._count = count()
        self._number(root)

    def _number(self, node: logical.Node) -> list[int]:
        if isinstance(node, logical.Source):
            made = [next(self._count)]
        else:
            below = [self._number(x) for x in below_of(node)]
            made = [n for some in below for n in some]
        self._leaves.setdefault(id(node), made)
        return made

    def followed(
        self, sides: Sequence[Side], nulls: bool
    ) -> tuple[Mapping[int, tuple[Expr, ...]], Sequence[frozenset[int]]] | None:
        """The parts of a key that every side has in one place, by source; and the sources of each side. None: there is
        no such part. `nulls`: a NULL is a key, too."""
        places = [self._leaves[id(node)] for node, _ in sides]
        by_parts = [
            [self._part(node, at, e) for (node, _), at, e in zip(sides, places, exprs, strict=True)]
            for exprs in zip(*(keys for _, keys in sides), strict=True)
        ]
        alike: dict[tuple[frozenset[int], ...], list[list[Part]]] = {}
        for parts in by_parts:
            whole = [p for p in parts if p is not None]
            lacking = (p for (node, _), p in zip(sides, whole, strict=False) if self.may_lack(node, p))
            if len(whole) == len(parts) and not any(nulls or len(sides) == 1 or not _are_columns(p) for p in lacking):
                alike.setdefault(tuple(frozenset(p) for p in whole), []).append(whole)
        if not alike:
            return None
        best = max(alike.values(), key=len)
        keys = {n: tuple(part[side][n] for part in best) for side in range(len(sides)) for n in best[0][side]}
        if len(keys) < sum(len(p) for p in best[0]):
            return None  # one source on both sides
        return keys, [frozenset(p) for p in best[0]]

    def of_windows(self, node: sliding.SlidingJoin) -> Iterator[Met]:
        """By which keys rows meet in windows. (They make no slices: which rows are in a window is a matter of all.)"""
        for meeting in sliding.meetings(node.tree):
            parts = [[self.part(node, e) for e in side] for side in zip(*meeting.keys, strict=True)]
            if len(parts) == 2 and all(p is not None and len(p) == 1 for side in parts for p in side):
                leaves = [{n for p in side if p is not None for n in p} for side in parts]
                if [len(x) for x in leaves] == [1, 1] and leaves[0] != leaves[1]:
                    keys = {n: tuple(p[n] for p in side if p is not None) for side in parts for n in side[0] or ()}
                    yield Met(meeting, {"left": frozenset(leaves[0]), "right": frozenset(leaves[1])}, keys)

    def part(self, node: logical.Node, e: Expr) -> Part | None:
        return self._part(node, self._leaves[id(node)], e)

    def may_lack(self, node: logical.Node, part: Part) -> bool:
        """Whether a node has rows of outer joins in which the source of a key is missing: NULLs would make them one, as
        would a value that an expression has then. (A key that both sides of a join give is in all of its rows.)"""
        padded = set[int]()
        for x in node.walk():
            how, sides = getattr(x, "how", None), [self._leaves[id(y)] for y in below_of(x)]
            padded.update(sides[0] if how in ("right", "full") else (), sides[1] if how in ("left", "full") else ())
        unions = any(isinstance(x, epochs.Union) for x in node.walk())
        return (len(part) == 1 or unions) and not padded.isdisjoint(part)

    def _part(self, node: logical.Node, at: Sequence[int], e: Expr) -> Part | None:
        """By source, what gives the value of `e` in the rows of a node whose sources have these numbers."""
        names = set(columns(e))
        if isinstance(node, logical.Source):
            return {at[0]: e} if names and names <= {c.name for c in node.columns} else None
        if isinstance(node, logical.Project):
            return self._part(node.input, at, substituted(e, {c.name: x for c, x in node.outputs}))
        if isinstance(node, groups.Aggregate):
            known = {c.name: x for c, x in node.keys}
            return self._part(node.input, at, substituted(e, known)) if names <= known.keys() else None
        below, first, made = below_of(node), 0, dict[int, Expr]()
        parts = list[Part]()
        for side, x in enumerate(below):
            mine = at[first : first + sum(1 for _ in logical.sources(x))]
            first += len(mine)
            keys = {}
            if isinstance(node, joins.OnKeys):
                of_side = (node.left_keys, node.right_keys)[side]
                keys = {c.name: k for c, k in zip(node.keys, of_side, strict=True)}
            if names <= {c.name for c in x.schema} | keys.keys():
                found = self._part(x, mine, substituted(e, keys))
                if found is None:
                    return None
                parts.append(found)
        if not parts or (isinstance(node, epochs.Union) and len(parts) < len(below)):
            return None
        for found in parts:
            made |= found
        return made


def below_of(node: logical.Node) -> Sequence[logical.Node]:
    """The inputs of a node, each source once."""
    return [o.input for o in node.operands] if isinstance(node, sliding.SlidingJoin) else node.inputs


# ------------------------------------------------------------------- records


class Slices:
    """The records of a query by their keys. `rows`: of each source its records, by number; their heads have these
    (`keyed`)."""

    def __init__(self, mets: Sequence[Met], rows: Mapping[int, Rows]) -> None:
        self.mets, self._rows = mets, rows

    def texts(self, met: int, leaf: int) -> Iterator[pl.Series]:
        """The keys of the records of a source, page by page."""
        return self._rows[leaf].column(text_of(met))

    def with_key(self, met: int, leaf: int, texts: Collection[str]) -> Flags:
        """The records of a source that have one of these keys."""
        return self._rows[leaf].where(pl.col(text_of(met)).is_in([*texts]))

    def closed(self, start: Mapping[int, Flags], most: int) -> dict[int, Flags] | None:
        """By source, whether a record has to do with one of `start` (flags), these included; None where these would be
        more than `most`."""
        # rows of tables that were only looked up have nothing to do with others that look them up
        taken = {False: dict(start), True: {n: x & ~x for n, x in start.items()}}
        todo: list[tuple[int, Flags, bool]] = [(n, x, False) for n, x in start.items() if x.any()]
        seen: dict[tuple[int, bool, bool], set[str]] = {}
        both = start
        while todo:
            leaf, new, only_looked_up = todo.pop()
            if int(new.sum()) > most:
                return None
            for i, met in enumerate(self.mets):
                if met.told or leaf not in met.keys:
                    continue
                looks = leaf in met.from_
                known = seen.setdefault((i, looks, only_looked_up), set())
                found = self._rows[leaf].heads(new, [text_of(i)]).to_series()
                texts = set(found.drop_nulls().unique().to_list()) - known
                if not texts:
                    continue
                known |= texts
                for other in met.keys:
                    if other in met.from_ and (looks or only_looked_up):
                        continue
                    so = looks or only_looked_up
                    more = self.with_key(i, other, texts) & ~taken[so][other]
                    if more.any():
                        taken[so][other] = taken[so][other] | more
                        todo.append((other, more, so))
            both = {n: x | taken[True][n] for n, x in taken[False].items()}
            if sum(int(x.sum()) for x in both.values()) > most:
                return None
        return dict(both)


def text_of(met: int) -> str:
    """The column of heads that has the keys by which records meet there."""
    return f"_met{met}"


def keyed(mets: Sequence[Met], leaf: int, rows: pl.DataFrame) -> pl.DataFrame:
    """The keys of records of a source, by which they meet others."""
    mine = ((i, met) for i, met in enumerate(mets) if leaf in met.keys)
    return pl.DataFrame([key_texts(rows, met.keys[leaf], met.nulls).alias(text_of(i)) for i, met in mine])


def part_names(exprs: Sequence[Expr]) -> list[str]:
    """What the parts of a key are called in its text."""
    return [f"k{i}" for i in range(len(exprs))]


def key_texts(rows: pl.DataFrame, exprs: Sequence[Expr], nulls: bool = False) -> pl.Series:
    """The key of each record as text: null where a part is NULL, but where NULLs are keys."""
    named = [*zip(part_names(exprs), exprs, strict=True)]
    plain = all(isinstance(e, Col) for e in exprs)
    values = rows if plain else evaluate(rows, named)[0]
    values = pl.DataFrame([values[e.name if plain and isinstance(e, Col) else n].alias(n) for n, e in named])
    texts = canonical_key(values, [Column(name, e.type) for name, e in named])
    if nulls:
        return texts.fill_null("null")
    lacks = pl.select(pl.any_horizontal(values[c].is_null() for c in values.columns)).to_series()
    return texts.set(lacks, None)


def called(exprs: Sequence[Expr]) -> str:
    """What a reader calls a key."""
    return ", ".join(show(e) for e in exprs)
