"""A password of `--kafka-config` is nowhere but in that file.

In: runs against a broker that asks for it, right and wrong. Out: every file that they leave, what they say, the command
lines and environments of their processes while they run.
Rule: the password is looked for as it is, and in base64, as plans travel in it.
"""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_help import launch, spawned
from crash import processes
from kafka import clients
from kafka.broker import Broker
from kafka.clients import Record
from kafka.conftest import had
from kafka.secured import allow, login, secured_broker

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

PASSWORD = f"Se.cret-{secrets.token_hex(12)}"
SQL = """
CREATE STREAM s (k VARCHAR KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE STREAM o WITH (kafka_topic='o') AS SELECT k, v + 1 AS w FROM s;
"""


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    with had(secured_broker({"ann": PASSWORD})) as server:
        for operation in ("READ", "WRITE", "CREATE", "DESCRIBE_CONFIGS"):
            for topic in "sod":
                allow(server.address, "ann", operation, "TOPIC", topic)
        allow(server.address, "ann", "WRITE", "TRANSACTIONAL_ID", "braid.", prefixed=True)
        allow(server.address, "ann", "READ", "GROUP", "braid.", prefixed=True)
        yield server


def forms(secret: str) -> list[bytes]:
    """How a text may lie in a file: as it is, or in base64, wherever it begins in there."""
    raw = secret.encode()
    shifted = (base64.b64encode(b"\0" * n + raw)[4 if n else 0 : -4] for n in range(3))
    return [raw, *shifted]


def found(where: dict[str, bytes], secret: str) -> list[str]:
    return [name for name, data in where.items() if any(form in data for form in forms(secret))]


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != "k.conf"}


def test_what_is_looked_for_would_be_found(tmp_path: Path) -> None:
    for n in range(3):
        (tmp_path / f"b{n}").write_bytes(base64.b64encode(b"x" * n + PASSWORD.encode() + b"more"))
    (tmp_path / "plain").write_text(f"sasl.password={PASSWORD}")
    assert len(found(everything(tmp_path), PASSWORD)) == 4


def test_a_password_is_nowhere(secured: Broker, tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text(SQL)
    (tmp_path / "k.conf").write_text("".join(f"{n}={x}\n" for n, x in login("ann", PASSWORD).items()))
    for name in ("tmp", "events"):
        (tmp_path / name).mkdir()
    clients.make_topic(secured.address, "s")
    rows = [Record(b"k%d" % i, json.dumps({"V": i}).encode(), i + 1) for i in range(50)]
    clients.produce(secured.address, "s", [*rows, Record(b"k", b"no json", 100)])
    at = ("--kafka", secured.address, "--kafka-config", "k.conf", "--store", "d")
    spark = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{tmp_path}/events",
    }
    conf = [word for n, x in spark.items() for word in ("--conf", f"{n}={x}")]
    words = ("run", "q.sql", *at, "--dead-letters", "d", "--until-idle", "--master", "local[1]", *conf)
    env = {"TMPDIR": str(tmp_path / "tmp")}
    run = launch(*words, cwd=tmp_path, env=env)
    seen: dict[str, bytes] = {}
    while run.poll() is None:
        for pid in (run.pid, *processes.descendants(run.pid)):
            seen |= {f"{kind} of {pid}": data for kind in ("cmdline", "environ") if (data := of_process(pid, kind))}
        time.sleep(0.3)
    out, err = run.communicate()
    assert run.returncode == 0, err
    assert len(clients.consume(secured.address, "o")) == 50
    assert len(clients.consume(secured.address, "d")) == 1
    assert any("java" in data.decode(errors="replace") for data in seen.values())
    assert any((tmp_path / "events").rglob("*"))
    left = {"stdout": out.encode(), "stderr": err.encode()} | seen | everything(tmp_path)
    assert any("k.conf" in data.decode(errors="replace") for data in left.values())  # the path is where it should be
    assert found(left, PASSWORD) == []


def of_process(pid: int, kind: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{kind}").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("sasl.password={}x", "refuses the connection"),
        ("sasl.mechanism={}", "refuses its settings"),
        ("sasl.password {}", "is no setting"),
        ("ssl.key.password={}\nnonsense={}", "refuses its settings"),
    ],
)
def test_an_error_shows_no_password(secured: Broker, tmp_path: Path, line: str, told: str) -> None:
    (tmp_path / "q.sql").write_text(SQL)
    good = "".join(f"{n}={x}\n" for n, x in login("ann", PASSWORD).items() if n not in line)
    (tmp_path / "k.conf").write_text(good + line.replace("{}", PASSWORD) + "\n")
    said = spawned("run", "q.sql", "--kafka", secured.address, "--kafka-config", "k.conf", "--store", "d", cwd=tmp_path)
    assert said.code == 1
    assert told in said.err, said.err
    left = {"stdout": said.out.encode(), "stderr": said.err.encode()} | everything(tmp_path)
    assert found(left, PASSWORD) == []
