"""An object store that a server has: S3, Google Cloud Storage, Azure, and what speaks as they do, by obstore.

In: a bucket and a path in it; credentials from where the cloud's own tools have them. Out: its objects.
Rule: *create* is told apart from its own earlier attempt, whose answer was lost, by a mark that is new for each call. A
server that is busy, away or silent is asked again, for `PATIENCE` at most, `START` where a command begins; whoever
listens (`at_start`) is told after `TELL`; then one line says why. What the server or
the library says is never shown, as it may hold a key or a signature: only the status and S3's code, which is one word.
A client is made where it is first used, by each process for itself, since a process that was forked from one with a
client would wait for ever.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import lru_cache, partial
from io import BytesIO
from typing import Any, BinaryIO, TypeVar
from uuid import uuid4

from braid.errors import Away, BraidError, library
from braid.store import aws
from braid.store.interface import LARGEST, too_large
from braid.store.remote import RemoteStore
from braid.timing import tally

T = TypeVar("T")

PATIENCE = 120.0  # seconds after which a call is not tried again
START = 15.0  # the same of a command, until a server has answered it once
TELL = 3.0  # seconds after which it is told what is waited for
ANSWER = 60.0  # seconds that one try may take
TRIES = 50
_PAUSE = 0.1  # seconds before the second try; each later one waits longer
_PART = 8 << 20  # bytes of a part, as long as there are no more of them than
_PARTS = 5_000  # (S3 takes 10,000)
_AT_ONCE = 2  # parts
_LONGEST_PAUSE = 5.0
_MARK = "attempt"  # what is noted of an object besides its bytes
_BEYOND = 416  # the status of a range that begins behind the end
_BUSY = (408, 409, 429)
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
_UNKNOWN_USER = ("169.254.", "metadata.google", "MissingAccount", "Credentials")  # asks a cloud's machine who it is
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
_LATER = "try again later"
_OF_PARTS = 5  # tries of each part of a large object, whose others need not go once more
AGAIN = "store_again"  # what a task counts: calls that were tried again
_runtime: list[int] = []  # the process in which obstore was first used


class _GivenUp(Away):
    """After all the time that a call has."""


class _Waits:
    """What this process knows of its waits. `tell`: whom it tells of them, where it is a command; `answered`: servers
    that have; `lost`: those that are waited for, and since when; `again`: how many calls were tried again."""

    def __init__(self) -> None:
        self.tell: Callable[[str], None] | None = None
        self.answered: set[str] = set()
        self.lost: dict[str, float] = {}
        self.again = 0
        self._guard = threading.Lock()

    def away(self, place: str, why: str, since: float) -> None:
        """Told once, however many threads wait."""
        with self._guard:
            told, self.lost[place] = place in self.lost, self.lost.get(place, since)
        if not told and self.tell is not None:
            self.tell(f"waiting for {why}")

    def there(self, place: str) -> None:
        self.answered.add(place)
        if place not in self.lost:
            return
        with self._guard:
            since = self.lost.pop(place, None)
        if since is not None and self.tell is not None:
            self.tell(f"{place} answers again, after {time.monotonic() - since:.0f} s")


_waits = _Waits()


def at_start(tell: Callable[[str], None] | None) -> None:
    """A command begins: a server that does not answer is told of, and until it has answered waited for less long."""
    _waits.tell = tell
    _waits.answered.clear()
    _waits.lost.clear()


def tried_again() -> int:
    """How many calls of this process were not answered at first."""
    return _waits.again


@dataclass(frozen=True)
class Kind:
    """How one cloud's stores are made, what a bucket is called there, where credentials come from."""

    maker: str
    bucket: str
    hint: str


