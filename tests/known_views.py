"""NEXMark and TPC-H as views in risingwave's words.

In: nothing. Out: the tables, the queries by name; rows for the tables, drawn at random, that meet each other.
Rule: the queries are those of the benchmarks; what differs is said beside them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

NEXMARK_TABLES = """
CREATE TABLE person (id BIGINT PRIMARY KEY, name VARCHAR, email_address VARCHAR, credit_card VARCHAR, city VARCHAR,
  state VARCHAR, date_time TIMESTAMP, extra VARCHAR);
CREATE TABLE auction (id BIGINT PRIMARY KEY, item_name VARCHAR, description VARCHAR, initial_bid BIGINT, reserve BIGINT,
  date_time TIMESTAMP, expires TIMESTAMP, seller BIGINT, category BIGINT, extra VARCHAR);
CREATE TABLE bid (id BIGINT PRIMARY KEY, auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR,
  date_time TIMESTAMP, extra VARCHAR);
"""
_WINNING = """SELECT id, item_name, description, initial_bid, reserve, date_time, expires, seller, category, auction,
        bidder,
  price, bid_time FROM (SELECT a.*, b.auction, b.bidder, b.price, b.date_time AS bid_time, ROW_NUMBER() OVER
    (PARTITION BY a.id ORDER BY b.price DESC, b.date_time ASC, b.id) AS place
    FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires) x WHERE place <=
        1"""
_TEN = "INTERVAL '10' SECOND"
_HOTTEST = f"HOP(bid, date_time, INTERVAL '2' SECOND, {_TEN})"
_PRICES = """count(*) FILTER (WHERE price < 10000) AS rank1, count(*) FILTER (WHERE price >= 10000 AND price <
        1000000) AS
  rank2, count(*) FILTER (WHERE price >= 1000000) AS rank3"""
_WHO = """count(DISTINCT {0}) AS {0}s, count(DISTINCT {0}) FILTER (WHERE price < 10000) AS rank1_{0}s,
  count(DISTINCT {0}) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_{0}s,
  count(DISTINCT {0}) FILTER (WHERE price >= 1000000) AS rank3_{0}s"""
# Not among them: q11, by sessions; q12 and q13, by the time of the machine.
NEXMARK: Mapping[str, str] = {
    "q0": "SELECT auction, bidder, price, date_time FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, date_time FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction IN (1007, 1020, 2001, 3) OR auction % 3 = 0",
    "q3": """SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
      WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA')""",
    "q4": """SELECT q.category, AVG(q.final) AS average FROM (SELECT MAX(b.price) AS final, a.category FROM auction
        a, bid b
      WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires GROUP BY a.id, a.category) q
      GROUP BY q.category""",
    "q5": f"""SELECT b.auction, b.num FROM
      (SELECT auction, count(*) AS num, window_start AS starttime FROM {_HOTTEST} GROUP BY auction, window_start) b
      JOIN (SELECT max(c.num) AS maxn, c.starttime_c FROM (SELECT count(*) AS num, window_start AS starttime_c
        FROM {_HOTTEST} GROUP BY auction, window_start) c GROUP BY c.starttime_c) m
      ON b.starttime = m.starttime_c AND b.num >= m.maxn""",
    "q6": f"""SELECT seller, id, AVG(price) OVER (PARTITION BY seller ORDER BY bid_time, id
      ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS mean FROM ({_WINNING}) won""",
    "q7": f"""SELECT b.auction, b.price, b.bidder, b.date_time FROM bid b
      JOIN (SELECT MAX(price) AS maxprice, window_end AS date_time FROM TUMBLE(bid, date_time, {_TEN})
        GROUP BY window_end) m ON b.price = m.maxprice
      WHERE b.date_time BETWEEN m.date_time - {_TEN} AND m.date_time""",
    "q8": f"""SELECT p.id, p.name, p.starttime FROM (SELECT id, name, window_start AS starttime, window_end AS endtime
        FROM TUMBLE(person, date_time, {_TEN}) GROUP BY id, name, window_start, window_end) p
      JOIN (SELECT seller, window_start AS starttime, window_end AS endtime FROM TUMBLE(auction, date_time, {_TEN})
        GROUP BY seller, window_start, window_end) a
      ON p.id = a.seller AND p.starttime = a.starttime AND p.endtime = a.endtime""",
    "q9": _WINNING,
    "q10": """SELECT auction, bidder, price, date_time, to_char(date_time, 'YYYY-MM-DD') AS date,
      to_char(date_time, 'HH:MI') AS time FROM bid""",
    "q14": """SELECT auction, bidder, 0.908 * price AS price, CASE WHEN extract(hour FROM date_time) >= 8
        AND extract(hour FROM date_time) <= 18 THEN 'dayTime' WHEN extract(hour FROM date_time) <= 6
        OR extract(hour FROM date_time) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bid_time_type, date_time, extra,
      length(extra) - length(replace(extra, 'c', '')) AS c_counts
      FROM bid WHERE 0.908 * price > 1000 AND 0.908 * price < 50000000""",
    "q15": f"""SELECT to_char(date_time, 'YYYY-MM-DD') AS day, count(*) AS total, {_PRICES}, {_WHO.format("bidder")},
      {_WHO.format("auction")} FROM bid GROUP BY to_char(date_time, 'YYYY-MM-DD')""",
    "q16": f"""SELECT channel, to_char(date_time, 'YYYY-MM-DD') AS day, max(to_char(date_time, 'HH24:MI')) AS minute,
      count(*) AS total, {_PRICES}, {_WHO.format("bidder")}, {_WHO.format("auction")}
      FROM bid GROUP BY to_char(date_time, 'YYYY-MM-DD'), channel""",
    "q17": f"""SELECT auction, to_char(date_time, 'YYYY-MM-DD') AS day, count(*) AS total, {_PRICES},
      min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
      FROM bid GROUP BY auction, to_char(date_time, 'YYYY-MM-DD')""",
    "q18": """SELECT auction, bidder, price, channel, url, date_time FROM (SELECT *, ROW_NUMBER() OVER
      (PARTITION BY bidder, auction ORDER BY date_time DESC, id) AS place FROM bid) x WHERE place <= 1""",
    "q19": """SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, id) AS place
      FROM bid) x WHERE place <= 10""",
    "q20": """SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time AS bid_time, a.item_name,
        a.initial_bid,
      a.reserve, a.date_time AS auction_time, a.expires, a.seller, a.category FROM bid b JOIN auction a
      ON b.auction = a.id WHERE a.category = 10""",
    "q21": """SELECT auction, bidder, price, channel, CASE WHEN lower(channel) = 'apple' THEN '0' WHEN lower(channel)
        = 'google'
        THEN '1' WHEN lower(channel) = 'facebook' THEN '2' WHEN lower(channel) = 'baidu' THEN '3'
        ELSE (regexp_match(url, '(&|^)channel_id=([^&]*)'))[2] END AS channel_id FROM bid
      WHERE (regexp_match(url, '(&|^)channel_id=([^&]*)'))[2] IS NOT NULL
        OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')""",
    "q22": """SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,
      split_part(url, '/', 6) AS dir3 FROM bid""",
}  # fmt: skip


