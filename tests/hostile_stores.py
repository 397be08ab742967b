"""A store that somebody else made: a real one, with any of its files spoilt, and every command that reads a store.

In: a seed and a number. Out: exit code 0, or the first command that did not end as it should.
Rule: a command is done, or is refused with one error of one line that a terminal only shows; soon, and in little memory
(the process that runs this is given `MEMORY` of address space by `test_fuzz_stores.py`). Without Spark: what would
start it says so and ends.

    python hostile_stores.py SEED COUNT FOLDER
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import shutil
import socket
import stat
import sys
import time
import zlib
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))

import polars as pl

from braid.bind.program import Program
from braid.errors import BraidError
from braid.files.watch import Files
from braid.lower.lower import lower
from braid.spark import conf, jvm
from braid.spark.preparing import prepared
from braid.spark.query_options import QueryOptions
from braid.stage import batches, framed, ring, state_file
from braid.stage.checkpoint import load
from braid.stage.checkpoint_runs import CheckpointRuns
from braid.stage.offset_log import OffsetLog
from braid.store import opened
from braid.topics import TopicStore
from braid.topics.drops import publish_drops, stage_drops
from braid.topics.store_value import Store
from cli_help import braid
from test_findings import batch as batch_told

MEMORY = 6 << 30  # bytes of address space: Polars alone maps some
SECONDS = 20.0  # for a command
SPARK = "Spark would start"

SQL = """
CREATE STREAM l (k INT KEY, v STRING) WITH (kafka_topic='l', value_format='JSON', partitions=2);
CREATE STREAM m (k INT KEY, v STRING) WITH (kafka_topic='m', value_format='JSON', partitions=2);
CREATE STREAM o AS SELECT l.k AS k, l.v AS v, m.v AS w FROM l LEFT JOIN m WITHIN 5 SECONDS ON l.k = m.k;
"""
FILES = """
CREATE STREAM l (k INT KEY, v STRING) WITH (kafka_topic='l', value_format='JSON', partitions=2);
CREATE TABLE f (k INT PRIMARY KEY, v STRING, t BIGINT)
  WITH (kafka_topic='f', value_format='JSON', partitions=2, timestamp='t');
