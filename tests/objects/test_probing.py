"""Whether a store can be used from a machine: what is asked before a run on a cluster, and by `braid doctor`."""

from __future__ import annotations

import pytest

pytest.importorskip("obstore")

from braid.errors import BraidError
from braid.store import objects
from braid.store.probing import check, probe, unusable
from cli_help import braid
from objects import faulty
from objects.faulty import Faulty

URL = "s3://memory/p"


def test_a_place_that_can_be_used_holds_nothing_afterwards(memory: Faulty) -> None:
    check(URL)
    with probe(URL) as made:
        assert unusable(URL, *made) == "" and len(memory.held) == 1
    assert not memory.held


@pytest.mark.parametrize(
    ("faults", "why"),
    [
        ([403], "access is refused (403 AccessDenied)"),  # it may not read
        ([None, 403], "access is refused (403 AccessDenied)"),  # a key that may only read
        ([None, None, 403], "access is refused (403 AccessDenied)"),  # one that may not delete
    ],
)
def test_what_a_worker_may_not_do_is_said(memory: Faulty, faults: list[int | None], why: str) -> None:
    with probe(URL) as made:
        memory.faults.extend(faults)
        memory.echo = faulty.SECRET
        assert unusable(URL, *made) == why


def test_another_server_under_the_same_name_is_noticed(memory: Faulty) -> None:
    with probe(URL) as (name, token):
        assert unusable(URL, name, b"another") == "what others have written there is not what is found"
        memory.held.clear()
        assert "is not found: is it the same server?" in unusable(URL, name, token)


def test_a_worker_waits_as_a_command_that_begins(memory: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a task after it as long as before."""
    monkeypatch.setattr(objects, "START", 0.3)
    with probe(URL) as made:
        memory.always = 503
        assert "the server is overloaded or failing (503 SlowDown), for " in unusable(URL, *made)
        memory.always = None
    memory.faults.extend([503] * 4)
    check(URL)


@pytest.mark.parametrize(
    ("always", "said"),
    [
        (404, "miss  there is no bucket memory; make it: braid makes no buckets"),
        (403, "miss  s3://memory/p: access is refused (403 AccessDenied); set AWS_ACCESS_KEY_ID"),
        (503, "miss  s3://memory/p: the server is overloaded or failing (503 SlowDown), for "),
        (None, "ok    s3://memory/p can be read and written from here"),
    ],
)
def test_doctor_tries_the_store(memory: Faulty, monkeypatch: pytest.MonkeyPatch, always: int | None, said: str) -> None:
    monkeypatch.setattr(objects, "START", 0.3)
    memory.always, memory.missing = always, "NoSuchBucket"
    told = braid("doctor", "--store", URL)
    assert any(line.startswith(said) for line in told.out.splitlines()), told.out
    assert told.code == (0 if always is None else 1) and not memory.held


def test_nothing_is_kept_where_the_probe_itself_is_refused(memory: Faulty) -> None:
    memory.faults.append(403)
    with pytest.raises(BraidError, match="access is refused"):
        check(URL)
    assert not memory.held
