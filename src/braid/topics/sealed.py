"""Documents and lines of logs under a checksum.

In: a JSON object as bytes; where a document has one place, what it is called there. Out: the same bytes with one more
field, the last: the CRC-32 of all before it, and of the name; read again, the object without that field, compared.
Rule: what is sealed ends with `,"crc":"…"}` and a line feed, and nothing else ends with a line feed or has that field.
So what has one of them and does not fit is damaged, be the damage in the checksum itself; what has neither is of a
version that wrote none, and is read as it is. Whoever knows that it is not so old says `must`.
"""

from __future__ import annotations

import re
import zlib

_SEAL = re.compile(rb',?"crc":"([0-9a-f]{8})"\}\n?\Z')
_LENGTH = len(',"crc":"00000000"}\n')
_TRACE = re.compile(rb'"crc":\s*"')  # of a document that was written anew without regard to its checksum
DIFFERS = "it is not what its checksum says"


def sealed(data: bytes, name: str = "") -> bytes:
    body = data[:-1].rstrip()
    comma = b"" if body.endswith(b"{") else b","
    return b'%s%s"crc":"%08x"}\n' % (body, comma, _sum(body, name))


def has_seal(data: bytes) -> bool:
    """Whether there is a checksum, right or wrong."""
    return _SEAL.search(data, max(len(data) - _LENGTH, 0)) is not None


def unsealed(data: bytes, name: str = "", must: bool = False) -> bytes:
    """What was sealed; `ValueError` where it is something else."""
    found = _SEAL.search(data, max(len(data) - _LENGTH, 0))
    if found is None:
        if data.endswith(b"\n") or _TRACE.search(data):
            raise ValueError(DIFFERS)
        if must:
            raise ValueError("it has no checksum")
        return data
    body = data[: found.start()]
    if int(found[1], 16) != _sum(body, name):
        raise ValueError(DIFFERS)
    return body + b"}"


def _sum(body: bytes, name: str) -> int:
    return zlib.crc32(body, zlib.crc32(name.encode()))
