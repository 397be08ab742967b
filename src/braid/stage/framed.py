"""Records in a file that is only added to: each is found, and checked, by itself.

In: a magic word, a salt (what the file is called, and whose it is), bodies. Out: bytes to be added; the bodies again.
Rule: a record is the magic word, the length of its body, the CRC-32 of salt and body, and the body. Behind damage a
reader finds the next record by its magic word; of each stretch without one it says whether it was only cut off.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

_HEAD = struct.Struct(">II")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes that are no record. `cut_off`: they begin one, and are the last of the file."""

    cut_off: bool


def record(magic: bytes, salt: str, body: bytes) -> bytes:
    return magic + _HEAD.pack(len(body), _sum(salt, body)) + body


def _sum(salt: str, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(salt.encode()))


def bodies(magic: bytes, salt: str, data: bytes) -> Iterator[bytes | Stretch]:
    """What the records hold, and the stretches between them that are none."""
    at, lost = 0, -1
    while at < len(data):
        body = _body(magic, salt, data, at)
        if body is None:
            lost, found = at if lost < 0 else lost, data.find(magic, at + 1)
            at = found if found >= 0 else len(data)
            continue
        if lost >= 0:
            yield Stretch(False)
        lost, at = -1, at + len(magic) + _HEAD.size + len(body)
        yield body
    if lost >= 0:
        yield Stretch(_cut_off(magic, data[lost:]))


def _body(magic: bytes, salt: str, data: bytes, at: int) -> bytes | None:
    begin = at + len(magic) + _HEAD.size
    if not data.startswith(magic, at) or len(data) < begin:
        return None
    length, crc = _HEAD.unpack_from(data, at + len(magic))
    body = data[begin : begin + length]
    return body if length and len(body) == length and _sum(salt, body) == crc else None


def _cut_off(magic: bytes, rest: bytes) -> bool:
    """Whether these bytes begin a record that would be longer."""
    if len(rest) < len(magic) + _HEAD.size:
        return rest[: len(magic)] == magic[: len(rest)]
    length, _ = _HEAD.unpack_from(rest, len(magic))
    return rest.startswith(magic) and len(magic) + _HEAD.size + int(length) > len(rest)
