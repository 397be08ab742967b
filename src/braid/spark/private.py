"""Folders of this user alone: for logs, for what can be made again, for sockets.

In: a name. Out: a folder that nobody else can read, write or have made.
Rule: a folder whose name can be guessed is looked at before it is used, as anybody may have made it first: it is of
this user, closed to all others, and no link. One that is made new has a name that nobody could guess.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator

from braid.errors import BraidError

LONGEST_SOCKET = 107  # bytes of a socket's path, by the kernel
_NAME_OF_SOCKET = 45  # bytes that Spark's own names of sockets may have


def own_folder(name: str) -> str:
    """A folder for what can be made again, of this user on this machine. `name` may have parts."""
    path = os.path.join(tempfile.gettempdir(), f"braid-{os.getuid()}")
    _own(path, closed=True)
    for part in name.split(os.sep):
        path = os.path.join(path, part)
        _own(path)
    return path


def _own(path: str, closed: bool = False) -> None:
    """`closed`: nobody else can get in; then the modes of what is in there do not count."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):
        why = "is a symbolic link"
    elif not stat.S_ISDIR(found.st_mode):
        why = "is no folder"
    elif found.st_uid != os.getuid():
        why = "belongs to another user"
    elif closed and found.st_mode & 0o077:
        why = f"is open to others (mode {found.st_mode & 0o777:o})"
    else:
        return
    raise BraidError(f"{path} {why}: it cannot hold braid's temporary files", "set TMPDIR to a folder of your own")


@contextlib.contextmanager
def socket_folder() -> Iterator[str]:
    """A new folder for sockets, which goes with the block. Where the one for temporary files has too long a path for a
    socket, it lies in /tmp."""
    short = len(os.fsencode(tempfile.gettempdir())) + len("/braid-sock-12345678") + _NAME_OF_SOCKET <= LONGEST_SOCKET
    with tempfile.TemporaryDirectory(prefix="braid-sock-", dir=None if short else "/tmp") as folder:
        yield folder