CREATE STREAM p AS SELECT l.k AS k, l.v AS v, f.v AS w FROM l JOIN f ON l.k = f.k;
"""
FOLLOWED = """
CREATE STREAM l (k INT KEY, v STRING) WITH (kafka_topic='l', value_format='JSON', partitions=2);
SELECT * FROM l EMIT CHANGES;
"""
ASKED = "CREATE TABLE l (k INT PRIMARY KEY, v VARCHAR) WITH (topic='l'); SELECT * FROM l;"
RECORD = '{"key": 1, "value": {"V": "a"}, "timestamp": 1}\n'
ESCAPE = "\x1b[2J\x1b]0;x\x07\n\r\u202e\x9b"

COMMANDS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("topics", "--store", "s"), ""),
    (("cat", "l", "--store", "s"), ""),
    (("cat", "l", "--format", "jsonl", "--store", "s"), ""),
    (("cat", "l", "--format", "csv", "--tail", "2", "--store", "s"), ""),
    (("drops", "O", "--store", "s"), ""),
    (("drops", "O", "--format", "jsonl", "--store", "s"), ""),
    (("explain", "--state", "--store", "s", "-e", SQL), ""),
    (("sql", "--store", "s", "--dialect", "ksqldb"), FOLLOWED),
    (("sql", "--store", "s", "--dialect", "risingwave"), ASKED),
    (("run", "-e", SQL, "--store", "s", "--until-idle"), ""),
    (("run", "-e", FILES, "--store", "s", "--until-idle", "--source", "f=f.csv"), ""),
    (("put", "l", "--store", "s"), RECORD),
    (("topics", "--store", "s"), ""),
    (("doctor",), ""),
    (("doctor", "--query", "O", "--store", "s"), ""),
    (("doctor", "--query", "O", "--json", "--store", "s"), ""),
    (("doctor", "--query", "O", "--history", "--store", "s"), ""),
    (("why-not", "O", "--key", "1", "--store", "s"), ""),
    (("why-not", "O", "--since", "0", "--event-time", "--json", "--store", "s"), ""),
)

# ---------------------------------------------------------------------- a real one


def real_store(folder: Path) -> None:
    """`folder/s`: topics with commits and rollups, a checkpoint that has committed batches, its state, drops."""
    store = TopicStore(opened(folder / "s"))
    for name, partitions in (("l", 2), ("m", 2), ("O", 2)):
        store.create(name, partitions)
    for i in range(104):
        values = [{"key": k, "value": {"V": f"v{i}"}, "timestamp": i, "partition": k % 2} for k in range(3)]
        store.append("l", values, query="q-1", batch=i)
    store.append("m", [{"key": 1, "value": {"V": "x"}, "timestamp": 1}])
    (query,) = (e.query for e in Program("ksqldb").statements(SQL) if e.query is not None)
    (filed,) = (e.query for e in Program("ksqldb").statements(FILES) if e.query is not None)
    (folder / "f.csv").write_text("k,v,t\n1,a,5\n2,b,6\n")
    options = QueryOptions()
    prepared(lower(filed), Store(store.root), 2, replace(options, files={"F": Files(str(folder / "f.csv"))}))
    job, found, *_ = prepared(lower(query), Store(opened(str(folder / "s"))), 2, options)
    known = load(found)
    assert known is not None
    log = OffsetLog(found)
    for batch in range(4):
        document = {"batch": batch, "next": {"0/0": 3 * batch}, "ended": [], "idle": [], "plan": known.fingerprint}
        if batch == 3:
            batches.plan(found, batch, [json.dumps(document)])
        else:
            kept = {}
            for bucket in range(2):
                run = f"q-{batch}-0a-0-{bucket}-2-0"
                size = CheckpointRuns(found, f"0/{bucket}").put(run, pl.DataFrame({"a": [1, 2, 3]}))
                steps = {"2": {"left": {"runs": [[run, 3, size, 0, 9, 1]], "floor": 0}}}
                kept[f"0/{bucket}"] = {"format": 1, "clocks": {}, "steps": steps}
            state_file.save(found, batch, kept, reads=[json.dumps(document)])
            log.add(document)
            state_file.tell_published(found, batch)
    columns = {"reason": ["late", "malformed"], "message": ["x", ESCAPE], "_key": ["1", None], "_raw": [None, b"\xff"]}
    staged = stage_drops(job.store.objects, "O", 0, 0, pl.DataFrame(columns))
    assert staged is not None
    publish_drops(job.store.objects, "O", 0, [staged])
    one = ring.Ring(found, print)
    for batch in range(8):
        one.add(batch_told(batch) | {"query": "O"})
    one.rest()
    (folder / "s/.run.lock").write_text(json.dumps({"host": socket.gethostname(), "processes": []}))


# ----------------------------------------------------------------------- spoiling

ODD: tuple[Any, ...] = (
    *(-1, 0, 1, 2, 10**9, 1 << 62, 1 << 63, 10**30, -(10**30), 0.5, 1e308, float("inf"), float("nan"), True, None),
    *("", "x", ".", "..", "/etc/passwd", "../../../x", "a/b", "0/0", "\0", ESCAPE, "1" * 5000, "é", [], {}, [[]]),
    *([1] * 1000, {"a": {}}, [None], [-1], ["x"], {"x": -1}, {"0/0": 10**30}, {"0/0": "x"}, {"../x": {}}),
)
TEXTS = (
    b"",
    b"\n",
    b"null",
    b"[]",
    b"1",
    b'"x"',
    b"{}",
    b"[" * 100_000,
    b'{"a":' * 90_000,
    b"[" * 500 + b"]" * 500,
    b"{" * 7,
    b"\xff\xfe",
    b"\0" * 100,
    b"9" * 10_000,
    b'{"format":1e999}',
    b"v1\n" * 50,
    ESCAPE.encode(),
    b'{"format": 1, "format": ' + b"9" * 4000 + b"}",
)


def at_random(r: random.Random, x: Any) -> Any:
    """A JSON value with one of its parts replaced, missing or doubled."""
    if isinstance(x, dict) and x and r.random() < 0.8:
        name = r.choice(sorted(x))
        match r.randrange(8):
            case 0:
                return {k: v for k, v in x.items() if k != name}
            case 1:
                return {**x, r.choice(("", ESCAPE, "../x", "0/1")): x[name]}
            case _:
                return {**x, name: at_random(r, x[name])}
    if isinstance(x, list) and x and r.random() < 0.8:
        i = r.randrange(len(x))
        match r.randrange(8):
            case 0:
                return x[:i] + x[i + 1 :]
            case 1:
                return [*x, x[i]]
            case _:
                return [*x[:i], at_random(r, x[i]), *x[i + 1 :]]
    if isinstance(x, str) and x.startswith("{") and r.random() < 0.8:
        return json.dumps(at_random(r, json.loads(x)))  # what a batch reads
    return r.choice(ODD)


def spoilt_json(r: random.Random, path: Path) -> bool:
    """A file of JSON with one part spoilt, and checksums that fit; False where there is no JSON."""
    lines = path.read_bytes().split(b"\n")
    found = [i for i, line in enumerate(lines) if line.startswith(b"{")]
    with suppress(ValueError):
        whole = json.loads(path.read_bytes())
        lines, found = [json.dumps(whole).encode()], [0]
    if not found:
        return False
    i = r.choice(found)
    try:
        lines[i] = json.dumps(at_random(r, json.loads(lines[i]))).encode()
    except ValueError:
        return False
    if path.parent.name == "state" or path.name == batches.PLANNED:
        lines[1:2] = [b"%08x" % zlib.crc32(lines[0])]
    path.write_bytes(b"\n".join(lines))
    return True


def spoilt_bytes(r: random.Random, path: Path) -> None:
    data = bytearray(path.read_bytes())
    match r.randrange(4):
        case 0:
            del data[r.randrange(len(data) + 1) :]
        case 1 if data:
            data[r.randrange(len(data))] ^= 1 << r.randrange(8)
        case 2:
            data += bytes(data) or b"x"
        case _:
            data[:] = r.choice(TEXTS)
    path.write_bytes(bytes(data))


def replaced(r: random.Random, path: Path) -> None:
    """Something else in the place of a file or folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
    match r.randrange(10):
        case 0:
            os.mkfifo(path)
        case 1:
            with suppress(OSError), socket.socket(socket.AF_UNIX) as s:  # too long a path
                s.bind(os.path.relpath(path))
        case 2:
            path.mkdir()
        case 3:
            path.symlink_to("/etc/passwd")
        case 4:
            path.symlink_to(path.name)
        case 5:
            path.symlink_to("/dev/zero")
        case 6 if os.getuid() == 0:
            with suppress(OSError):
                os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))  # zeros without end
        case 7:
            path.symlink_to("/proc/self")
        case 8:
            path.mkdir()
            (path / path.name).mkdir()
        case _:
            pass  # gone


