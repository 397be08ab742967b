"""Copies of files that were parsed: spoilt, they are made again from the source, or refused by name."""

from __future__ import annotations

import os
import random
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from braid.errors import BraidError
from braid.files import copies as file_copies
from braid.files.input import FileInput, open_files
from braid.files.log import FileLog, Piece
from effort import examples
from test_inputs import TIMED, values

ROWS = 20_000
TEXT = "K,V,TS\n" + "".join(f"{i},{'x' * (i % 7)},{i}\n" for i in range(ROWS))


@pytest.fixture(autouse=True)
def soon() -> Iterator[None]:
    started = time.process_time()
    yield
    assert time.process_time() - started < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 << 20  # KiB


def read(made: FileInput) -> tuple[list[object], int]:
    rows = values(made.read(0, 9_000, 9_010), "K", "V", "TS", "_t")
    again = FileInput(made.source, made.log, made.options, made.cache)  # as another process sees it
    return rows, again.cut(0, 0, 12_345)


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def without_an_end(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 3)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def longer(path: Path) -> None:
    with open(path, "ab") as f:
        f.write(b"\0" * 8)


def sparse(path: Path) -> None:
    os.truncate(path, 20 << 30)


def sparse_with_an_end(path: Path) -> None:
    with open(path, "r+b") as f:
        f.seek(20 << 30)
        f.write((1 << 31).to_bytes(4, "little") + b"PAR1")


def of_other_rows(path: Path) -> None:
    other = path.with_name("other")
    other.mkdir()
    (other / "f.csv").write_text("K,V,TS\n1,a,5\n")
    open_files(TIMED, str(other / "f.csv"), other / "cache")
    (made,) = (other / "cache").glob(f"*{path.suffix}")
    made.replace(path)


SPOILT = (truncated, without_an_end, empty, longer, sparse, sparse_with_an_end, of_other_rows)


@pytest.mark.heavy
@pytest.mark.parametrize("ending", [".rows", ".times"])
@pytest.mark.parametrize("spoil", SPOILT, ids=lambda f: f.__name__)
def test_a_spoilt_copy_is_made_again(spoil: Callable[[Path], None], ending: str, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text(TEXT)
    made = open_files(TIMED, str(tmp_path / "f.csv"), tmp_path / "cache")
    want = read(made)
    (copy,) = (tmp_path / "cache").glob(f"*{ending}")
    spoil(copy)
    assert read(made) == want
    assert file_copies.is_whole(str(copy), ROWS) and copy.stat().st_size < 1 << 20
    (tmp_path / "f.csv").unlink()
    assert read(made) == want  # from the copies alone
    spoil(copy) if spoil is not of_other_rows else empty(copy)
    with pytest.raises(BraidError, match=r"f\.csv is gone"):
        read(made)


@pytest.mark.parametrize("ending", [".rows", ".times"])
def test_a_byte_that_is_wrong_anywhere_is_seen(ending: str, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text(TEXT)
    made = open_files(TIMED, str(tmp_path / "f.csv"), tmp_path / "cache")
    want = read(made)
    (copy,) = (tmp_path / "cache").glob(f"*{ending}")
    whole = copy.read_bytes()
    for i in range(examples(60)):
        r = random.Random(f"byte {i}")
        data = bytearray(whole)
        data[r.randrange(len(data)) if i % 2 else -1 - r.randrange(1000)] ^= 1 << r.randrange(8)
        copy.write_bytes(bytes(data))
        assert not file_copies.is_whole(str(copy), ROWS)
        assert read(made) == want, i


@pytest.mark.parametrize("ending", [".rows", ".times"])
@pytest.mark.parametrize("what", ["pipe", "link", "loop", "folder"])
def test_what_is_no_plain_file_is_refused(what: str, ending: str, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text(TEXT)
    made = open_files(TIMED, str(tmp_path / "f.csv"), tmp_path / "cache")
    (copy,) = (tmp_path / "cache").glob(f"*{ending}")
    copy.unlink()
    match what:
        case "pipe":
            os.mkfifo(copy)
        case "link":
            copy.symlink_to("/dev/zero")
        case "loop":
            copy.symlink_to(copy.name)
        case "folder":
            copy.mkdir()
    with pytest.raises(BraidError, match=f"{copy.name} is (not a plain file|a symbolic link)"):
        read(made)


def test_a_parquet_file_s_times_are_made_again(tmp_path: Path) -> None:
    import polars as pl

    frame = pl.DataFrame({"K": range(ROWS), "V": ["x"] * ROWS, "TS": range(ROWS)}, schema_overrides={"K": pl.Int32})
    frame.write_parquet(tmp_path / "f.parquet")
    made = open_files(TIMED, str(tmp_path / "f.parquet"), tmp_path / "cache")
    want = read(made)
    (copy,) = (tmp_path / "cache").glob("*.times")
    truncated(copy)
    assert read(made) == want


def test_a_log_of_pieces_must_fit_together(tmp_path: Path) -> None:
    """Each begins where the one before it ends; a log of nothing but line ends is refused at its first."""
    path = str(tmp_path / "files/x.jsonl")
    log = FileLog(path, "/r").begun("/r")
    log.append([Piece("a.csv", 0, 5, "d", 5, 0, 3), Piece("b.csv", 0, 5, "d", 5, 0, 2)])
    lines = Path(path).read_bytes().splitlines(keepends=True)
    Path(path).write_bytes(b"".join([lines[0], lines[2]]))
    with pytest.raises(BraidError, match="a piece does not begin where the one before it ends"):
        FileLog.open(path, "/r")
    Path(path).write_bytes(b"\n" * (64 << 20))
    with pytest.raises(BraidError, match="is damaged"):
        FileLog.open(path, "/r")
