"""A room in a folder.

In: a folder, made when something is put there. Out: its files.
Rule: what is written has a name of its own in `~scratch` until it is whole and on the disk. Then it gets its name by a
link, which fails where there is one (create), or by a rename (put). What a killed writer leaves in `~scratch` is never
seen, and may be deleted while nobody writes. Only plain files are opened.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO
from uuid import uuid4

from braid.errors import BraidError
from braid.store.interface import named, too_large

_SCRATCH = "~scratch"  # no name has a `~`
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@dataclass(frozen=True, slots=True)
class FolderRoom:
    """`durable`: forced to the disk before it has its name, and the name, too."""

    root: str
    durable: bool = True

    @property
    def url(self) -> str:
        return self.root

    def create(self, name: str, data: bytes) -> bool:
        path = self._path(name)
        with self._written(path) as (scratch, file):
            file.write(data)
            self._finish(file)
            try:
                os.link(scratch, path)
            except FileExistsError:
                # Over a network it may have been this very call, whose answer was lost.
                return os.stat(scratch).st_nlink > 1
            except OSError as e:
                if e.errno not in _NO_LINKS:
                    raise
                hint = "take a folder on a file system that has them"
                raise BraidError(f"the file system of {self.root} has no hard links", hint) from None
            self._sync(path)
        return True

    def put(self, name: str, path: str) -> None:
        target = self._path(name)
        with self._written(target) as (scratch, file):
            with open(path, "rb") as source:
                shutil.copyfileobj(source, file, 1 << 20)
            self._finish(file)
            os.rename(scratch, target)
            self._sync(target)

    def get(self, name: str, most: int) -> bytes:
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
        except FileNotFoundError:
            return None

    def delete(self, *names: str) -> None:
        for name in names:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                os.unlink(self._path(name))

    def list(self, folder: str) -> Iterator[tuple[str, int]]:
        top = self._path(folder) if folder else self.root
        for parent, folders, files in os.walk(top):
            folders[:] = [f for f in folders if f != _SCRATCH]
            for file in files:
                path = os.path.join(parent, file)
                with contextlib.suppress(FileNotFoundError):
                    found = os.lstat(path)
                    if stat.S_ISREG(found.st_mode):
                        yield os.path.relpath(path, self.root), found.st_size

    def _path(self, name: str) -> str:
        return os.path.join(self.root, *named(name).split("/"))

    @contextlib.contextmanager
    def _written(self, path: str) -> Iterator[tuple[str, BinaryIO]]:
        """A new file that is gone in the end, but for the name that it was given."""
        folder = os.path.join(self.root, _SCRATCH)
        os.makedirs(self.root, mode=0o700, exist_ok=True)
        os.makedirs(folder, exist_ok=True)
        self._folders(os.path.dirname(path))
        scratch = os.path.join(folder, uuid4().hex)
        try:
            with open(scratch, "xb") as f:
                yield scratch, f
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(scratch)

    def _folders(self, folder: str) -> None:
        if folder == self.root or os.path.isdir(folder):
            return
        self._folders(os.path.dirname(folder))
        os.makedirs(folder, exist_ok=True)
        self._sync(folder)

    def _finish(self, file: BinaryIO) -> None:
        file.flush()
        if self.durable:
            os.fsync(file.fileno())

    def _sync(self, path: str) -> None:
        """Its name survives a loss of power."""
        if not self.durable:
            return
        fd = os.open(os.path.dirname(path), os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _opened(self, name: str) -> BinaryIO:
        path = self._path(name)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except NotADirectoryError:
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


def _no_file(path: str) -> BraidError:
    return BraidError(f"{path} is not a plain file", "take it away: braid puts only plain files there")
