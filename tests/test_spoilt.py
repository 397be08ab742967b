"""Each durable byte stands under a checksum that its reader compares.

Whatever file of a store is spoilt, `braid verify` and the next start say so by name, or the rows are exactly those of a
store that is not.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import effort
from braid.records.registry import Schema
from braid.store import opened
from braid.topics import TopicStore, log
from braid.topics.registries import of_store
from braid.topics.sealed import has_seal
from cli_help import braid, on_shared_spark
from spoiling import anew, in_folder, named, put_in, spoils

pytestmark = [pytest.mark.spark, pytest.mark.operations]

DECLARED = """
CREATE STREAM l (k INT KEY, v STRING) WITH (kafka_topic='l', value_format='JSON', partitions=2);
CREATE STREAM r (k INT KEY, w STRING) WITH (kafka_topic='r', value_format='JSON', partitions=2);
"""
JOINED = (
    "CREATE STREAM o AS SELECT l.k AS k, v, w FROM l LEFT JOIN r WITHIN 5 SECONDS GRACE PERIOD 1 SECONDS ON l.k = r.k;"
)
COUNTED = """
CREATE STREAM f (k INT KEY, w STRING, t BIGINT)
  WITH (kafka_topic='f', value_format='JSON', partitions=1, timestamp='t');
