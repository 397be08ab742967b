"""A server that is busy, away, silent, or loses its answers; keys and signatures in what it says."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("obstore")

from braid.errors import Away, BraidError
from braid.store import ObjectStore, objects, opened
from objects import faulty
from objects.faulty import Faulty

PATIENCE, ANSWER = 1.2, 0.5
URL = "s3://memory/p"


@pytest.fixture
def room(memory: Faulty, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    impatient(monkeypatch)
    return opened(URL)


def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "PATIENCE", PATIENCE)
    monkeypatch.setattr(objects, "ANSWER", ANSWER)


PASSING: list[int | str] = [503, 500, 429, "cut", "hang"]


@pytest.mark.parametrize("fault", PASSING)
def test_a_fault_that_passes_is_not_noticed(
    memory: Faulty, room: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: int | str
) -> None:
    monkeypatch.setattr(objects, "PATIENCE", 60.0)  # on a busy machine, too
    (tmp_path / "f").write_bytes(b"12345")
    memory.faults.append(fault)
    room.put("a", str(tmp_path / "f"))
    for ask, answer in (
        (lambda: room.get("a", 5), b"12345"),
        (lambda: room.range("a", 1, 3), b"234"),
        (lambda: room.size("a"), 5),
        (lambda: [*room.list("")], [("a", 5)]),
        (lambda: room.create("b", b"1"), True),
        (lambda: room.create("b", b"1"), False),
        (lambda: room.delete("a"), None),
        (lambda: room.size("a"), None),
    ):
        memory.faults.append(fault)
        assert ask() == answer
        assert not memory.faults


def test_half_a_list(memory: Faulty, room: ObjectStore) -> None:
    for n in range(150):
        memory.held[f"p/{n}"] = b"", {}
    memory.faults.extend([None, "half", "half", None, 503])
    assert len({name for name, _ in room.list("")}) == len([*room.list("")]) == 150


def test_half_a_body(memory: Faulty, room: ObjectStore) -> None:
    room.create("a", b"12345678" * 1000)
    memory.faults.append("half")
    assert room.get("a", 8000) == b"12345678" * 1000
    memory.faults.append("half")
    assert room.range("a", 8, 4000) == b"12345678" * 500


@pytest.mark.parametrize("fault", ["done, cut", "done, 500", "done, hang"])
def test_a_create_whose_answer_is_lost(memory: Faulty, room: ObjectStore, fault: str) -> None:
    """It is known whose the object is, also where another writes the same bytes."""
    memory.faults.append(fault)
    assert room.create("c/1", b"same")
    memory.faults.append(fault)
    assert not opened(URL).create("c/1", b"same")
    assert room.get("c/1", 9) == b"same"


def test_a_conflict_with_a_create_that_fails(memory: Faulty, room: ObjectStore) -> None:
    """Two were under way, the server refused this one, and the other came to nothing."""
    memory.faults.append(409)
    assert room.create("c/1", b"mine")
    memory.faults.extend([409, None] * 100)
    with pytest.raises(Away, match="others create c/2"):
        room.create("c/2", b"mine")


def test_a_large_put_whose_last_answer_is_lost(memory: Faulty, tmp_path: Path) -> None:
    room = opened(URL)
    data = os.urandom(12 << 20)
    (tmp_path / "f").write_bytes(data)
    memory.faults.extend([None, None, None, "done, 500"])  # begin, two parts, end
    room.put("large", str(tmp_path / "f"))
    assert not memory.faults and memory.held["p/large"][0] == data


CALLS = ("put", "create", "get", "range", "size", "list", "delete")


@pytest.mark.parametrize(("fault", "said"), [(503, "failing (503"), (429, "429"), ("hang", "no answer, for ")])
@pytest.mark.parametrize("call", CALLS)
def test_a_fault_that_stays_is_a_line(
    memory: Faulty, room: ObjectStore, tmp_path: Path, call: str, fault: int | str, said: str
) -> None:
    memory.always = fault
    began = time.monotonic()
    with pytest.raises(Away) as e:
        do(room, call, tmp_path)
    assert said in e.value.message and URL in e.value.message and "\n" not in e.value.message
    assert time.monotonic() - began < 1.25 * PATIENCE + ANSWER + 2
    memory.always = None


def do(room: ObjectStore, call: str, folder: Path) -> None:
    (folder / "f").write_bytes(b"1")
    match call:
        case "put":
            room.put("x", str(folder / "f"))
        case "create":
            room.create("x", b"1")
        case "get":
            room.get("x", 1)
        case "range":
            room.range("x", 0, 1)
        case "size":
            room.size("x")
        case "list":
            list(room.list(""))
        case _:
            room.delete("x")


@pytest.mark.parametrize("call", CALLS)
def test_what_the_server_says_is_not_shown(memory: Faulty, room: ObjectStore, tmp_path: Path, call: str) -> None:
    """Servers repeat keys, and what they have signed, in their refusals."""
    memory.always, memory.echo = 403, f"{faulty.KEY} {faulty.SECRET}"
    with pytest.raises(BraidError) as e:
        do(room, call, tmp_path)
    assert f"{URL}: access is refused (403" in str(e.value)
    shown = "".join(traceback.format_exception(e.value)) + f"{e.value} {e.value!r} {room!r} {room.clients}"
    assert faulty.KEY not in shown and faulty.SECRET not in shown


@pytest.mark.parametrize("fault", [503, "cut", "hang"])
def test_a_command_that_begins_waits_less_and_says_so(
    memory: Faulty, room: ObjectStore, monkeypatch: pytest.MonkeyPatch, fault: int | str
) -> None:
    """Until the server has answered once: from then on it has all the time."""
    told: list[str] = []
    monkeypatch.setattr(objects, "PATIENCE", 60.0)
    monkeypatch.setattr(objects, "START", 0.6)
    monkeypatch.setattr(objects, "TELL", 0.2)
    objects.at_start(told.append)
    try:
        memory.always, began = fault, time.monotonic()
        with pytest.raises(Away, match=r"for [12] s"):
            room.size("x")
        assert 0.5 < time.monotonic() - began < 4
        assert len(told) == 1 and told[0].startswith(f"waiting for {URL}: "), told
        memory.always = None
        assert room.size("x") is None
        assert len(told) == 2 and told[1].startswith("s3://memory answers again, after "), told
        memory.faults.extend([503] * 6)  # which takes longer than a start has
        assert room.size("x") is None and len(told) == 4
        assert objects.tried_again() >= 6
    finally:
        objects.at_start(None)


def test_whoever_is_no_command_tells_nobody(memory: Faulty, room: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task waits as long as it may from its first call on."""
    monkeypatch.setattr(objects, "START", 0.1)
    memory.faults.extend([503] * 3)
    assert room.size("x") is None


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch, memory: Faulty) -> None:
    impatient(monkeypatch)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(Away, match="cannot be reached"):
        opened(URL).create("x", b"1")