def nexmark_changes(rng: random.Random, count: int) -> Iterator[str]:
    """Statements that add, change and remove rows."""
    begin, ids = datetime(2024, 3, 1, 7, 59, 40), range(4)
    for n in range(count):
        at = begin + timedelta(seconds=rng.choice([n // 4, n // 4, n // 4, 3600 * rng.randrange(24)]))
        kind, key = rng.choice(["person", "person", "auction", "auction", "bid", "bid", "bid", "bid"]), rng.choice(ids)
        key = n if kind == "bid" and rng.random() < 0.8 else key
        yield f"DELETE FROM {kind} WHERE id = {key};"
        if rng.random() < 0.15:
            continue
        extra = "c" * rng.randrange(3) + "x"
        match kind:
            case "person":
                place = rng.choice(["OR", "ID", "CA", "WY"])
                who = f"'n{key % 3}', 'e', '1', 'city', '{place}'"
                yield f"INSERT INTO person VALUES ({key}, {who}, '{at}', '{extra}');"
            case "auction":
                end, of = at + timedelta(seconds=rng.randrange(40)), (rng.choice(ids), rng.choice([10, 10, 11]))
                yield (
                    f"INSERT INTO auction VALUES ({key}, 'i{key}', 'd', {rng.randrange(9)}, {rng.randrange(99)},"
                    f" '{at}', '{end}', {of[0]}, {of[1]}, '{extra}');"
                )
            case _:
                price = rng.choice([5, 900, 9999, 10000, 250000, 1000000, 7000000])
                channel = rng.choice(["Apple", "google", "c-1", "c-2"])
                url = rng.choice(["https://a.b/one/two/item.htm?query=1&channel_id=77", "https://a.b/one", "none"])
                yield (
                    f"INSERT INTO bid VALUES ({key}, {rng.choice(ids)}, {rng.choice(ids)}, {price}, '{channel}',"
                    f" '{url}', '{at}', '{extra}');"
                )


TPCH_TABLES = """
SET joins_without_equality = accept;
CREATE TABLE region (r_regionkey INT PRIMARY KEY, r_name VARCHAR);
CREATE TABLE nation (n_nationkey INT PRIMARY KEY, n_name VARCHAR, n_regionkey INT);
CREATE TABLE supplier (s_suppkey INT PRIMARY KEY, s_name VARCHAR, s_nationkey INT, s_comment VARCHAR);
CREATE TABLE customer (c_custkey INT PRIMARY KEY, c_name VARCHAR, c_nationkey INT, c_acctbal NUMERIC,
  c_mktsegment VARCHAR);
CREATE TABLE part (p_partkey INT PRIMARY KEY, p_name VARCHAR, p_brand VARCHAR, p_type VARCHAR, p_size INT,
  p_container VARCHAR);
CREATE TABLE partsupp (ps_partkey INT, ps_suppkey INT, ps_availqty INT, ps_supplycost NUMERIC,
  PRIMARY KEY (ps_partkey, ps_suppkey));
CREATE TABLE orders (o_orderkey INT PRIMARY KEY, o_custkey INT, o_totalprice NUMERIC, o_orderdate DATE,
  o_orderpriority VARCHAR, o_comment VARCHAR, o_shippriority INT);
CREATE TABLE lineitem (l_orderkey INT, l_linenumber INT, l_partkey INT, l_suppkey INT, l_quantity NUMERIC,
  l_extendedprice NUMERIC, l_discount NUMERIC, l_tax NUMERIC, l_returnflag VARCHAR, l_linestatus VARCHAR,
  l_shipdate DATE, l_commitdate DATE, l_receiptdate DATE, l_shipmode VARCHAR, l_shipinstruct VARCHAR,
  PRIMARY KEY (l_orderkey, l_linenumber));
"""
_REVENUE = "sum(l_extendedprice * (1 - l_discount))"
TPCH: Mapping[str, str] = {
    "q1": """SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price,
      sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
      sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge, avg(l_quantity) AS avg_qty,
      avg(l_extendedprice) AS avg_price, avg(l_discount) AS avg_disc, count(*) AS count_order
      FROM lineitem WHERE l_shipdate <= date '1998-12-01' - interval '90' day GROUP BY l_returnflag, l_linestatus""",
    "q2": """SELECT s_name, n_name, p_partkey, p_type, ps_supplycost FROM part, supplier, partsupp, nation, region
      WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND p_size < 3 AND s_nationkey = n_nationkey
        AND n_regionkey = r_regionkey AND r_name = 'ASIA' AND ps_supplycost = (SELECT min(ps_supplycost)
          FROM partsupp, supplier, nation, region WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey
            AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'ASIA')
      ORDER BY n_name, s_name, p_partkey LIMIT 100""",
    "q3": f"""SELECT l_orderkey, {_REVENUE} AS revenue, o_orderdate, o_shippriority FROM customer, orders, lineitem
      WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
        AND o_orderdate < date '1995-03-15' AND l_shipdate > date '1995-01-15'
      GROUP BY l_orderkey, o_orderdate, o_shippriority ORDER BY revenue DESC, o_orderdate, l_orderkey LIMIT 10""",
    "q4": """SELECT o_orderpriority, count(*) AS order_count FROM orders WHERE o_orderdate >= date '1995-01-01'
      AND o_orderdate < date '1995-01-01' + interval '3' month AND EXISTS (SELECT * FROM lineitem
        WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate) GROUP BY o_orderpriority""",
    "q5": f"""SELECT n_name, {_REVENUE} AS revenue FROM customer, orders, lineitem, supplier, nation, region
      WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey AND c_nationkey = s_nationkey
        AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'ASIA' GROUP BY n_name""",
    "q6": """SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitem WHERE l_shipdate >= date '1995-01-01'
      AND l_shipdate < date '1995-01-01' + interval '1' year AND l_discount BETWEEN 0.02 AND 0.07 AND l_quantity <
        24""",
    "q7": """SELECT supp_nation, cust_nation, l_year, sum(volume) AS revenue FROM (SELECT n1.n_name AS supp_nation,
        n2.n_name AS cust_nation, extract(year FROM l_shipdate) AS l_year, l_extendedprice * (1 - l_discount) AS volume
        FROM supplier, lineitem, orders, customer, nation n1, nation n2 WHERE s_suppkey = l_suppkey
          AND o_orderkey = l_orderkey AND c_custkey = o_custkey AND s_nationkey = n1.n_nationkey
          AND c_nationkey = n2.n_nationkey AND ((n1.n_name = 'N0' AND n2.n_name = 'N1')
            OR (n1.n_name = 'N1' AND n2.n_name = 'N0'))) shipping GROUP BY supp_nation, cust_nation, l_year""",
    "q8": """SELECT o_year, sum(CASE WHEN nation = 'N1' THEN volume ELSE 0 END) / sum(volume) AS mkt_share
      FROM (SELECT extract(year FROM o_orderdate) AS o_year, l_extendedprice * (1 - l_discount) AS volume,
          n2.n_name AS nation FROM part, supplier, lineitem, orders, customer, nation n1, nation n2, region
        WHERE p_partkey = l_partkey AND s_suppkey = l_suppkey AND l_orderkey = o_orderkey AND o_custkey = c_custkey
          AND c_nationkey = n1.n_nationkey AND n1.n_regionkey = r_regionkey AND r_name = 'ASIA'
          AND s_nationkey = n2.n_nationkey) all_nations GROUP BY o_year""",
    "q9": """SELECT nation, o_year, sum(amount) AS sum_profit FROM (SELECT n_name AS nation,
        extract(year FROM o_orderdate) AS o_year,
        l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity AS amount
        FROM part, supplier, lineitem, partsupp, orders, nation WHERE s_suppkey = l_suppkey AND ps_suppkey = l_suppkey
          AND ps_partkey = l_partkey AND p_partkey = l_partkey AND o_orderkey = l_orderkey
          AND s_nationkey = n_nationkey AND p_name LIKE '%green%') profit GROUP BY nation, o_year""",
    "q10": f"""SELECT c_custkey, c_name, {_REVENUE} AS revenue, c_acctbal, n_name
      FROM customer, orders, lineitem, nation WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey
        AND l_returnflag = 'R' AND c_nationkey = n_nationkey
      GROUP BY c_custkey, c_name, c_acctbal, n_name ORDER BY revenue DESC, c_custkey LIMIT 20""",
    "q11": """SELECT ps_partkey, sum(ps_supplycost * ps_availqty) AS value FROM partsupp, supplier, nation
      WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name <> 'N2' GROUP BY ps_partkey
      HAVING sum(ps_supplycost * ps_availqty) > (SELECT sum(ps_supplycost * ps_availqty) * 0.35
        FROM partsupp, supplier, nation WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name <> 'N2')
      ORDER BY value DESC""",
    "q12": """SELECT l_shipmode, sum(CASE WHEN o_orderpriority = '1-URGENT' OR o_orderpriority = '2-HIGH' THEN 1 ELSE 0
        END) AS high_line_count, sum(CASE WHEN o_orderpriority <> '1-URGENT' AND o_orderpriority <> '2-HIGH' THEN 1
        ELSE 0 END) AS low_line_count FROM orders, lineitem WHERE o_orderkey = l_orderkey
        AND l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate
      GROUP BY l_shipmode""",
    "q13": """SELECT c_count, count(*) AS custdist FROM (SELECT c_custkey, count(o_orderkey) AS c_count FROM customer
        LEFT OUTER JOIN orders ON c_custkey = o_custkey AND o_comment NOT LIKE '%special%requests%'
        GROUP BY c_custkey) c_orders GROUP BY c_count""",
    "q14": """SELECT 100.00 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
        / sum(l_extendedprice * (1 - l_discount)) AS promo_revenue FROM lineitem, part WHERE l_partkey = p_partkey""",
    "q15": f"""WITH revenue (supplier_no, total) AS (SELECT l_suppkey, {_REVENUE} FROM lineitem
        WHERE l_shipdate < date '1995-01-01' + interval '3' month GROUP BY l_suppkey)
      SELECT s_suppkey, s_name, total FROM supplier, revenue WHERE s_suppkey = supplier_no
        AND total = (SELECT max(total) FROM revenue)""",
    "q16": """SELECT p_brand, p_type, p_size, count(DISTINCT ps_suppkey) AS supplier_cnt FROM partsupp, part
      WHERE p_partkey = ps_partkey AND p_brand <> 'Brand#45' AND p_size IN (1, 2, 3) AND ps_suppkey NOT IN
        (SELECT s_suppkey FROM supplier WHERE s_comment LIKE '%Customer%Complaints%') GROUP BY p_brand, p_type,
        p_size""",
    "q17": """SELECT sum(l_extendedprice) / 7.0 AS avg_yearly FROM lineitem, part WHERE p_partkey = l_partkey
      AND p_brand = 'Brand#12' AND l_quantity < (SELECT 1.2 * avg(l_quantity) FROM lineitem
        WHERE l_partkey = p_partkey)""",
    "q18": """SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS quantity
      FROM customer, orders, lineitem WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey
        HAVING sum(l_quantity) > 40) AND c_custkey = o_custkey AND o_orderkey = l_orderkey
      GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
      ORDER BY o_totalprice DESC, o_orderdate, o_orderkey LIMIT 100""",
    "q19": f"""SELECT {_REVENUE} AS revenue FROM lineitem, part WHERE (p_partkey = l_partkey AND p_brand = 'Brand#12'
        AND l_quantity BETWEEN 1 AND 21 AND l_shipmode IN ('AIR', 'MAIL')) OR (p_partkey = l_partkey
        AND p_brand = 'Brand#45' AND l_quantity BETWEEN 10 AND 40 AND p_size BETWEEN 1 AND 2)""",
    "q20": """SELECT s_name FROM supplier, nation WHERE s_suppkey IN (SELECT ps_suppkey FROM partsupp
        WHERE ps_partkey IN (SELECT p_partkey FROM part WHERE p_name LIKE 'green%') AND ps_availqty * 60 >
          (SELECT 0.5 * sum(l_quantity) FROM lineitem WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey))
      AND s_nationkey = n_nationkey AND n_name <> 'N2'""",
    "q21": """SELECT s_name, count(*) AS numwait FROM supplier, lineitem l1, orders, nation WHERE s_suppkey =
        l1.l_suppkey
        AND o_orderkey = l1.l_orderkey AND l1.l_receiptdate > l1.l_commitdate AND EXISTS (SELECT * FROM lineitem l2
          WHERE l2.l_orderkey = l1.l_orderkey AND l2.l_suppkey <> l1.l_suppkey) AND NOT EXISTS (SELECT * FROM
        lineitem l3
          WHERE l3.l_orderkey = l1.l_orderkey AND l3.l_suppkey <> l1.l_suppkey AND l3.l_receiptdate > l3.l_commitdate)
        AND s_nationkey = n_nationkey AND n_name = 'N1' GROUP BY s_name ORDER BY numwait DESC, s_name LIMIT 100""",
    "q22": """SELECT c_nationkey, count(*) AS numcust, sum(c_acctbal) AS totacctbal FROM customer WHERE c_acctbal >=
        (SELECT avg(c_acctbal) FROM customer WHERE c_acctbal > 0.00)
        AND NOT EXISTS (SELECT * FROM orders WHERE o_custkey = c_custkey AND o_totalprice > 700)
      GROUP BY c_nationkey""",
}  # fmt: skip


def tpch_changes(rng: random.Random, count: int) -> Iterator[str]:
    """What stands from the first on, then statements that add, change and remove rows."""
    yield "INSERT INTO region VALUES (0, 'ASIA'), (1, 'EUROPE');"
    yield "INSERT INTO nation VALUES (0, 'N0', 0), (1, 'N1', 0), (2, 'N2', 1);"
    for k in range(3):
        yield f"INSERT INTO supplier VALUES ({k}, 's{k}', {k}, '{'Customer x Complaints' * (k == 2)}');"
        yield f"INSERT INTO customer VALUES ({k}, 'c{k}', {k % 2}, {k}.50, '{'BUILDING' if k < 2 else 'OTHER'}');"
        yield (
            f"INSERT INTO part VALUES ({k}, '{'green' if k else 'red'} thing', 'Brand#{45 if k == 1 else 12}',"
            f" '{'PROMO' if k else 'PLAIN'} x', {k + 1}, 'BOX');"
        )
        for n in range(3):
            yield f"INSERT INTO partsupp VALUES ({k}, {n}, 1, 2.5);"

    def day() -> str:
        return f"'1995-0{rng.randrange(1, 4)}-{rng.randrange(1, 29):02}'"

    for _ in range(count):
        order, line, of = rng.randrange(4), rng.randrange(3), rng.randrange(3)
        match rng.choice([*["line"] * 6, "order", "order", "order", "partsupp", "customer"]):
            case "line":
                yield f"DELETE FROM lineitem WHERE l_orderkey = {order} AND l_linenumber = {line};"
                if rng.random() < 0.85:
                    yield (
                        f"INSERT INTO lineitem VALUES ({order}, {line}, {of}, {rng.randrange(3)},"
                        f" {rng.randrange(1, 41)}, {rng.randrange(100, 999)}.{rng.randrange(10, 99)},"
                        f" 0.0{rng.randrange(1, 9)}, 0.0{line},"
                        f" '{rng.choice('RN')}', 'O', {day()}, {day()}, {day()},"
                        f" '{rng.choice(['MAIL', 'SHIP', 'AIR'])}', 'x');"
                    )
            case "order":
                yield f"DELETE FROM orders WHERE o_orderkey = {order};"
                if rng.random() < 0.85:
                    yield (
                        f"INSERT INTO orders VALUES ({order}, {of}, {rng.randrange(100, 900)}.25, {day()},"
                        f" '{rng.choice(['1-URGENT', '2-HIGH', '5-LOW'])}',"
                        f" '{rng.choice(['special requests', 'none'])}', 0);"
                    )
            case "partsupp":
                of_part = rng.randrange(3)
                yield f"DELETE FROM partsupp WHERE ps_partkey = {of_part} AND ps_suppkey = {of};"
                yield f"INSERT INTO partsupp VALUES ({of_part}, {of}, 1, {rng.randrange(1, 9)}.5);"
            case _:
                segment = rng.choice(["BUILDING", "OTHER"])
                yield f"UPDATE customer SET c_mktsegment = '{segment}' WHERE c_custkey = {of};"