CREATE TABLE c AS SELECT k, COUNT(*) AS n FROM f GROUP BY k;
"""
COPIED = "CREATE STREAM e AS SELECT k, v FROM l;"
RUN = ("run", "--until-idle", "--quiet", "--fail-fast", "--store", "s")
OUTSIDE = ("ext", "files", "out.jsonl")  # the folders beside a store, which it and its checkpoints know by their paths
STARTS = 1000 if effort.LAW else 3  # on Spark; what verify does not name is always started
EACH = None if effort.LAW else 1  # files of a kind


def put(store: TopicStore, step: int) -> None:
    """Records of a step; some are late."""
    rng = random.Random(step)
    for topic, column in (("l", "V"), ("r", "W")):
        times = [10_000 * step + 500 * n for n in range(6)] + [1] * bool(step)
        keys = [rng.randrange(4) for _ in times]
        rows = [
            {"key": k, "value": {column: f"{column}{step}-{n}"}, "timestamp": t, "partition": k % 2}
            for n, (t, k) in enumerate(zip(times, keys, strict=True))
        ]
        store.append(topic, rows)


@dataclass(slots=True)
class World:
    """`root/0` is a store that is whole. Each that is spoilt has a folder of its own: processes know what they read
    by its path."""

    root: Path
    at: Path
    made: int = 0

    @staticmethod
    def begun(root: Path) -> World:
        (root / "0").mkdir()
        for name in OUTSIDE:
            (root / "0" / name).mkdir()
            (root / name).symlink_to(root / "0" / name)
        return World(root, root / "0")

    def spoilt(self, name: str = "", data: bytes | None = None) -> None:
        if self.made:
            shutil.rmtree(self.at)
        self.made += 1
        self.at = anew(self.root / "0", self.root / str(self.made))
        for outside in OUTSIDE:
            (self.root / outside).unlink()
            (self.root / outside).symlink_to(self.at / outside)
        if name:
            put_in(self.at / name, data)

    def run(self) -> str:
        """Why it is refused."""
        ext, files_, out = (self.root / name for name in OUTSIDE)
        for words in (
            ("q.sql", "--source", "f=f.csv"),
            ("e.sql", "--checkpoint", ext),
            ("e.sql", "--checkpoint", files_, "--sink", f"E={out}"),
        ):
            if (said := on_shared_spark(*RUN, *words, cwd=self.at)).code:
                return said.err
        return ""

    def goes_on(self) -> str | dict[str, Counter[str]]:
        """Why the next start is refused; or the rows that are there when it has read more."""
        put(TopicStore(opened(self.at / "s")), 2)
        return self.run() or self.rows()

    def rows(self) -> str | dict[str, Counter[str]]:
        """What users see: all records, in whatever order two sources were read, and all that was dropped. Or why they
        cannot be shown."""
        found = dict[str, Counter[str]]()
        for topic in ("l", "r", "rolled", "O", "C", "E"):
            said = braid("cat", topic, "--store", self.at / "s", "--format", "jsonl")
            if said.code:
                return said.err
            rows = [json.loads(line) for line in said.out.splitlines()]
            found[topic] = Counter(str((r["partition"], r["key"], r["value"], r["timestamp"])) for r in rows)
        dropped = braid("drops", "O", "--store", self.at / "s", "--format", "jsonl")
        parts = sorted((self.at / "out.jsonl").glob("part-*"))
        lines = Counter(line for p in parts for line in p.read_text().splitlines())
        return found | {"drops": Counter((dropped.out + dropped.err).splitlines()), "files": lines}

    def looked_at(self) -> str:
        """What verify says is wrong."""
        said = on_shared_spark("verify", "--store", "s", cwd=self.at)
        return said.err if said.code else ""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A store with all that one can have: commits and rollups, state, drops, schemas, settings, files that were read,
    checkpoints elsewhere, a folder of results."""
    root = tmp_path_factory.mktemp("world")
    found = World.begun(root)
    at = found.at
    (at / "q.sql").write_text(DECLARED + JOINED + COUNTED)
    (at / "e.sql").write_text(DECLARED + COPIED)
    store = TopicStore(opened(at / "s"))
    store.create("l", 2)
    store.create("r", 2)
    store.create("rolled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "FOLD", 4)
        for n in range(22):
            store.append("rolled", [{"key": n, "value": {"V": "x"}, "timestamp": n}])
    for subject in ("a-value", "b-value"):
        text = f'{{"type":"record","name":"{subject[0]}","fields":[]}}'
        of_store(store.root).register(subject, Schema("AVRO", text, ()))
    (at / "f.csv").write_text("k,w,t\n1,a,5\n2,b,6\n")
    for step in range(2):
        put(store, step)
        with open(at / "f.csv", "a") as f:
            f.write(f"{step},c{step},{step}000\n")
        assert not (why := found.run()), why
    for words in (("retain", "rolled", "--for", "100000d"), ("sql", "--dialect", "ksqldb", "-e", DECLARED)):
        said = on_shared_spark(*words, "--store", "s", cwd=at)
        assert said.code == 0, said.err
    assert not (wrong := found.looked_at()), wrong
    return found


def test_the_kinds_of_files_are_all_there(world: World) -> None:
    names = " ".join(in_folder(world.root / "0"))
    wanted = (
        *("s/topics/l/topic.json", ".rollup.json", "O/braid.json", "O/cuts.jsonl", "O/state/1.json", "O/runs/"),
        *("drops/O/", "retention.json", "store.json", "catalogue/ksqldb.json", "registry/schemas/1.json"),
        *("registry/subjects/a-value.json", "checkpoints/C/files/F.jsonl", ".files.jsonl", "ext/E/braid.json"),
        *("out.jsonl/.owner.json", "out.jsonl/.commits/", "out.jsonl/part-"),
    )
    assert not [name for name in wanted if name not in names], names


def test_a_spoilt_file_is_named_or_makes_no_difference(world: World) -> None:
    """Of the store and of checkpoints elsewhere; of the folder of results as soon as its commits have checksums."""
    files = in_folder(world.root / "0")
    of_sums = {n: has_seal(d) for n, d in files.items() if n.startswith("out.jsonl/.commits/")}
    places = ("s/", "ext/") + (("out.jsonl/",) if all(of_sums.values()) else ())
    before = world.rows()
    assert isinstance(before, dict), before
    world.spoilt()
    sound = world.goes_on()
    assert isinstance(sound, dict), sound
    made = list(spoils({n: d for n, d in files.items() if n.startswith(places)}, int(effort.LAW), EACH))
    started = {x[:2] for x in random.Random(1).sample(made, min(STARTS, len(made)))}
    for way, name, data in made:
        world.spoilt(name, data)
        wrong = world.looked_at()
        assert not wrong or named(name.partition("/")[2], wrong), (way, name, wrong)
        assert wrong or world.rows() == before, (way, name)
        if not wrong or (way, name) in started:
            found = world.goes_on()
            if isinstance(found, dict) and wrong and name.startswith("s/drops/"):  # it goes on without them
                found["drops"] = sound["drops"]
            assert found == sound or (wrong and isinstance(found, str)), (way, name, wrong, found)
