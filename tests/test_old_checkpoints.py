"""Checkpoints of older formats go on; those of 0.1.0 are refused by name, and stay as they are.

`tests/checkpoints/format-N.tar.gz` are stores as they were written: a LEFT join that has met one of two rows and waits
with the other. A new format gets one of its own, made by `braid run` on the statements below.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from braid.errors import BraidError
from braid.stage import checkpoint
from braid.store import opened
from cli_help import on_shared_spark

MADE = Path(__file__).parent / "checkpoints"
STATEMENTS = """
CREATE STREAM l (k INT KEY, v STRING) WITH (kafka_topic='l', value_format='JSON', partitions=1);
CREATE STREAM r (k INT KEY, w STRING) WITH (kafka_topic='r', value_format='JSON', partitions=1);
CREATE STREAM o AS SELECT l.k AS k, v, w FROM l LEFT JOIN r WITHIN 5 SECONDS GRACE PERIOD 0 SECONDS ON l.k = r.k;
"""
READ = ("format-6", f"format-{checkpoint.FORMAT}")


def store(name: str, folder: Path) -> Path:
    with tarfile.open(MADE / f"{name}.tar.gz") as packed:
        packed.extractall(folder / "store", filter="data")
    return folder / "store"


def files(folder: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and not p.name.endswith(".lock")}


def of_0_1_0(folder: Path) -> Path:
    """What it wrote had format 5."""
    root = store("format-6", folder)
    path = root / "checkpoints" / "O" / "braid.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 5}))
    return root


def test_there_is_one_of_each_format_that_is_read() -> None:
    assert sorted(p.name.removesuffix(".tar.gz") for p in MADE.glob("format-*.tar.gz")) == sorted(READ)


@pytest.mark.parametrize("name", READ)
def test_one_that_is_looked_at_stays_as_it_is(name: str, tmp_path: Path) -> None:
    root = store(name, tmp_path)
    before = files(root)
    assert checkpoint.load(opened(root / "checkpoints" / "O")) is not None
    assert files(root) == before


def test_one_of_0_1_0_is_refused(tmp_path: Path) -> None:
    root = of_0_1_0(tmp_path)
    before = files(root)
    with pytest.raises(BraidError, match="has format 5; this version of braid has format") as e:
        checkpoint.load(opened(root / "checkpoints" / "O"))
    assert e.value.hint is not None and "run the file on a new store (--store)" in e.value.hint
    assert files(root) == before


@pytest.mark.spark
@pytest.mark.parametrize("name", READ)
def test_one_that_can_be_read_goes_on(name: str, tmp_path: Path) -> None:
    """The row that waits goes out when the clock has passed its window. The checkpoint is of this format from then on,
    and nothing of Spark's is in it."""
    pytest.importorskip("pyspark")
    root = store(name, tmp_path)
    (tmp_path / "q.sql").write_text(STATEMENTS)
    (tmp_path / "later.sql").write_text(STATEMENTS + "INSERT INTO l (ROWTIME, k, v) VALUES (9000, 3, 'c');")
    for file in ("later.sql", "q.sql"):
        said = on_shared_spark("run", file, "--store", root, "--until-idle", "--quiet", cwd=tmp_path)
        assert said.code == 0, said.err
    kept = root / "checkpoints" / "O"
    assert json.loads((kept / "braid.json").read_text())["format"] == checkpoint.FORMAT
    assert not (kept / "spark").exists()
    lines = (line for p in sorted((root / "topics" / "O" / "0").glob("*.jsonl")) for line in p.read_text().splitlines())
    assert list(lines) == [
        '{"key":2,"value":{"V":"b","W":"x"},"timestamp":3000}',
        '{"key":1,"value":{"V":"a","W":null},"timestamp":1000}',
    ]


@pytest.mark.spark
def test_a_run_on_an_older_one_says_so(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    root = of_0_1_0(tmp_path)
    (tmp_path / "q.sql").write_text(STATEMENTS)
    said = on_shared_spark("run", "q.sql", "--store", root, "--until-idle", "--quiet", cwd=tmp_path)
    assert said.code == 1
    assert "has format 5; this version of braid has format" in said.err and "Traceback" not in said.err
