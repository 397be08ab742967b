"""`braid doctor --query` over a store on an S3 server, whose query has left `metrics.ring` there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("obstore")
pytest.importorskip("pyspark")

from braid.stage.ring import read
from braid.store import opened
from cli_help import QUICK, braid, on_shared_spark
from objects.test_checkpoints import room

pytestmark = [pytest.mark.spark, pytest.mark.objects]
__all__ = ["room"]


SQL = """-- dialect: ksqldb
CREATE STREAM l (k INT KEY, v STRING) WITH (kafka_topic='l', value_format='JSON', partitions=1);
CREATE STREAM r (k INT KEY, w STRING) WITH (kafka_topic='r', value_format='JSON', partitions=1);
CREATE STREAM o AS SELECT l.k AS k, v, w FROM l JOIN r WITHIN 5 MINUTES GRACE PERIOD 0 SECONDS ON l.k = r.k;
"""


def test_a_run_on_a_server_and_what_the_doctor_says(room: str, tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text(SQL)
    for topic, field in (("l", "V"), ("r", "W")):
        rows = ({"key": n, "value": {field: "x"}, "timestamp": n} for n in range(20))
        text = "".join(json.dumps(row) + "\n" for row in rows)
        assert braid("put", topic, "-", "--store", room, stdin=text).code == 0
    for _ in range(2):
        said = on_shared_spark(
            "run", "q.sql", "--store", room, "--until-idle", "--batch-rows", 10, *QUICK, cwd=tmp_path
        )
        assert said.code == 0, said.err
    found = read(opened(room).at("checkpoints").at("O"))
    assert [x.get("batch", x.get("ended")) for x in found.documents] == [0, 1, 2, 3, "stopped", "stopped"]
    said = braid("doctor", "--query", "o", "--store", room)
    assert said.code == 0 and "O: nothing found; it does not run; 4 batches" in said.out
    assert braid("put", "l", "-", "--store", room, stdin='{"key": 1, "value": {"V": "x"}}\n').code == 0
    assert "1 record is not read" in braid("doctor", "--query", "o", "--store", room).out