KINDS = {
    "s3": Kind("S3Store", "bucket", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, and AWS_REGION"),
    "gs": Kind("GCSStore", "bucket", "set GOOGLE_APPLICATION_CREDENTIALS, or log in: gcloud auth application-default"),
    "az": Kind(
        "AzureStore", "container", "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or log in: az"
    ),
}


@dataclass(frozen=True, slots=True)
class BucketStore(RemoteStore):
    """`prefix`: begins the names of its objects, without a `/` at its end. `clients`: of what lies in one bucket."""

    kind: str
    bucket: str
    prefix: str
    clients: dict[tuple[int, float, int], Any] = field(default_factory=dict, compare=False, repr=False)

    def __reduce__(self) -> tuple[Callable[[str, str, str], BucketStore], tuple[str, str, str]]:
        return _unpickled, (self.kind, self.bucket, self.prefix)

    @property
    def url(self) -> str:
        return f"{self.kind}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")

    def _below(self, prefix: str) -> BucketStore:
        return replace(self, prefix=prefix)

    def create(self, name: str, data: bytes, fsync: bool = False) -> bool:
        mark = uuid4().hex
        exists = library("obstore.exceptions", "objects").AlreadyExistsError

        def made(store: Any) -> bool:
            try:
                store.put(self._key(name), data, mode="create", attributes={_MARK: mark})
            except exists:
                return False
            return True

        def tried() -> bool:
            if self._in_bucket(partial(self._asked, made)):
                return True
            # What is there may be of an earlier try of this call. Nothing is, if two were under way and both failed.
            if (found := self._mark(name)) is not None:
                return found == mark
            raise Away(f"{self.url}: others create {name}, and none comes to an end", _LATER)

        return self._patiently(tried)

    def _mark(self, name: str) -> str | None:
        """Which call has created it; None where it is not there."""
        try:
            found = self._reading(lambda s: s.get(self._key(name), options={"head": True}).attributes)
        except FileNotFoundError:
            return None
        return str(found.get(_MARK, ""))

    def put(self, name: str, path: str) -> None:
        with open(path, "rb") as f:
            self._send(name, f, os.path.getsize(path))

    def write(self, name: str, data: bytes, fsync: bool = False) -> None:
        self._send(name, BytesIO(data), len(data))

    def _send(self, name: str, source: BinaryIO, size: int) -> None:
        key, part = self._key(name), max(_PART, -(-size // _PARTS))

        def sent(store: Any) -> None:
            source.seek(0)
            store.put(key, source, chunk_size=part, max_concurrency=_AT_ONCE)

        self._in_bucket(partial(self._reading, sent, _OF_PARTS if size > part else 0))

    def get(self, name: str, most: int = LARGEST) -> bytes:
        def read(store: Any) -> bytes:
            found = store.get(self._key(name))
            if (size := found.meta["size"]) > most:
                raise too_large(self.url, name, size, most)
            return bytes(found.bytes())

        return self._reading(read)

    def range(self, name: str, start: int, length: int) -> bytes:
        def read(store: Any) -> bytes:
            try:
                return bytes(store.get_range(self._key(name), start=start, length=length))
            except Exception as e:
                if _status(str(e)) == _BEYOND:
                    return b""
                raise

        return self._reading(read) if length > 0 else b""

    def size(self, name: str) -> int | None:
        try:
            return self._reading(lambda s: int(s.head(self._key(name))["size"]))
        except FileNotFoundError:
            return None

    def delete(self, *names: str, fsync: bool = False) -> None:
        for name in map(self._key, names):  # one by one: not all that speak as S3 does take many at once
            with contextlib.suppress(FileNotFoundError):
                self._reading(partial(_delete, name))

    def list(self, folder: str) -> Iterator[tuple[str, int]]:
        below, start = self._key(folder) if folder else self.prefix, len(self.prefix) + 1 if self.prefix else 0

        def read(store: Any) -> list[tuple[str, int]]:
            return [(x["path"][start:], x["size"]) for page in store.list(below or None) for x in page]

        yield from self._in_bucket(partial(self._reading, read))

    def _in_bucket(self, call: Callable[[], T]) -> T:
        """What a call gives for which only the bucket can be missing."""
        try:
            return call()
        except FileNotFoundError:
            raise self._no_bucket() from None

    def _reading(self, do: Callable[[Any], T], tries: int = 0) -> T:
        """What a call gives that is about one object, which may not be there. It may be done twice. `tries`: of
        obstore's own, for each request of many."""
        return self._patiently(partial(self._asked, do, tries))

    def _asked(self, do: Callable[[Any], T], tries: int = 0) -> T:
        exceptions = library("obstore.exceptions", "objects")
        try:
            return do(self._store(tries))
        except FileNotFoundError as e:
            if (code := _code(str(e))) in _NO_BUCKET:
                raise self._no_bucket() from None
            if code == "NoSuchUpload":  # it may have come to its end, and the answer was lost
                raise Away(f"{self.url}: an upload was lost", _LATER) from None
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.url) from None
        except (exceptions.BaseError, ValueError) as e:
            raise self._error(str(e), type(e).__name__) from None

    @property
    def _place(self) -> str:
        return f"{self.kind}://{self.bucket}"

    @property
    def _starts(self) -> bool:
        """Whether a command begins, and its server has not answered yet."""
        return _waits.tell is not None and self._place not in _waits.answered

    def _patiently(self, do: Callable[[], T]) -> T:
        """What it gives, sooner or later."""
        began, patience = time.monotonic(), min(START, PATIENCE) if self._starts else PATIENCE
        for n in range(TRIES):
            try:
                with self._silence_told(began):
                    found = do()
                break
            except _GivenUp:
                raise
            except Away as e:
                waited = time.monotonic() - began
                if waited > patience or n == TRIES - 1:
                    raise _GivenUp(f"{e.message}, for {waited:.0f} s", e.hint) from None
                _waits.again += 1
                tally(AGAIN)
                if waited > TELL:
                    _waits.away(self._place, e.message, began)
                time.sleep(min(_PAUSE * 2**n, _LONGEST_PAUSE))
            except (BraidError, FileNotFoundError):
                _waits.there(self._place)
                raise
        _waits.there(self._place)
        return found

    @contextlib.contextmanager
    def _silence_told(self, began: float) -> Iterator[None]:
        """Tells of a server that takes a first call and says nothing."""
        if not self._starts:
            yield
            return
        timer = threading.Timer(TELL, _waits.away, [self._place, f"{self.url}: no answer yet", began])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _store(self, tries: int) -> Any:
        """The client of this process."""
        process = os.getpid()
        answer = min(ANSWER, START) if self._starts else ANSWER
        which = process, answer, tries
        if which in self.clients:
            return self.clients[which]
        _runtime[:] = _runtime or [process]
        if _runtime != [process]:
            raise RuntimeError(f"process {_runtime[0]} used object stores before {process} was forked from it")
        made = library("obstore.store", "objects")
        pause = {"init_backoff": timedelta(seconds=_PAUSE), "max_backoff": timedelta(seconds=_LONGEST_PAUSE), "base": 2}
        options: dict[str, Any] = {"timeout": timedelta(seconds=answer)}
        config = aws.settings(os.environ) if self.kind == "s3" else {}
        if any(x.startswith("http://") for x in (config.get("endpoint", ""), *map(_environment, _ENDPOINTS))):
            options["allow_http"] = True
        store = getattr(made, KINDS[self.kind].maker)(
            self.bucket,
            config=config,
            client_options=options,
            retry_config={"max_retries": tries, "retry_timeout": timedelta(seconds=PATIENCE / 4), "backoff": pause},
        )
        self.clients[which] = store
        return store

    def _no_bucket(self) -> BraidError:
        kind = KINDS[self.kind]
        return BraidError(f"there is no {kind.bucket} {self.bucket}", f"make it: braid makes no {kind.bucket}s")

    def _error(self, said: str, name: str) -> BraidError:
        """`said`: what the library said, of which nothing is shown but a status and a code."""
        kind = KINDS[self.kind]
        status, code = _status(said), _code(said)
        told = f"{status} {code}".strip() if status else name
        if any(x in said for x in _UNKNOWN_USER):
            return BraidError(f"{self.url}: no credentials were found", kind.hint)
        if status in (401, 403):
            return BraidError(f"{self.url}: access is refused ({told})", kind.hint)
        if code in _NO_BUCKET:
            return self._no_bucket()
        if status >= 500 or status in _BUSY:
            return Away(f"{self.url}: the server is overloaded or failing ({told})", _LATER)
        if "kind: Timeout" in said:
            return Away(f"{self.url}: no answer", _LATER)
        if "HttpError" in said:
            return Away(f"{self.url}: the server cannot be reached", "is it up, and is its address right?")
        return BraidError(f"{self.url}: the server does not do it ({told})", "are region and address right?")


@lru_cache(maxsize=64)
def _unpickled(kind: str, bucket: str, prefix: str) -> BucketStore:
    """One a process, since its clients have connections."""
    return BucketStore(kind, bucket, prefix)


def _delete(name: str, store: Any) -> None:
    store.delete(name)


def _environment(name: str) -> str:
    return os.environ.get(name, "")


def _status(said: str) -> int:
    found = re.search(r"status code: (\d{3})", said)
    return int(found[1]) if found else 0


def _code(said: str) -> str:
    """S3's and Azure's word for what is wrong."""
    found = re.search(r"<Code>([A-Za-z]{1,60})</Code>", said)
    return found[1] if found else ""
