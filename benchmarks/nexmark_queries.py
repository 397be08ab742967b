"""NEXMark's joins in the words of each engine.

In: nothing. Out: the events' columns, the queries.
Rule: all ask for the same rows; where an engine cannot say a query, its text says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

COLUMNS: Mapping[str, Mapping[str, str]] = {
    "person": {
        "id": "BIGINT", "name": "VARCHAR", "email_address": "VARCHAR", "credit_card": "VARCHAR", "city": "VARCHAR",
        "state": "VARCHAR", "date_time": "TIMESTAMP", "extra": "VARCHAR",
    },
    "auction": {
        "id": "BIGINT", "item_name": "VARCHAR", "description": "VARCHAR", "initial_bid": "BIGINT", "reserve": "BIGINT",
        "date_time": "TIMESTAMP", "expires": "TIMESTAMP", "seller": "BIGINT", "category": "BIGINT", "extra": "VARCHAR",
    },
    "bid": {
        "auction": "BIGINT", "bidder": "BIGINT", "price": "BIGINT", "channel": "VARCHAR", "url": "VARCHAR",
        "date_time": "TIMESTAMP", "extra": "VARCHAR",
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Query:
    """`reads`: which events; `sql`: in risingwave's words, and DuckDB's where `duck` is not given; `columns`: of the
    result, as they are compared; `ksqldb`: the same in that dialect, where it can say it; `flink`, `spark`: in their
    words, where they are others, `-` where it cannot be said; `appends`: no row of the result is taken back."""

    name: str
    reads: tuple[str, ...]
    sql: str
    columns: Mapping[str, pl.DataType]
    ksqldb: str = ""
    duck: str = ""
    flink: str = ""
    spark: str = ""
    appends: bool = True

    @property
    def of_flink(self) -> str:
        return _standard(self.flink or self.sql)

    @property
    def of_spark(self) -> str:
        """Nothing where it cannot say it."""
        return "" if self.spark == "-" else _standard(self.spark or self.sql)


def _standard(sql: str) -> str:
    """Intervals as the standard writes them."""
    sql = re.sub(r"INTERVAL '(\d+) seconds'", r"INTERVAL '\1' SECOND", sql)
    return re.sub(r"INTERVAL '(\d+) milliseconds'", lambda m: f"INTERVAL '0.{int(m[1]):03}' SECOND", sql)


def _windows(kind: str) -> str:
    """A tumbling window of ten seconds, in DuckDB's words."""
    start = "time_bucket(INTERVAL '10 seconds', date_time)"
    return f"(SELECT *, {start} AS window_start, {start} + INTERVAL '10 seconds' AS window_end FROM {kind})"


_Q3 = """SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
  WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')"""
_Q4 = """SELECT q.category, avg(q.final) AS average FROM
  (SELECT max(b.price) AS final, a.category FROM auction a JOIN bid b ON a.id = b.auction
   WHERE b.date_time BETWEEN a.date_time AND a.expires GROUP BY a.id, a.category) q GROUP BY q.category"""
_Q7 = """SELECT b.auction, b.price, b.bidder, b.date_time FROM bid b
  JOIN (SELECT max(price) AS maxprice, window_end FROM {bids} GROUP BY window_end) m ON b.price = m.maxprice
  WHERE b.date_time BETWEEN m.window_end - INTERVAL '10 seconds' AND m.window_end"""
_Q8 = """SELECT p.id, p.name, p.window_start FROM
  (SELECT id, name, window_start, window_end FROM {persons} GROUP BY id, name, window_start, window_end) p
  JOIN (SELECT seller, window_start, window_end FROM {auctions} GROUP BY seller, window_start, window_end) a
  ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end"""
_Q20 = """SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time, b.extra, a.item_name, a.description,
  a.initial_bid, a.reserve, a.expires, a.seller, a.extra AS auction_extra
  FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10"""
