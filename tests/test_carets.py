"""A refusal by the binder points at what it is about: a name that nobody knows, the condition of a join."""

from __future__ import annotations

import pytest

from braid.bind.program import Program
from braid.errors import SqlError

DECLARED = {
    "ksqldb": "".join(
        f"CREATE {kind} {name} WITH (kafka_topic='{name[0]}', value_format='JSON', partitions=1);"
        for kind, name in (
            ("STREAM", "a (x INT KEY, y INT, s STRING)"),
            ("STREAM", "b (x INT KEY, y INT, s STRING)"),
            ("TABLE", "t (x INT PRIMARY KEY, y INT, s STRING)"),
        )
    ),
    "risingwave": "".join(f"CREATE TABLE {n} (x INT PRIMARY KEY, y INT, s VARCHAR);" for n in "abt"),
    "sqlstream": "".join(
        f"CREATE {kind} {n} (x INTEGER, y INTEGER, s VARCHAR(9));"
        for kind, n in (("STREAM", "a"), ("STREAM", "b"), ("TABLE", "t"))
    ),
    "lenses": "".join(f"CREATE TABLE {n}0(_key INT, x INT, y INT, s STRING) FORMAT (INT, JSON);" for n in "ab")
    + "WITH a AS (SELECT STREAM * FROM a0); WITH b AS (SELECT STREAM * FROM b0); WITH t AS (SELECT TABLE * FROM b0);",
}
UNKNOWN = [(d, sql) for d in DECLARED for sql in ("DESCRIBE  ^nope;", "EXPLAIN  ^nope;", "DROP TABLE ^nope;")]
VIEW = "CREATE MATERIALIZED VIEW v AS "
PLACES = [  # with ^ before the place, and behind its end
    ("ksqldb", "DESCRIBE EXTENDED ^nope^;"),
    ("ksqldb", "EXPLAIN ^t^;"),
    ("ksqldb", "DROP STREAM ^t^;"),
    ("ksqldb", "SELECT a.x FROM a JOIN b WITHIN 1 DAY ON ^a.x > b.x^ EMIT CHANGES;"),
    ("ksqldb", "SELECT a.x FROM a JOIN b WITHIN 1 DAY ON a.x = b.x AND ^a.y > b.y^ EMIT CHANGES;"),
    ("ksqldb", "SELECT a.x FROM a JOIN b WITHIN 1 DAY ON ^a.y > b.y^ AND a.x = b.x EMIT CHANGES;"),
    ("ksqldb", "SELECT a.x FROM a LEFT JOIN b WITHIN 1 DAY ON a.x = b.x AND ^a.y = b.y^ EMIT CHANGES;"),
    ("risingwave", "EXPLAIN ^t^;"),
    ("risingwave", f"{VIEW}SELECT a.x FROM a JOIN b ON ^a.x > b.x^;"),
    ("risingwave", f"{VIEW}SELECT a.x FROM a FULL JOIN b ON ^a.x > b.x AND a.y > b.y^;"),
    ("risingwave", f"{VIEW}SELECT a.x FROM a ^CROSS JOIN^ b;"),
    ("risingwave", f"{VIEW}SELECT a.x FROM a LEFT JOIN b FOR SYSTEM_TIME AS OF PROCTIME() ON ^a.x > b.x^;"),
    ("risingwave", f"{VIEW}SELECT a.x FROM a JOIN b FOR SYSTEM_TIME AS OF PROCTIME() ON ^a.x > b.x^;"),
    ("sqlstream", "EXPLAIN ^t^;"),
    ("sqlstream", "SELECT STREAM a.x FROM a JOIN t ON ^a.x > t.x^;"),
    ("sqlstream", "SELECT STREAM a.x FROM a ^CROSS JOIN^ t;"),
    ("lenses", "DESCRIBE EXTENDED ^nope^;"),
    ("lenses", "SELECT STREAM a.x FROM a JOIN b ON a.x = b.x AND ^a.y > b.y^ WITHIN 1m;"),
    ("lenses", "SELECT STREAM a.x FROM a JOIN t ON ^a.x > t.y^;"),
]


@pytest.mark.parametrize(("dialect", "marked"), [*((d, s.replace(";", "^;")) for d, s in UNKNOWN), *PLACES])
def test_a_refusal_points_at_its_cause(dialect: str, marked: str) -> None:
    before, place, behind = f"{DECLARED[dialect]}\n{marked}".split("^")
    with pytest.raises(SqlError) as e:
        list(Program(dialect).statements(before + place + behind))
    assert e.value.span is not None and e.value.hint, e.value.message
    assert (e.value.span.start, e.value.span.end) == (len(before), len(before + place)), e.value.render()
