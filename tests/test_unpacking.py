"""Libraries that workers are sent lie once on a machine, whoever uses them; old ones go when nobody does.

In: archives, processes that use what is in them, some of which are killed. Out: folders that are whole, as many as are
needed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from braid.spark import unpacking

USES = """
import os, sys
from braid.spark import unpacking
unpacking.added()
import the_library
if len(sys.argv) > 1 and os.fork() == 0:  # as a daemon's workers
    os.close(1)
    sys.stdin.read()
    os._exit(0)
print(the_library.NAME, the_library.__file__, flush=True)
sys.stdin.read()
"""


def archive(folder: Path, name: str, files: int = 30) -> Path:
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}.zip", "w") as z:
        z.writestr("the_library.py", f"NAME = '{name}'\n")
        for n in range(files):
            z.writestr(f"data/{n}", os.urandom(1000))
    return folder / f"{name}.zip"


class Process:
    """One that an executor has started, in a folder of its own."""

    def __init__(self, at: Path, cache: Path, name: str, forks: bool = False) -> None:
        self.at = at
        env = {**os.environ, "BRAID_CACHE": str(cache), unpacking.NAMED: archive(at, name).name}
        command = [sys.executable, "-c", USES, *(["forks"] if forks else [])]
        self.process = subprocess.Popen(
            command, cwd=at, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def said(self) -> tuple[str, Path]:
        assert self.process.stdout is not None
        name, _, file = self.process.stdout.readline().strip().partition(" ")
        return name, Path(file).parent

    def end(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(30)


@pytest.fixture
def going() -> Iterator[list[Process]]:
    made: list[Process] = []
    yield made
    for one in made:
        one.end()


def kept(cache: Path) -> list[str]:
    return sorted(n for n in os.listdir(cache / "libraries") if not n.startswith("."))


def begun(going: list[Process], at: Path, cache: Path, name: str, forks: bool = False) -> Process:
    made = Process(at, cache, name, forks)
    going.append(made)
    return made


def unpacked(place: Path) -> list[Path]:
    """What has been unpacked, without what Python compiles of it."""
    return sorted(p for p in place.rglob("*") if "__pycache__" not in p.parts)


def test_many_at_once_have_one_copy(tmp_path: Path, going: list[Process]) -> None:
    cache = tmp_path / "cache"
    for n in range(6):
        begun(going, tmp_path / f"executor{n}", cache, "libraries-a")
    said = [one.said() for one in going]
    assert said == [("libraries-a", cache / "libraries" / "libraries-a")] * 6
    assert kept(cache) == ["libraries-a"]
    for one in going:  # nothing of it stays with the executors
        assert os.listdir(one.at) == []


def test_old_ones_go_but_not_while_they_are_used(tmp_path: Path, going: list[Process]) -> None:
    cache, names = tmp_path / "cache", [f"libraries-{c}" for c in "abcd"]
    first = begun(going, tmp_path / "e0", cache, names[0], forks=True)
    first.said()
    for n, name in enumerate(names[1:], 1):
        one = begun(going, tmp_path / f"e{n}", cache, name)
        assert one.said()[0] == name
        one.end()
        going.remove(one)
    assert kept(cache) == [names[0], *names[2:]]  # a is used; b was used longest ago
    before = unpacked(cache / "libraries" / names[0])
    assert len(before) == 32
    first.process.kill()  # what it has forked lives on
    first.process.wait()
    used(tmp_path, cache, "libraries-e", going)
    assert names[0] in kept(cache) and unpacked(cache / "libraries" / names[0]) == before
    first.end()
    going.remove(first)
    until(lambda: used(tmp_path, cache, "libraries-f", going) or names[0] not in kept(cache))
    assert kept(cache) == ["libraries-e", "libraries-f"]


def used(folder: Path, cache: Path, name: str, going: list[Process]) -> None:
    one = Process(folder / f"{name}-{time.monotonic_ns()}", cache, name)
    assert one.said()[0] == name
    one.end()


def until(what: object, seconds: float = 30) -> None:
    assert callable(what)
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_a_killed_process_has_left_goes(tmp_path: Path, going: list[Process]) -> None:
    cache = tmp_path / "cache"
    (cache / "libraries" / "~half" / "data").mkdir(parents=True)
    os.chmod(cache / "libraries", 0o700)
    used(tmp_path, cache, "libraries-a", going)
    assert kept(cache) == ["libraries-a"]


def test_one_that_goes_and_comes_at_once(tmp_path: Path) -> None:
    """Processes that use different ones, and take away each other's: each finds its own whole."""
    cache, running = tmp_path / "cache", list[Process]()
    for n in range(24):
        running.append(Process(tmp_path / f"e{n}", cache, f"libraries-{n % 4}"))
        if len(running) == 6:
            ends(running[:3], cache)
            del running[:3]
    ends(running, cache)


def ends(some: Sequence[Process], cache: Path) -> None:
    for one in some:
        name, place = one.said()
        assert place == cache / "libraries" / name and len(unpacked(place)) == 32
        one.end()


@pytest.mark.parametrize("why", ["a file", "open to others"])
def test_where_nothing_can_be_kept_it_lies_beside_the_executor(why: str, tmp_path: Path, going: list[Process]) -> None:
    cache = tmp_path / "cache"
    if why == "a file":
        cache.write_text("")
    else:
        (cache / "libraries").mkdir(parents=True)
        os.chmod(cache / "libraries", 0o777)
    one = begun(going, tmp_path / "e", cache, "libraries-a")
    assert one.said() == ("libraries-a", tmp_path / "e" / unpacking.BESIDE)


def test_without_a_word_of_the_driver_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(unpacking.NAMED, raising=False)
    before = list(sys.path)
    unpacking.added()
    assert sys.path == before