_INTERVAL = """SELECT b.auction, b.bidder, b.price, a.item_name, a.seller FROM bid b JOIN auction a
  ON b.auction = a.id AND a.date_time BETWEEN b.date_time - INTERVAL '10 seconds'
                                         AND b.date_time + INTERVAL '10 seconds'"""
_LEFT = """SELECT b.bidder, b.auction, b.price, p.name FROM bid b LEFT JOIN person p
  ON b.bidder = p.id AND p.date_time BETWEEN b.date_time - INTERVAL '20 milliseconds'
                                         AND b.date_time + INTERVAL '20 milliseconds'"""
_K_INTERVAL = """SELECT b.auction AS auction, b.bidder AS bidder, b.price AS price, a.item_name AS item_name,
  a.seller AS seller FROM bid b JOIN auction a WITHIN 10 SECONDS GRACE PERIOD 5 SECONDS ON b.auction = a.id"""
_K_LEFT = """SELECT b.bidder AS bidder, b.auction AS auction, b.price AS price, p.name AS name
  FROM bid b LEFT JOIN person p WITHIN 20 MILLISECONDS GRACE PERIOD 5 SECONDS ON b.bidder = p.id"""
_F_WINDOW = "TABLE(TUMBLE(TABLE {kind}, DESCRIPTOR(date_time), INTERVAL '10' SECOND))"
_F_Q4 = _Q4.replace("avg(q.final)", "avg(CAST(q.top AS DOUBLE))").replace("final", "top")
_F_Q7 = _Q7.format(bids=_F_WINDOW.format(kind="bid")).replace("BY window_end)", "BY window_start, window_end)")
_F_Q8 = _Q8.format(persons=_F_WINDOW.format(kind="person"), auctions=_F_WINDOW.format(kind="auction"))
_S_WINDOW = "window(date_time, '10 seconds')"
_S_Q7 = f"""SELECT b.auction, b.price, b.bidder, b.date_time FROM bid b
  JOIN (SELECT maxprice, window_time(w) AS at FROM
        (SELECT max(price) AS maxprice, {_S_WINDOW} AS w FROM bid GROUP BY {_S_WINDOW})) m
  ON b.price = m.maxprice AND b.date_time BETWEEN m.at - INTERVAL '10 seconds' AND m.at + INTERVAL '1 milliseconds'"""
_S_Q8 = f"""SELECT p.id, p.name FROM
  (SELECT id, name, {_S_WINDOW} AS w FROM person GROUP BY id, name, {_S_WINDOW}) p
  JOIN (SELECT seller, {_S_WINDOW} AS w FROM auction GROUP BY seller, {_S_WINDOW}) a ON p.id = a.seller AND p.w = a.w"""
_BEST = """ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time) AS place
  FROM auction a JOIN bid b ON a.id = b.auction WHERE b.date_time BETWEEN a.date_time AND a.expires"""
_Q9 = f"SELECT id, seller, price FROM (SELECT a.id, a.seller, b.price, {_BEST}) w WHERE place <= 1"
_DAY = "to_char(date_time, 'YYYY-MM-DD')"
_RANKS = ("", " FILTER (WHERE price < 10000)", " FILTER (WHERE price >= 10000 AND price < 1000000)",
          " FILTER (WHERE price >= 1000000)")  # fmt: skip
_COUNTS = ", ".join(
    f"count({what}){rank} AS {name}{i}"
    for what, name in (("*", "n"), ("DISTINCT bidder", "bidders"), ("DISTINCT auction", "auctions"))
    for i, rank in enumerate(_RANKS)
)
_Q15 = f"SELECT {_DAY} AS day, {_COUNTS} FROM bid GROUP BY {_DAY}"
_Q16 = f"""SELECT channel, {_DAY} AS day, max(to_char(date_time, 'HH24:MI')) AS latest, {_COUNTS}
  FROM bid GROUP BY channel, {_DAY}"""
