"""Shelf: the rows that several buckets send to one task, packed, and merged by position piece by piece.

In: blobs, each a piece of what one bucket sends, in order. Out: frames that follow each other in order.
Rule: rows are held packed, beyond `SPILL` bytes in a file of the node, and one piece of each bucket is open at a time.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

import polars as pl

from braid.operators.changes import HASH, LOW, POS, POS_TYPE, SUB
from braid.operators.pairing import pieces
from braid.spark import columns
from braid.spark.columns import Blob
from braid.stage.emit import merged
from braid.timing import spent

SPILL = 64 << 20  # packed bytes
PIECE = 250_000  # rows made to text at once
MANY = 2  # pieces


@dataclass(frozen=True, slots=True)
class Share:
    """One of `shares` shares of the keys."""

    number: int
    shares: int

    def of(self, rows: pl.DataFrame) -> pl.DataFrame:
        # buckets are told apart by the low bits of the hash
        return rows.filter((pl.col(HASH).fill_null(0) // (1 << 32)) % self.shares == self.number)


class Shelf:
    """Packed rows by bucket; those beyond `SPILL` bytes lie in a file of the node that has no name.
    `folder`: that of large frames."""

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder
        self.rows = self.size = self._held = 0
        self._piles: dict[int, list[tuple[int, bytes | tuple[int, int]]]] = {}
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Shelf:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def put(self, blob: Blob, bucket: int) -> None:
        """Takes a piece of what comes from a bucket."""
        self.rows += columns.height(blob.blob)
        self.size += columns.size(blob.blob)
        self._held += len(blob.blob)
        where: bytes | tuple[int, int] = blob.blob
        if self._held > SPILL:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="braid-spill-")  # noqa: SIM115 (closed by `__exit__`)
            where = (self._file.seek(0, os.SEEK_END), self._file.write(blob.blob))
        self._piles.setdefault(bucket, []).append((columns.piece(blob.blob), where))

    def piles(self, share: Share | None = None) -> list[Iterator[pl.DataFrame]]:
        """The rows of each bucket, piece by piece in their order, each opened when it is asked for. `share`: of these
        only a share of the keys."""
        opened = self._open if share is None else lambda where: share.of(self._open(where))
        return [map(opened, [x for _, x in sorted(pile, key=lambda p: p[0])]) for pile in self._piles.values()]

    def _open(self, where: bytes | tuple[int, int]) -> pl.DataFrame:
        if isinstance(where, bytes):
            return columns.loads(where, self.folder)
        assert self._file is not None
        start, size = where
        self._file.seek(start)
        return columns.loads(self._file.read(size), self.folder)


def in_pieces(shelf: Shelf, share: Share | None = None) -> Iterator[pl.DataFrame]:
    """The rows of all buckets, each in order, as frames that follow each other in order. `share`: see `Shelf.piles`."""
    if shelf.rows <= PIECE:
        with spent("sort"):
            whole = merged([frame for pile in shelf.piles(share) for frame in pile])
        yield whole
        return
    heads = [_Head(pile) for pile in shelf.piles(share)]
    while heads := [head for head in heads if head.there()]:
        with spent("sort"):
            end = min((head.end() for head in heads), key=_in_order)
            piece = merged([head.upto(end) for head in heads])
        for start in range(0, piece.height, PIECE):
            yield piece.slice(start, PIECE)


Place = tuple[int, bytes | None]  # `_pos` and `_sub`; no `_sub` stands last at its position


def _in_order(place: Place) -> tuple[int, bool, bytes]:
    pos, sub = place
    return pos, sub is None, sub or b""


class _Head:
    """The open piece of a bucket's rows: what is left of it."""

    def __init__(self, pile: Iterator[pl.DataFrame]) -> None:
        self._pile = pile
        self._frame = pl.DataFrame()

    def there(self) -> bool:
        """Whether rows are left; opens the next piece where the last is used up."""
        while not self._frame.height:
            found = next(self._pile, None)
            if found is None:
                return False
            self._frame = found
        return True

    def end(self) -> Place:
        return self._frame[POS][-1], self._frame[SUB][-1]

    def upto(self, end: Place) -> pl.DataFrame:
        """Takes the rows up to a place."""
        pos, sub = end
        place = pl.Series([pos], dtype=POS_TYPE)
        count = int(self._frame[POS].search_sorted(place, side="right")[0])
        if sub is not None:
            first = int(self._frame[POS].search_sorted(place, side="left")[0])
            up_to_it = self._frame[SUB].slice(first, count - first) <= pl.Series([sub], dtype=pl.Binary)
            count = first + int(up_to_it.sum() or 0)
        taken, self._frame = self._frame.head(count), self._frame.slice(count)
        return taken


def of_epochs(shelf: Shelf, made: Callable[[pl.DataFrame], Iterator[pl.DataFrame]]) -> Iterator[pl.DataFrame]:
    """What is made of the rows, whole epochs at a time; where they are many, a share of the keys at a time, since one
    epoch may hold them all."""
    many = MANY * PIECE
    if shelf.rows <= many:
        for rows in _whole_epochs(in_pieces(shelf)):
            yield from made(rows)
        return
    shares = -(-shelf.rows // many)
    size = max(1, many // shares)  # a piece of each share is open
    with Shelf(shelf.folder) as results:
        for number in range(shares):
            epochs = _whole_epochs(in_pieces(shelf, Share(number, shares)))
            cut = (frame[rows] for x in epochs for frame in made(x) for rows in pieces(frame.height, size))
            for piece, frame in enumerate(cut):
                results.put(Blob(0, 0, number, columns.ROWS, columns.dumps(frame, piece, shelf.folder)), number)
        yield from in_pieces(results)


def _whole_epochs(pieces: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """The same rows, with the rows of one epoch (the high part of a position) in one piece."""
    held: pl.DataFrame | None = None
    for piece in pieces:
        rows = piece if held is None else pl.concat([held, piece], how="diagonal")
        begin = pl.Series([rows[POS][-1] // LOW * LOW], dtype=POS_TYPE)
        count = int(rows[POS].search_sorted(begin, side="left")[0])
        if count:
            yield rows.head(count)
        held = rows.slice(count)
    if held is not None:
        yield held