def sparse(r: random.Random, path: Path) -> None:
    """A file of 6 to 20 GB that takes no room."""
    if r.random() < 0.5:
        path.write_bytes(b"")
    os.truncate(path, r.choice((6, 20)) << 30)


def added(r: random.Random, root: Path) -> None:
    """A file or folder that no store has."""
    topic = root / "topics" / r.choice("lm")
    commits, checkpoint = topic / ".commits", root / "checkpoints/O"
    number = r.choice((2, 105, 106, 10**15, 10**19, 10**20 - 1))
    match r.randrange(12):
        case 11:  # of the ring, under checksums that fit
            name = f"{r.choice((1, 10**12, 10**15)):016d}"
            told = json.dumps(at_random(r, batch_told(3) | {"query": "O"})).encode()
            body = b"W" + zlib.compress(r.choice((told, told, *TEXTS, b"[" * (64 << 20))))
            record = framed.record(ring._MAGIC, name, body)
            (checkpoint / ring.FOLDER).mkdir(exist_ok=True)
            (checkpoint / ring.FOLDER / name).write_bytes(record * r.choice((1, 1, 30)))
        case 0:
            (topic / str(r.choice((5, 9999, 10_000, 10**9, 10**18, 10**30)))).mkdir(exist_ok=True)
            if r.random() < 0.7:
                (topic / "topic.json").unlink()
        case 1:
            (commits / f"{number:020d}.json").write_bytes(r.choice(TEXTS))
        case 2:
            name = f"{r.choice((0, 1, 104, number)):020d}-{r.choice((0, 103, 104, 105, number)):020d}.rollup.json"
            empty = json.dumps({"format": 1, "segments": [], "queries": {}, "extras": []}).encode()
            (commits / name).write_bytes(r.choice((*TEXTS, empty)))
        case 3:
            where = r.choice((root, root / "topics", topic, topic / "0", commits, root / "drops", checkpoint))
            name = r.choice((ESCAPE, "a\nb", "\udcff", " ", "x" * 250, "-rf", ".", "*"))
            with suppress(OSError):
                (where / name).mkdir()
        case 4:
            (topic / "0" / f"{r.choice((0, 1, 104, 208, number)):020d}.jsonl").write_bytes(r.choice(TEXTS))
        case 5:
            path = topic / "0" / f"{208 if topic.name == 'l' else 1:020d}.jsonl"
            path.write_bytes(b"")
            os.truncate(path, 20 << 30)
        case 6:
            (root / "drops/O" / f"{ESCAPE}.jsonl".replace("\n", "")).write_bytes(r.choice((*TEXTS, ESCAPE.encode())))
        case 7:
            (checkpoint / "state" / f"{number}.json").write_bytes(r.choice(TEXTS))
        case 8:
            (checkpoint / r.choice((batches.PLANNED, "state/published"))).write_bytes(r.choice(TEXTS))
        case 9:
            process = {"pid": r.choice(ODD), "what": r.choice(ODD), "started": r.choice(ODD)}
            held = {"host": socket.gethostname(), "processes": [process]}
            (root / ".run.lock").write_text(json.dumps(held))
        case _:
            (topic / ".staging" / "~roll~x").mkdir()


