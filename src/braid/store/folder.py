"""An object store in a folder.

In: a folder, made when something is put there. Out: its files.
Rule: what is written has a name of its own, with a `~`, until it is whole. Then it gets its name by a link, which fails
where there is one (create), or by a rename. What a killed writer leaves is never listed, and may be deleted while
nobody writes. Only plain files are opened.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from braid.errors import BraidError
from braid.store.files import (
    UNFINISHED,
    force,
    locked,
    naming,
    refuse_link,
    scratch_name,
    write_atomic,
)
from braid.store.interface import LARGEST, Change, ObjectStore, named, too_large

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@dataclass(frozen=True, slots=True)
class FolderStore(ObjectStore):
    """`durable`: all that is written is forced to the disk before it has its name, and the name, too. `said`: how its
    user has named it."""

    path: str
    durable: bool = False
    said: str = field(default="", compare=False)

    @property
    def url(self) -> str:
        return self.path

    @property
    def given(self) -> str:
        return os.path.abspath(self.said) if self.said else self.path

    @property
    def parent(self) -> FolderStore:
        return replace(self, path=os.path.dirname(self.path), said="")

    def at(self, name: str) -> FolderStore:
        return replace(self, path=self._path(name), said="")

    def beside(self, end: str) -> FolderStore:
        return replace(self, path=self.path + end, said="")

    def forced(self) -> FolderStore:
        return replace(self, durable=True)

    def __str__(self) -> str:
        return self.said or self.path

    def create(self, name: str, data: bytes, fsync: bool = False) -> bool:
        path, fsync = self._path(name), fsync or self.durable
        with self._written(path, fsync) as (scratch, file):
            file.write(data)
            _finish(file, fsync)
            try:
                os.link(scratch, path)
            except FileExistsError:
                # Over a network it may have been this very call, whose answer was lost.
                return os.stat(scratch).st_nlink > 1
            except OSError as e:
                if e.errno not in _NO_LINKS:
                    raise
                if self.durable:
                    hint = "take a folder on a file system that has them"
                    raise BraidError(f"the file system of {self.path} has no hard links", hint) from None
                return _exclusive(path, data)
            _sync(path, fsync)
        return True

    def put(self, name: str, path: str) -> None:
        target = self._path(name)
        with self._written(target, self.durable) as (scratch, file):
            with open(path, "rb") as source:
                shutil.copyfileobj(source, file, 1 << 20)
            _finish(file, self.durable)
            os.rename(scratch, target)
            _sync(target, self.durable)

    def write(self, name: str, data: bytes, fsync: bool = False) -> None:
        path, fsync = self._path(name), fsync or self.durable
        self._folders(os.path.dirname(path), fsync)
        write_atomic(path, data, os.path.dirname(path), fsync)

    def append(self, name: str, data: bytes, fsync: bool = False) -> bool:
        path, fsync = self._path(name), fsync or self.durable
        new = fsync and not os.path.exists(path)
        self._folders(os.path.dirname(path), fsync)
        with open(path, "ab") as f:
            f.write(data)
            _finish(f, fsync)
        _sync(path, new)
        return True

    def get(self, name: str, most: int = LARGEST) -> bytes:
        with self._opened(name) as f:
            size = os.fstat(f.fileno()).st_size
            if size > most:
                raise too_large(self.url, name, size, most)
            return f.read(most)

    def range(self, name: str, start: int, length: int) -> bytes:
        with self._opened(name) as f:
            f.seek(start)
            return f.read(length)

    def size(self, name: str) -> int | None:
        try:
            with self._opened(name) as f:
                return os.fstat(f.fileno()).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def local(self, name: str, fetch: Callable[[str], None]) -> str:
        return self._path(name)

    def unread(self, name: str) -> None:
        """There are no copies."""

    def scratch(self, name: str, fsync: bool = False) -> str:
        path = self._path(name)
        self._folders(os.path.dirname(path), fsync or self.durable)
        return scratch_name(path)

    def take(self, name: str, path: str, fsync: bool = False) -> None:
        target = self._path(name)
        if fsync or self.durable:
            force(path)
        os.replace(path, target)
        _sync(target, fsync or self.durable)

    def version(self, name: str) -> object:
        found = os.stat(self._path(name))
        return found.st_ino, found.st_mtime_ns, found.st_size

    def delete(self, *names: str, fsync: bool = False) -> None:
        for name in names:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                os.unlink(self._path(name))
        if fsync or (self.durable and names):
            for folder in {os.path.dirname(self._path(name)) for name in names}:
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    force(folder)

    def list(self, folder: str) -> Iterator[tuple[str, int]]:
        top = self._path(folder) if folder else self.path
        for parent, folders, files in os.walk(top):
            folders[:] = [f for f in folders if not UNFINISHED.search(f)]
            for file in (f for f in files if not UNFINISHED.search(f)):
                path = os.path.join(parent, file)
                with contextlib.suppress(FileNotFoundError):
                    found = os.lstat(path)
                    if stat.S_ISREG(found.st_mode):
                        yield os.path.relpath(path, self.path), found.st_size

    def sizes(self) -> dict[str, int]:
        found = dict[str, int]()
        for folder, _, names in os.walk(self.path):
            for path in (os.path.join(folder, name) for name in names):
                with contextlib.suppress(FileNotFoundError):  # it went meanwhile
                    found[os.path.relpath(path, self.path)] = os.lstat(path).st_size
        return found

    def names(self, folder: str) -> Sequence[str]:
        try:
            return os.listdir(self._path(folder) if folder else self.path)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def folders(self) -> Sequence[str]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.path) as found:
            return [e.name for e in found if e.is_dir(follow_symlinks=False)]
        return []

    def clear(self, last: str | None = None) -> None:
        with contextlib.suppress(FileNotFoundError):
            gone = scratch_name(self.path)
            os.rename(self.path, gone)
            shutil.rmtree(gone, ignore_errors=True)

    def clean(self, folder: str) -> None:
        for parent, _, files in os.walk(self._path(folder), topdown=False):
            for file in (f for f in files if UNFINISHED.search(f)):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(parent, file))
            with contextlib.suppress(OSError):  # others are in it
                os.rmdir(parent)

    def sweep(self) -> None:
        for name in self.names(""):
            if UNFINISHED.search(name):
                shutil.rmtree(os.path.join(self.path, name), ignore_errors=True)

    def latest(self, name: str, most: int = LARGEST) -> tuple[str, bytes] | None:
        try:
            return name, self.get(f"{name}.json", most)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def change(self, name: str, to: Change, most: int = LARGEST) -> None:
        path = self._path(f"{name}.json")
        folder = os.path.dirname(path)
        self._folders(folder, self.durable)
        refuse_link(folder)
        with locked(os.path.join(folder, f".{os.path.basename(name)}.lock")):
            after = to(self.latest(name, most), name)
            if after is not None:
                write_atomic(path, after, folder, self.durable)

    def documents(self, *folders: str) -> Sequence[str]:
        found = ((folder, name) for folder in ("", *folders) for name in self.names(folder))
        return sorted(os.path.join(folder, name[:-5]) for folder, name in found if name.endswith(".json"))

    def _path(self, name: str) -> str:
        """No folder on the way is a link, which may lead out of the store."""
        path, *rest = self.path, *named(name).split("/")
        for part in rest[:-1]:
            path = os.path.join(path, part)
            refuse_link(path)
        return os.path.join(path, rest[-1])

    @contextlib.contextmanager
    def _written(self, path: str, fsync: bool) -> Iterator[tuple[str, BinaryIO]]:
        """A new file that is gone in the end, but for the name that it was given."""
        self._folders(os.path.dirname(path), fsync)
        scratch = scratch_name(path)
        try:
            with open(scratch, "xb") as f:
                yield scratch, f
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(scratch)

    def _folders(self, folder: str, fsync: bool) -> None:
        """It is there. Who makes a store has it for himself."""
        if os.path.isdir(folder):
            return
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        if folder != self.path:
            self._folders(os.path.dirname(folder), fsync)
            os.makedirs(folder, exist_ok=True)
            _sync(folder, fsync)

    def _opened(self, name: str) -> BinaryIO:
        path = self._path(name)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except NotADirectoryError:
            if os.path.isfile(self.path):
                raise
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
        except OSError as e:
            if e.errno != errno.ELOOP:
                raise
            raise _no_file(path) from None
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            os.close(fd)
            if not stat.S_ISDIR(mode):
                raise _no_file(path)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return os.fdopen(fd, "rb")


def _exclusive(path: str, data: bytes) -> bool:
    """Whether this call has made it, where nothing but that decides. A kill may leave it torn."""
    try:
        with open(path, "xb") as f:
            f.write(data)
    except FileExistsError:
        return False
    return True


def _finish(file: BinaryIO, fsync: bool) -> None:
    file.flush()
    if fsync:
        with naming(file.name):
            os.fsync(file.fileno())


def _sync(path: str, fsync: bool) -> None:
    """Its name survives a loss of power."""
    if fsync:
        force(os.path.dirname(path))


def _no_file(path: str) -> BraidError:
    return BraidError(f"{path} is not a plain file", "take it away: braid puts only plain files there")
