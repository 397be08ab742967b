"""`braid upgrade` of queries over a broker: another client reads each row once, old ones before new ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_help import Said, on_shared_spark
from kafka import clients
from kafka.broker import Broker
from kafka.test_run import Feed, joined, prepared
from test_upgrade import killed_at

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def changed(root: Path) -> None:
    """One more column, and a condition."""
    sql = (root / "q.sql").read_text()
    (root / "q.sql").write_text(sql.replace("v, w FROM", "v, w, v + w AS s FROM").replace(".k;", ".k WHERE v % 3 = 0;"))


def asked(broker: Broker, root: Path, *words: str) -> Said:
    quiet = ("--until-idle", "--quiet", "--batch-rows", "20") if words[0] == "run" else ()
    kafka = () if "--no-kafka" in words else ("--kafka", broker.address)
    more = [w for w in words[1:] if w != "--no-kafka"]
    return on_shared_spark(words[0], "q.sql", "--store", "d", *kafka, *quiet, *more, cwd=root)


@pytest.mark.parametrize("point", ["upgrade is ready", "last batch taken over", "checkpoint removed", "upgraded"])
def test_each_row_once_before_and_behind_an_upgrade(broker: Broker, tmp_path: Path, point: str) -> None:
    names = prepared(broker, tmp_path)
    feed = Feed(broker, names, 5)
    for _ in range(2):
        feed.more(40)
        assert (said := asked(broker, tmp_path, "run")).code == 0, said.err
    before, told = feed.join, clients.group_offsets(broker.address, f"braid.{names['o']}")
    assert joined(broker, names["o"]) == before
    changed(tmp_path)
    with killed_at(point):
        asked(broker, tmp_path, "upgrade")
    assert (said := asked(broker, tmp_path, "upgrade")).code == 0, said.err
    assert joined(broker, names["o"]) == before
    assert clients.group_offsets(broker.address, f"braid.{names['o']}") == told, "lag is told of what was written"
    feed.more(40)
    assert (said := asked(broker, tmp_path, "run")).code == 0, said.err
    new = {row: 1 for row in feed.join - before if row[1] % 3 == 0}
    assert joined(broker, names["o"]) == before + type(before)(new)
    values = [json.loads(r.value) for r in clients.consume(broker.address, names["o"])]
    assert {(x["V"], x["W"]): x["S"] for x in values if "S" in x} == {(v, w): v + w for _, v, w in new}


def test_what_a_broker_does_not_have_any_more_is_told(broker: Broker, tmp_path: Path) -> None:
    names = prepared(broker, tmp_path)
    Feed(broker, names, 6).more(40)
    assert (said := asked(broker, tmp_path, "run")).code == 0, said.err
    changed(tmp_path)
    said = asked(broker, tmp_path, "upgrade", "--no-kafka")
    assert said.code == 1 and "it has run with --kafka" in said.err, said
    said = asked(broker, tmp_path, "upgrade", "--at-least-once")
    assert said.code == 1 and "it has run without --at-least-once" in said.err, said
    clients.delete_records(broker.address, names["l"], clients.ends(broker.address, names["l"]))
    said = asked(broker, tmp_path, "upgrade")
    assert said.code == 1 and "what is between is not kept" in said.err, said
