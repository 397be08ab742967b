"""Two requests of Kafka's protocol that no client sends so: what a broker is left with when one is killed between them.

In: the address of a broker that does not verify transactions. Out: what it answers.
Rule: the oldest versions, which are spelled without tags.
"""

from __future__ import annotations

import socket
import struct

INIT_PRODUCER_ID, TXN_OFFSET_COMMIT = 22, 28
ENDING = 51  # the last transaction is not over yet


def producer_of(address: str, id: str) -> tuple[int, int]:
    """The number and the epoch of a transactional id, a new epoch."""
    error = ENDING
    while error == ENDING:
        answer = _asked(address, INIT_PRODUCER_ID, _text(id) + struct.pack(">i", 60_000))
        _, error, number, epoch = struct.unpack(">ihqh", answer)
    assert error == 0, error
    return number, epoch


def commit_outside(address: str, id: str, group: str, topic: str, partition: int, offset: int) -> None:
    """An offset of a transaction that the coordinator knows nothing of: nothing ends it."""
    number, epoch = producer_of(address, id)
    offsets = struct.pack(">iiq", 1, partition, offset) + struct.pack(">h", -1)
    body = _text(id) + _text(group) + struct.pack(">qhi", number, epoch, 1) + _text(topic) + offsets
    answer = _asked(address, TXN_OFFSET_COMMIT, body)
    (error,) = struct.unpack(">h", answer[-2:])
    assert error == 0, error


def _text(text: str) -> bytes:
    made = text.encode()
    return struct.pack(">h", len(made)) + made


def _asked(address: str, api: int, body: bytes) -> bytes:
    host, port = address.rsplit(":", 1)
    request = struct.pack(">hhi", api, 0, 1) + _text("raw") + body
    with socket.create_connection((host, int(port)), 10) as server:
        server.sendall(struct.pack(">i", len(request)) + request)
        with server.makefile("rb") as read:
            (size,) = struct.unpack(">i", read.read(4))
            return read.read(size)[4:]  # behind the number of the request
