"""Events of an auction house, after the published description of NEXMark: persons, auctions, bids.

In: how many, a seed. Out: JSON lines, a file a kind; times are text, as SQL writes them.
Rule: of fifty events one is a person, three are auctions, the rest bids, 10,000 a second. Ids count up; an event names
others that were there shortly before: half of all bids go to one auction of the last hundred, three of four bidders and
sellers are one person of the last hundred, and a few name what comes only later. The same seed gives the same bytes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

KINDS = ("person", "auction", "bid")
EPOCH, PERSONS, AUCTIONS = 50, 1, 3  # events of a round, and how many of them are persons and auctions
FIRST = 1000  # the first id
CATEGORIES = range(10, 15)
ACTIVE, IN_FLIGHT, LEAD = 1000, 100, 10  # persons and auctions that are named; how far ahead
HOT = 100  # of so many the first is the hot one
RATE = 10  # events of a millisecond
BEGIN = 1_710_000_000_000  # ms since 1970
PIECE = 500_000  # events that are made at once
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    "Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne",
)  # fmt: skip
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
CHANNELS = ("Google", "Facebook", "Baidu", "Apple")

HALVES = "halves"  # a folder beside

Ints = npt.NDArray[np.int64]


def write(events: int, folder: Path, seed: int = 1) -> None:
    """`person.jsonl`, `auction.jsonl`, `bid.jsonl` of so many events in all."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {kind: (folder / f"{kind}.jsonl").open("wb") for kind in KINDS}
    try:
        for start in range(0, events, PIECE):
            chance = np.random.default_rng([seed, start])
            at = np.arange(start, min(start + PIECE, events), dtype=np.int64)
            place = at % EPOCH
            is_auction = (place >= PERSONS) & (place < PERSONS + AUCTIONS)
            _persons(at[place < PERSONS], chance).write_ndjson(files["person"])
            _auctions(at[is_auction], chance).write_ndjson(files["auction"])
            _bids(at[place >= PERSONS + AUCTIONS], chance).write_ndjson(files["bid"])
    finally:
        for file in files.values():
            file.close()


def halve(folder: Path) -> None:
    """The same lines as two files a kind, in turn: for an engine that has a reader for each file. Both are in order."""
    for kind in KINDS:
        to = folder / HALVES / kind
        to.mkdir(parents=True)
        with (
            (folder / f"{kind}.jsonl").open("rb") as f,
            (to / "0.jsonl").open("wb") as a,
            (to / "1.jsonl").open("wb") as b,
        ):
            for n, line in enumerate(f):
                (b if n % 2 else a).write(line)


def _persons(at: Ints, chance: np.random.Generator) -> pl.DataFrame:
    n = len(at)
    first, last = _one_of(FIRST_NAMES, n, chance), _one_of(LAST_NAMES, n, chance)
    numbers = pl.Series(chance.integers(10**15, 10**16, n)).cast(pl.String)
    return pl.DataFrame(
        {
            "id": FIRST + _last_person(at),
            "name": first + " " + last,
            "email_address": _letters(7, n, chance) + "@" + _letters(5, n, chance) + ".com",
            "credit_card": numbers,
            "city": _one_of(CITIES, n, chance),
            "state": _one_of(STATES, n, chance),
            "date_time": _times(_ms(at)),
            "extra": _letters(80, n, chance),
        }
    )


def _auctions(at: Ints, chance: np.random.Generator) -> pl.DataFrame:
    n, ms = len(at), _ms(at)
    last = _last_person(at)
    hot = chance.integers(0, 4, n) > 0
    price = _prices(n, chance)
    horizon = IN_FLIGHT * EPOCH // AUCTIONS // RATE  # in which so many auctions come
    return pl.DataFrame(
        {
            "id": FIRST + _last_auction(at),
            "item_name": _letters(12, n, chance),
            "description": _letters(40, n, chance),
            "initial_bid": price,
            "reserve": price + _prices(n, chance),
            "date_time": _times(ms),
            "expires": _times(ms + 1 + chance.integers(0, 2 * horizon, n)),
            "seller": FIRST + np.where(hot, last // HOT * HOT, _some_person(last, chance)),
            "category": chance.integers(CATEGORIES.start, CATEGORIES.stop, n),
            "extra": _letters(60, n, chance),
        }
    )


def _bids(at: Ints, chance: np.random.Generator) -> pl.DataFrame:
    n = len(at)
    auction, person = _last_auction(at), _last_person(at)
    low = np.maximum(auction - IN_FLIGHT, 0)
    named = low + (chance.random(n) * (auction - low + 1 + LEAD)).astype(np.int64)
    hot_auction, hot_bidder = chance.integers(0, 2, n) > 0, chance.integers(0, 4, n) > 0
    channel = _one_of(CHANNELS, n, chance)
    return pl.DataFrame(
        {
            "auction": FIRST + np.where(hot_auction, auction // HOT * HOT, named),
            "bidder": FIRST + np.where(hot_bidder, person // HOT * HOT + 1, _some_person(person, chance)),
            "price": _prices(n, chance),
            "channel": channel,
            "url": "https://www.nexmark.com/" + _letters(8, n, chance) + "/item.htm?query=1",
            "date_time": _times(_ms(at)),
            "extra": _letters(40, n, chance),
        }
    )


def _last_person(at: Ints) -> Ints:
    """The number of the newest person, from 0."""
    made: Ints = at // EPOCH
    return made


def _last_auction(at: Ints) -> Ints:
    """The number of the newest auction, from 0; 0 where there is none yet."""
    made: Ints = at // EPOCH * AUCTIONS + np.clip(at % EPOCH - PERSONS, -1, AUCTIONS - 1)
    return np.maximum(made, 0)


def _some_person(last: Ints, chance: np.random.Generator) -> Ints:
    active = np.minimum(last + 1, ACTIVE)
    made: Ints = last + 1 - active + (chance.random(len(last)) * (active + LEAD)).astype(np.int64)
    return made


def _prices(n: int, chance: np.random.Generator) -> Ints:
    """As many small ones as large ones."""
    made: Ints = np.round(10 ** (chance.random(n) * 6) * 100).astype(np.int64)
    return made


def _ms(at: Ints) -> Ints:
    made: Ints = BEGIN + at // RATE
    return made


def _times(ms: Ints) -> pl.Series:
    return pl.Series(ms).cast(pl.Datetime("ms")).dt.strftime("%Y-%m-%d %H:%M:%S%.3f")


def _one_of(words: tuple[str, ...], n: int, chance: np.random.Generator) -> pl.Series:
    return pl.Series(words).gather(chance.integers(0, len(words), n))


def _letters(length: int, n: int, chance: np.random.Generator) -> pl.Series:
    """Texts of small letters."""
    letters = chance.integers(ord("a"), ord("z") + 1, n * length, dtype=np.uint8)
    ends = np.arange(0, (n + 1) * length, length, dtype=np.int64)
    made = pl.from_arrow(pa.LargeStringArray.from_buffers(n, pa.py_buffer(ends), pa.py_buffer(letters)))
    assert isinstance(made, pl.Series)
    return made