def test_no_bucket(memory: Faulty, room: ObjectStore, tmp_path: Path) -> None:
    memory.missing = "NoSuchBucket"
    for call in ("put", "create", "get", "range", "list"):
        memory.always = 404
        with pytest.raises(BraidError, match="there is no bucket memory"):
            do(room, call, tmp_path)


def test_no_credentials(memory: Faulty, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On no machine of a cloud."""
    impatient(monkeypatch)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://169.254.169.254:1")
    with pytest.raises(BraidError) as e:
        opened(URL).size("x")
    assert "no credentials were found" in e.value.message and "AWS_PROFILE" in str(e.value)
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(BraidError, match="no credentials"):
        opened("az://container/x").size("x")
    (tmp_path / "bad.json").write_text('{"private_key": "SECRET')
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "bad.json"))
    with pytest.raises(BraidError) as e:
        opened("gs://bucket/x").size("x")
    assert "SECRET" not in str(e.value)


@pytest.fixture
def profiles(memory: Faulty, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The user's folder, and an environment that says nothing."""
    for name in [x for x in os.environ if x.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(
        "[default]\naws_access_key_id = dkey\naws_secret_access_key = d%secret\n[other]\naws_access_key_id = okey\n"
        "aws_secret_access_key = osecret\n"
    )
    (tmp_path / ".aws/config").write_text(
        f"[default]\nendpoint_url = {memory.endpoint}\nregion = eu-north-1\n"
        f"[profile other]\nendpoint_url = {memory.endpoint}\n[profile sso]\nsso_session = x\n"
    )
    yield tmp_path


def test_profiles(memory: Faulty, profiles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert opened(URL).create("1", b"")
    assert "Credential=dkey/" in memory.signed[-1] and "/eu-north-1/" in memory.signed[-1]
    monkeypatch.setenv("AWS_PROFILE", "other")
    assert opened(URL).create("2", b"") and "Credential=okey/" in memory.signed[-1]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ekey")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "esecret")
    assert opened(URL).create("3", b"") and "Credential=ekey/" in memory.signed[-1]


@pytest.mark.parametrize(
    ("profile", "said"),
    [("none", "there is no AWS profile none"), ("sso", "aws configure export-credentials --profile sso")],
)
def test_profiles_without_keys(profiles: Path, monkeypatch: pytest.MonkeyPatch, profile: str, said: str) -> None:
    monkeypatch.setenv("AWS_PROFILE", profile)
    with pytest.raises(BraidError) as e:
        opened(URL).size("1")
    assert said in str(e.value)


def test_a_damaged_profile_is_not_shown(profiles: Path) -> None:
    (profiles / ".aws/credentials").write_text("aws_secret_access_key = osecret\n")
    with pytest.raises(BraidError, match="credentials cannot be read") as e:
        opened(URL).size("1")
    assert "osecret" not in f"{e.value!r} {e.value}"


def test_without_the_library(memory: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "obstore.exceptions", None)
    with pytest.raises(BraidError) as e:
        opened(URL).size("1")
    assert "pip install 'braid-sql[objects]'" in str(e.value)


def test_a_process_that_was_forked_is_told(memory: Faulty, room: ObjectStore) -> None:
    """It would wait for ever."""
    room.create("x", b"1")
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            room.size("x")
        except RuntimeError:
            os._exit(7)
        finally:
            os._exit(8)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
