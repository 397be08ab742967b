"""Borders: who can reach what a run opens, and whose folders it takes. (Hostile stores: test_fuzz_stores.py.)"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import polars as pl
import pytest

from braid.errors import BraidError
from braid.spark import columns, conf, private
from cli_help import QUICK, braid, launch
from crash import processes

# ------------------------------------------------------------- sockets of a run

SQL = """
CREATE STREAM l (k INT KEY, v STRING) WITH (kafka_topic='l', value_format='JSON', partitions=1);
CREATE TABLE r (k INT PRIMARY KEY, w STRING) WITH (kafka_topic='r', value_format='JSON', partitions=1);
CREATE STREAM o AS SELECT l.k AS k, v, w FROM l JOIN r ON l.k = r.k;
"""
LISTENS = "0A"  # the state of a TCP socket, in /proc/net/tcp
UNCONNECTED = "07"  # of a UDP socket that takes from anybody
ACCEPTS = 1 << 16  # a flag of a Unix socket


def sockets_of(pids: list[int]) -> set[str]:
    """The numbers of the sockets that processes have open."""
    found = set()
    for pid in pids:
        try:
            for fd in Path(f"/proc/{pid}/fd").iterdir():
                target = os.readlink(fd)
                if target.startswith("socket:["):
                    found.add(target[8:-1])
        except OSError:
            continue
    return found


def address(text: str) -> str:
    """Of /proc/net: 32-bit words, each in the order of this machine."""
    words = [int(text[i : i + 8], 16).to_bytes(4, sys.byteorder) for i in range(0, len(text), 8)]
    found = ip_address(b"".join(words))
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped or found)


def listening(pid: int) -> tuple[set[str], set[str]]:
    """(addresses with ports, paths of Unix sockets) at which a process or one below it can be reached."""
    own = sockets_of([pid, *processes.descendants(pid)])
    found, paths = set(), set()
    for kind in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in own and fields[3] == (LISTENS if kind.startswith("tcp") else UNCONNECTED):
                host, port = fields[1].split(":")
                found.add(f"{address(host)} {kind} {int(port, 16)}")
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[6] in own and int(fields[3], 16) & ACCEPTS:
            paths.add(fields[7] if len(fields) > 7 else "")
    return found, paths


def alone(path: str) -> bool:
    """Nobody but this user gets to a socket: some folder above it is closed to all others."""
    return any(p.stat().st_uid == os.getuid() and not p.stat().st_mode & 0o077 for p in Path(path).parents)


@pytest.fixture
def ended() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        processes.end(process)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def check_sockets(process: subprocess.Popen[str], ready: Path, some: int) -> None:
    """What listens from the start of a run until it has written, and a little longer."""
    found: set[str] = set()
    seen: set[str] = set()
    paths: set[str] = set()
    deadline = time.monotonic() + 300
    left = 5
    while left:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no output"
        some_found, some_paths = listening(process.pid)
        found |= some_found
        seen |= some_paths
        paths |= {p for p in some_paths if os.path.exists(p) and not alone(p)}
        left -= bool(list(ready.glob("*.jsonl")))
        time.sleep(0.1)
    assert len(found) >= some, "the JVM listens somewhere"
    assert not {x for x in found if not ip_address(x.split()[0]).is_loopback}
    assert seen and not paths


@pytest.mark.spark
@pytest.mark.operations
def test_a_run_listens_on_this_machine_only(tmp_path: Path, ended: list[subprocess.Popen[str]]) -> None:
    """Driver, block manager, Py4J, Python workers, metrics; Spark's web page too, where somebody asks for it."""
    braid("put", "r", "--store", tmp_path, stdin='{"key": 1, "value": {"W": "x"}, "timestamp": 1}\n')
    braid("put", "l", "--store", tmp_path, stdin='{"key": 1, "value": {"V": "y"}, "timestamp": 2}\n')
    more = ("--metrics-port", "0", "--conf", "spark.ui.enabled=true")
    process = launch("run", "-e", SQL, "--store", tmp_path, *QUICK, *more, cwd=tmp_path)
    ended.append(process)
    check_sockets(process, tmp_path / "topics" / "O" / "0", 4)
    os.kill(process.pid, signal.SIGINT)


CONNECT = """
import sys, time
import braid
session = braid.connect(store=sys.argv[1], master="local[2]")
session.execute('''%s''')
time.sleep(600)
"""


@pytest.mark.spark
@pytest.mark.operations
def test_a_session_of_python_listens_on_this_machine_only(tmp_path: Path, ended: list[subprocess.Popen[str]]) -> None:
    braid("put", "r", "--store", tmp_path, stdin='{"key": 1, "value": {"W": "x"}, "timestamp": 1}\n')
    braid("put", "l", "--store", tmp_path, stdin='{"key": 1, "value": {"V": "y"}, "timestamp": 2}\n')
    words = [sys.executable, "-c", CONNECT % SQL, str(tmp_path)]
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    ended.append(process)
    check_sockets(process, tmp_path / "topics" / "O" / "0", 3)