def spoil(r: random.Random, root: Path) -> str:
    """Spoils something; says what."""
    plain = {p: p.lstat() for p in root.rglob("*")}
    files = sorted(p for p, x in plain.items() if stat.S_ISREG(x.st_mode) and x.st_size < 1 << 30)
    folders = sorted(p for p, x in plain.items() if stat.S_ISDIR(x.st_mode))
    path = r.choice(files)
    if r.random() < 0.5:  # what there is most of is not most interesting
        kinds: dict[str, list[Path]] = {}
        for p in files:
            kinds.setdefault("".join(c for c in p.name if not c.isdigit()) + p.parent.name[-3:], []).append(p)
        path = r.choice(kinds[r.choice(sorted(kinds))])
    deeds: list[Callable[[], object]] = [
        lambda: spoilt_json(r, path) or spoilt_bytes(r, path),
        lambda: spoilt_bytes(r, path),
        lambda: replaced(r, path),
        lambda: replaced(r, r.choice(folders)),
        lambda: sparse(r, path),
        lambda: added(r, root),
    ]
    i = r.choices(range(6), (10, 3, 3, 1, 1, 5))[0]
    with suppress(OSError):  # what an earlier deed took away cannot be spoilt
        deeds[i]()
    return f"{('json', 'bytes', 'replaced', 'a folder replaced', 'sparse', 'added')[i]} {path.relative_to(root)}"


# ----------------------------------------------------------------------- commands


def well_said(code: int, out: str, err: str, statements: int = 1) -> str | None:
    """What is wrong with an end; None where it is as it should be. A script goes on behind a refused statement."""
    if code not in (0, 1):
        return f"exit code {code}"
    for text in (out, err):
        seen = {c for c in text if not c.isprintable() and c != "\n"}
        if seen:
            return f"{seen!r} on the terminal"
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    if code == 1 and not 1 <= len(errors) <= statements:
        return f"{len(errors)} errors"
    if len(err) > 20_000 or any(len(line) > 3000 for line in err.splitlines()):
        return "a very long error"
    return None


@contextmanager
def without_spark() -> Any:
    refused = BraidError(SPARK)
    with (
        mock.patch.object(conf, "session", side_effect=refused),
        mock.patch.object(jvm, "java_version", return_value=17),
    ):
        yield


def main(seed: str, count: int, folder: Path) -> None:
    real, work = folder / "real", folder / "work"
    work.mkdir()
    os.chdir(work)
    real_store(work)
    work.rename(real)
    for i in range(count):
        r = random.Random(f"{seed} {i}")
        os.chdir(folder)
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(real, work, symlinks=True)
        os.chdir(work)
        done = [spoil(r, work / "s") for _ in range(r.choice((1, 1, 2, 3)) if i else 0)]
        for words, stdin in COMMANDS:
            faulthandler.dump_traceback_later(3 * SECONDS, exit=True)
            started = time.monotonic()
            try:
                with without_spark():
                    said = braid(*words, stdin=stdin)
                if words[:2] == ("doctor", "--query") and said.out:  # what it has found is no error
                    said = replace(said, code=0)
                wrong = well_said(said.code, said.out, said.err, 2 if words[0] == "sql" else 1)
                told = f"{said.out[-2000:]!r}\n{said.err[-2000:]!r}"
            except BaseException as e:
                wrong, told = f"{type(e).__name__}", str(e)[-3000:]
            took = time.monotonic() - started
            if wrong is None and took > SECONDS:
                wrong = f"it took {took:.0f} s"
            if wrong is None and i == 0 and said.code and SPARK not in said.err:
                wrong = "an unspoilt store is refused"
            faulthandler.cancel_dump_traceback_later()
            if wrong is not None:
                print(f"seed {seed!r}, {i}: {done}\nbraid {' '.join(words)[:100]}\n{wrong}\n{told}")
                sys.exit(1)
    os.chdir(folder)
    shutil.rmtree(folder / "work", ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
