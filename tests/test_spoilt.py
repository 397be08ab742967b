"""Each durable byte stands under a checksum that its reader compares: whatever file of a store is spoilt, `braid verify`
and the next start say so by name, or the rows are exactly those of a store that is not."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import effort
from braid.records.registry import Schema
from braid.topics import TopicStore, documents, log
from braid.topics.registries import of_store
from braid.topics.sealed import has_seal
from cli_help import braid, on_shared_spark, records
from spoiling import fresh, in_folder, put_in, spoils

pytestmark = pytest.mark.spark

SQL = """
CREATE STREAM l (k INT KEY, v STRING) WITH (kafka_topic='l', value_format='JSON', partitions=2);
CREATE STREAM r (k INT KEY, w STRING) WITH (kafka_topic='r', value_format='JSON', partitions=2);
CREATE STREAM f (k INT KEY, w STRING, t BIGINT)
  WITH (kafka_topic='f', value_format='JSON', partitions=1, timestamp='t');
CREATE STREAM o AS SELECT l.k AS k, v, w FROM l LEFT JOIN r WITHIN 5 SECONDS GRACE PERIOD 1 SECONDS ON l.k = r.k;
CREATE TABLE c AS SELECT k, COUNT(*) AS n FROM f GROUP BY k;
"""
SECONDS = "CREATE STREAM e AS SELECT k, v FROM l;"
RUN = ("run", "q.sql", "--until-idle", "--quiet", "--source", "f=f.csv", "--fail-fast")
OUTPUTS = ("O", "C")
TRIED = 1000 if effort.LAW else 14  # starts on Spark; all else is looked at without


def put(store: TopicStore, step: int) -> None:
    """Records of a step; some are late."""
    rng = random.Random(step)
    for topic, column in (("l", "V"), ("r", "W")):
        times = [10_000 * step + 500 * n for n in range(6)] + [1] * bool(step)
        store.append(
            topic,
            [
                {"key": k, "value": {column: f"{column}{step}-{n}"}, "timestamp": t, "partition": k % 2}
                for n, (t, k) in enumerate((t, rng.randrange(4)) for t in times)
            ],
        )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with all that one can have: commits and rollups, state, drops, schemas, settings, files that were read."""
    root = tmp_path_factory.mktemp("world")
    (root / "q.sql").write_text(SQL)
    (root / "e.sql").write_text(SQL.split("CREATE STREAM o")[0] + SECONDS)
    (root / "f.csv").write_text("k,w,t\n1,a,5\n2,b,6\n")
    store = TopicStore(root / "s")
    store.create("l", 2)
    store.create("r", 2)
    store.create("rolled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "FOLD", 4)
        for n in range(22):
            store.append("rolled", [{"key": n, "value": {"V": "x"}, "timestamp": n}])
    for subject in ("a-value", "b-value"):
        text = '{"type":"record","name":"%s","fields":[]}' % subject[0]
        of_store(store.root).register(subject, Schema("AVRO", text, ()))
    documents.changed(store.root, "tables/l", lambda _: b'{"topic":"l","identity":"x","from":"y"}')
    for step in range(3):
        put(store, step)
        if step:
            with open(root / "f.csv", "a") as f:
                f.write(f"{step},c{step},{step}000\n")
        said = on_shared_spark(*RUN, "--store", "s", cwd=root)
        assert said.code == 0, said.err
    said = on_shared_spark("run", "e.sql", "--until-idle", "--quiet", "--store", "s", "--checkpoint", "ext", cwd=root)
    assert said.code == 0, said.err
    said = on_shared_spark("retain", "rolled", "--for", "100000d", "--store", "s", cwd=root)
    assert said.code == 0, said.err
    said = on_shared_spark(
        "sql", "--dialect", "ksqldb", "-e", SQL.split("CREATE STREAM f")[0], "--store", "s", cwd=root
    )
    assert said.code == 0, said.err
    assert on_shared_spark("verify", "--store", "s", cwd=root).code == 0
    return root


def rows(root: Path) -> dict[str, Counter[str]]:
    """What users see: all records, and all that was dropped."""
    found = {name: Counter(map(str, records(name, root / "s"))) for name in ("l", "r", "rolled", *OUTPUTS)}
    return found | {"drops": Counter(braid("drops", "O", "--store", root / "s", "--format", "jsonl").out.splitlines())}


def goes_on(root: Path) -> str | dict[str, Counter[str]]:
    """Why the next start is refused; or the rows that are there when it has read more."""
    put(TopicStore(root / "s"), 3)
    for words in (RUN, ("run", "e.sql", "--until-idle", "--quiet", "--checkpoint", "ext")):
        said = on_shared_spark(*words, "--store", "s", cwd=root)
        if said.code:
            return said.err
    return rows(root)


def looked_at(root: Path) -> str:
    """What verify says is wrong."""
    said = on_shared_spark("verify", "--store", "s", cwd=root)
    return said.err if said.code else ""


def test_the_kinds_of_files_are_all_there(world: Path) -> None:
    names = " ".join(in_folder(world / "s"))
    wanted = (
        *("topics/l/topic.json", ".rollup.json", "checkpoints/O/braid.json", "checkpoints/O/cuts.jsonl", "state/"),
        *("runs/", "drops/O/", "retention.json", "store.json", "catalogue/ksqldb.json", "registry/schemas/1.json"),
        *("registry/subjects/a-value.json", "tables/l.json", "checkpoints/C/files/F.jsonl", ".files.jsonl"),
    )
    assert not [name for name in wanted if name not in names], names


def test_a_spoilt_file_is_named_or_makes_no_difference(world: Path, tmp_path: Path) -> None:
    files = in_folder(world / "s")
    before = rows(world)
    sound = goes_on(fresh(world, tmp_path / "sound"))
    assert isinstance(sound, dict)
    made = list(spoils(files, seed=effort.LAW))
    started = {x[:2] for x in random.Random(1).sample(made, min(TRIED, len(made)))}
    silent = []
    for way, name, data in made:
        root = fresh(world, tmp_path / "spoilt")
        put_in(root / "s" / name, data)
        wrong = looked_at(root)
        assert not wrong or os.path.basename(name).split("~")[0] in wrong or _about(name) in wrong, (way, name, wrong)
        if not wrong:
            silent.append(f"{way} {name}")
            assert rows(root) == before, (way, name)
        if not wrong or (way, name) in started:
            found = goes_on(root)
            assert found == sound or wrong, (way, name, found)
    print(f"{len(made)} spoilt, not named:", *silent, sep="\n  ")


def _about(name: str) -> str:
    """What a file is of, where another file tells that it is gone."""
    parts = name.split("/")
    return "/".join(parts[:2]) if parts[0] != "checkpoints" else f"{parts[0]}/{parts[1]}"