def test_the_metrics_endpoint_is_of_this_machine() -> None:
    from braid.face.metrics import Metrics

    with Metrics(None, "0") as metrics:
        found, _ = listening(os.getpid())
        assert metrics.address is not None
        port = metrics.address.rsplit(":", 1)[1].split("/")[0]
        assert [x for x in found if x.endswith(f" {port}")] == [f"127.0.0.1 tcp {port}"]


def test_the_channels_of_a_cluster_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# a note\nspark.authenticate  true\nspark.io.encryption.enabled=TRUE\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    bare = dict.fromkeys(("spark.authenticate", "spark.io.encryption.enabled"), "false")
    assert [safe for _, safe in conf.examined_channels("local[4]", bare)] == [True]
    assert [safe for _, safe in conf.examined_channels("spark://x:7077", bare)] == [False, False, False, True]
    assert [safe for _, safe in conf.examined_channels("spark://x:7077", {})] == [True, False, True, True]
    whole = {"spark.network.crypto.enabled": "true"}
    assert all(safe for _, safe in conf.examined_channels("yarn", whole))
    said = braid("doctor", "--master", "spark://x:7077")
    assert said.code == 1
    assert "miss  spark://x:7077: records can be read and changed on the network: --conf spark.network" in said.out
    assert braid("doctor").code == 0


# --------------------------------------------------------- folders and their names


def other_user(path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(path, 12345, 12345)


@pytest.mark.parametrize(
    "how", ["open", "writable", "link", "link to nothing", "file", "of somebody else", "inner link"]
)
def test_a_folder_that_is_not_ours_alone_is_refused(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    root, other = tmp_path / f"braid-{os.getuid()}", tmp_path / "other"
    other.mkdir(0o700)
    match how:
        case "open":
            root.mkdir()
            root.chmod(0o755)
        case "writable":
            root.mkdir()
            root.chmod(0o722)
        case "link":
            root.symlink_to(other)
        case "link to nothing":
            root.symlink_to(tmp_path / "nothing")
        case "file":
            root.touch(0o600)
        case "of somebody else":
            root.mkdir(0o700)
            other_user(root)
        case "inner link":
            root.mkdir(0o700)
            (root / "wire").symlink_to(other)
    with pytest.raises(BraidError, match="it cannot hold braid's temporary files") as e:
        private.own_folder("wire/q")
    assert str(root) in e.value.message and "\n" not in e.value.message
    assert not list(other.iterdir()) and not (tmp_path / "nothing").exists()


def test_an_own_folder_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = os.umask(0)
    try:
        for _ in range(2):
            folder = Path(private.own_folder("wire/q"))
            assert folder.stat().st_mode & 0o777 == folder.parent.parent.stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)


@pytest.mark.parametrize("deep", [0, 150])
def test_a_folder_of_sockets_is_closed_and_not_too_deep(
    deep: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / ("x" * deep)
    base.mkdir(exist_ok=True)
    monkeypatch.setattr("tempfile.tempdir", str(base))
    with private.socket_folder() as folder, socket.socket(socket.AF_UNIX) as s:
        assert os.stat(folder).st_mode & 0o777 == 0o700
        s.bind(os.path.join(folder, ".01234567-0123-0123-0123-0123456789ab.sock"))
    assert not os.path.exists(folder)


def test_a_blob_names_no_file_but_its_own(tmp_path: Path) -> None:
    folder, secret = tmp_path / "wire", tmp_path / ("a" * 32)
    folder.mkdir()
    frame = pl.DataFrame({"x": range(100_000)})
    blob = columns.dumps(frame, 0, str(folder))
    name = os.listdir(folder)[0]
    assert blob.endswith(name.encode()) and columns.loads(blob, str(folder)).equals(frame)
    secret.write_bytes((folder / name).read_bytes())
    head = blob[: -len(name)]
    (folder / "b").mkdir()
    for other in (
        str(secret),
        f"../{'a' * 32}",
        "..",
        "",
        ".",
        "b",
        "b/../" + name,
        name + "\0",
        name.upper() + "/",
        "é",
    ):
        with pytest.raises(BraidError, match="names a file that is none of its query"):
            columns.loads(head + other.encode(), str(folder))
    with pytest.raises(BraidError, match="names a file that is none of its query"):
        columns.loads(blob, None)


def test_a_store_is_its_users_alone(folder: Path) -> None:
    """Whoever may read a lock may hold it, and a run with it: new stores are closed, locks of old ones become so."""
    sql = "CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);"
    locks = {".run.lock", ".topics.lock", "catalogue/.ksqldb.lock"}
    for _ in range(2):
        assert braid("run", "-e", sql, "--store", "s").code == 0
        assert braid("put", "s", "--store", "s", stdin='{"key": 1, "value": {"V": 1}, "timestamp": 1}\n').code == 0
        assert os.stat("s").st_mode & 0o777 == 0o700
        found = {str(p.relative_to("s")): p.stat().st_mode & 0o777 for p in Path("s").rglob("*lock")}
        assert locks <= found.keys() and set(found.values()) == {0o600}, found
        for name in locks:
            os.chmod(f"s/{name}", 0o644)
    os.chmod("s", 0o750)  # its user shares it, and may
    assert braid("run", "-e", sql, "--store", "s").code == 0
    assert os.stat("s").st_mode & 0o777 == 0o750
