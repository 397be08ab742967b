"""Workers that have Python and Spark, and neither Braid nor its libraries: they are sent both.

In: two such workers. Out: the oracle's records; what `braid doctor` says of them.
Rule: nobody installs anything there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(1500)]
pytest.importorskip("pyspark")

from braid.spark.packing import PYTHON  # noqa: E402
from cli_help import ended, launch, spawned  # noqa: E402
from cluster.nodes import BARE, CONF, HOME, Cluster, address, cluster, isolated  # noqa: E402
from crash import world  # noqa: E402
from crash.places import InObjects, InStore  # noqa: E402

LONG = 1200  # s: libraries are packed once
HALF = [w.replace("spark.cores.max=3", "spark.cores.max=2") for w in CONF]  # for two runs at once
SCRIPT = """
import braid
from pyspark.sql import SparkSession

session = braid.connect(store="s", spark=SparkSession.builder.getOrCreate())
for handle in session.execute(open("q.sql").read()):
    handle.await_idle()
session.stop()
"""


@pytest.fixture(scope="module")
def bare(shared: Path, credentials: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if not isolated():
        pytest.skip("this system gives no name spaces of mounts (unshare -m)")
    with cluster(tmp_path_factory.mktemp("bare"), shared=[shared], software=BARE, workers=2, env=credentials) as made:
        yield made


def prepared(at: Path, url: str | None = None) -> tuple[InStore, dict[str, world.Lines]]:
    """A chain of two stages: its store, in a folder or at a URL, and what is to come out."""
    store, made = InStore(at / "s") if url is None else InObjects(url), world.history(4, 40)
    store.write(made)
    (at / "q.sql").write_text(world.sql(["CHAINED"]), encoding="utf-8")
    return store, world.expected(made, ["CHAINED"], store.partitions)


def test_a_run_sends_what_workers_lack(bare: Cluster, at: Path) -> None:
    """Without a word about it; their Python is another one than the driver's, by its path."""
    store, want = prepared(at)
    said = ended(launch("run", "q.sql", "--store", "s", "--until-idle", "--master", bare.url, *CONF, cwd=at), LONG)
    assert said.code == 0, said.err
    assert "workers do not have this Braid: it is packed, once, and sent to them" in said.err, said.err
    assert (found := world.difference(store.written(["CHAINED"]), want)) is None, found


def test_libraries_lie_once_on_a_worker(bare: Cluster, at: Path) -> None:
    """After several runs, two of which went on at once; nothing of that size is left by a run."""
    for place in ("a", "b"):
        (at / place).mkdir()
        prepared(at / place)
    words = ("run", "q.sql", "--store", "s", "--until-idle", "--quiet", "--master", bare.url, *HALF)
    running = [launch(*words, cwd=at / place) for place in ("a", "b")]
    for process in running:
        said = ended(process, LONG)
        assert said.code == 0, said.err
    for number in range(2):
        machine = bare.machine(number)
        (name,) = kept(machine)
        assert name.startswith("libraries-")
        left = sum(f.stat().st_size for f in (machine / "work").rglob("*") if f.is_file())
        each = 20 << 20  # Braid alone, unpacked, of an executor
        runs = len([*(machine / "work").glob("app-*/*/")])
        assert left < each * runs, [(str(f), f.stat().st_size) for f in (machine / "work").rglob("*.zip")]


def kept(machine: Path) -> list[str]:
    return [name for name in os.listdir(machine / "cache" / "libraries") if not name.startswith(".")]


def test_workers_that_share_no_folder_are_sent_it_too(bare: Cluster, at: Path, url: str) -> None:
    """There is nothing else that they are asked for."""
    store, want = prepared(at, url)
    said = ended(launch("run", "q.sql", "--store", url, "--until-idle", "--master", bare.url, *CONF, cwd=at), LONG)
    assert said.code == 0 and "workers do not have this Braid" in said.err, said.err
    assert (found := world.difference(store.written(["CHAINED"]), want)) is None, found


def test_doctor_says_what_workers_have(bare: Cluster, at: Path) -> None:
    (at / "s").mkdir()
    said = spawned("doctor", "--master", bare.url, "--store", "s", *CONF, cwd=at)
    told = [line for line in said.out.splitlines() if "the worker" in line]
    version = ".".join(map(str, sys.version_info[:3]))
    for line, number in zip(told, range(2), strict=True):
        assert line.startswith(f"ok    the worker {address(number)}: Python {version}, PySpark "), said.out
        assert "no Braid, so a run sends it" in line and line.endswith(", sees the store"), said.out
    assert "3 executors, 3 tasks at once" in said.out
    assert said.code == 1 and "--conf spark.authenticate=true" in said.out  # the cluster is open to all


def test_spark_submit_with_a_pack(bare: Cluster, at: Path) -> None:
    store, want = prepared(at)
    packed = ended(launch("pack", "packed", cwd=at), LONG)
    assert packed.code == 0, packed.err
    *files, words = packed.out.splitlines()
    assert len(files) == 2 and words.startswith("spark-submit --conf spark.archives=packed/")
    (at / "script.py").write_text(SCRIPT, encoding="utf-8")
    command = [os.path.join(HOME, "bin", "spark-submit"), "--master", bare.url, *CONF, *words.split()[1:], "script.py"]
    env = os.environ | {
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]),
        "PYSPARK_PYTHON": PYTHON,
        "SPARK_HOME": HOME,
    }
    for _ in range(3):
        done = subprocess.run(command, cwd=at, env=env, capture_output=True, text=True, timeout=LONG, check=False)
        if "timed out" not in done.stderr:  # on a busy machine Spark gives up its own sockets
            break
    told = [x for x in done.stderr.splitlines() if " INFO " not in x and not x.startswith("\tat ")]
    assert done.returncode == 0, "\n".join(told)[-5000:]
    assert "it is packed, once, and sent" not in done.stderr
    assert (found := world.difference(store.written(["CHAINED"]), want)) is None, found


def test_a_master_that_is_not_there(tmp_path: Path) -> None:
    said = spawned("doctor", "--master", "spark://127.0.0.1:9", cwd=tmp_path)
    assert said.code == 1
    assert "miss  spark://127.0.0.1:9 does not answer (Connection refused)" in said.out, said.out