_SUMS = ", ".join(f"count(*){rank} AS n{i}" for i, rank in enumerate(_RANKS))
_Q17 = f"""SELECT auction, {_DAY} AS day, {_SUMS}, min(price) AS low, max(price) AS high, avg(price) AS mean,
  sum(price) AS total FROM bid GROUP BY auction, {_DAY}"""
_Q18 = """SELECT bidder, auction FROM (SELECT bidder, auction, price, channel, url, date_time, extra,
  ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) AS place FROM bid) x WHERE place <= 1"""
_Q19 = """SELECT auction, price, place FROM (SELECT auction, bidder, price, channel, url, date_time, extra,
  ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bid) x WHERE place <= 10"""


def _of_duck(sql: str) -> str:
    return sql.replace(_DAY, "strftime(date_time, '%Y-%m-%d')").replace(
        "to_char(date_time, 'HH24:MI')", "strftime(date_time, '%H:%M')"
    )


def _in_flink(sql: str) -> str:
    """DAY is a word of its grammar."""
    sql = sql.replace(f"{_DAY} AS day", f"{_DAY} AS `day`").replace(_DAY, "DATE_FORMAT(date_time, 'yyyy-MM-dd')")
    return sql.replace("to_char(date_time, 'HH24:MI')", "DATE_FORMAT(date_time, 'HH:mm')")


_N, _S = pl.Int64(), pl.String()
_COUNTED = {f"{name}{i}": _N for name in ("n", "bidders", "auctions") for i in range(4)}
_SUMMED = {f"n{i}": _N for i in range(4)} | {"low": _N, "high": _N, "mean": pl.Float64(), "total": pl.Float64()}
_TEXTS = ("channel", "url", "extra", "item_name", "description", "auction_extra")
_OF_BID = {"auction": _N, "bidder": _N, "price": _N}
_WINDOW = "TUMBLE({kind}, date_time, INTERVAL '10 seconds')"
QUERIES = (
    Query("interval", ("bid", "auction"), _INTERVAL, _OF_BID | {"item_name": _S, "seller": _N}, _K_INTERVAL),
    Query("left, few match", ("bid", "person"), _LEFT, {"bidder": _N, "auction": _N, "price": _N, "name": _S}, _K_LEFT),
    Query("q3", ("auction", "person"), _Q3, {"name": _S, "city": _S, "state": _S, "id": _N}),
    Query(
        "q4", ("auction", "bid"), _Q4, {"category": _N, "average": pl.Float64()}, flink=_F_Q4, spark="-", appends=False
    ),
    Query(
        "q7",
        ("bid",),
        _Q7.format(bids=_WINDOW.format(kind="bid")),
        _OF_BID,
        duck=_Q7.format(bids=_windows("bid")),
        flink=_F_Q7,
        spark=_S_Q7,
    ),
    Query(
        "q8",
        ("person", "auction"),
        _Q8.format(persons=_WINDOW.format(kind="person"), auctions=_WINDOW.format(kind="auction")),
        {"id": _N, "name": _S},
        duck=_Q8.format(persons=_windows("person"), auctions=_windows("auction")),
        flink=_F_Q8,
        spark=_S_Q8,
    ),
    Query("q9", ("auction", "bid"), _Q9, {"id": _N, "seller": _N, "price": _N}, spark="-", appends=False),
    *(
        Query(name, ("bid",), sql, columns, "", _of_duck(sql), _in_flink(sql), "-", appends=False)
        for name, sql, columns in (
            ("q15", _Q15, {"day": _S, **_COUNTED}),
            ("q16", _Q16, {"channel": _S, "day": _S, "latest": _S, **_COUNTED}),
            ("q17", _Q17, {"auction": _N, "day": _S, **_SUMMED}),
            ("q18", _Q18, {"bidder": _N, "auction": _N}),
            ("q19", _Q19, {"auction": _N, "price": _N, "place": _N}),
        )
    ),
    Query("q20", ("bid", "auction"), _Q20, _OF_BID | {n: _S for n in _TEXTS} | {"reserve": _N}),
)
