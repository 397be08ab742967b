"""A room in an object store: S3, Google Cloud Storage, Azure, and what speaks as they do, by obstore.

In: a bucket and a path in it; credentials from where the cloud's own tools have them. Out: its objects.
Rule: *create* is told apart from its own earlier attempt, whose answer was lost, by a mark that is new for each call. A
server that is busy, away or silent is asked again, for `PATIENCE` at most; then one line says why. What the server or
the library says is never shown, as it may hold a key or a signature: only the status and S3's code, which is one word.
A client is made where it is first used, by each process for itself, since a process that was forked from one with a
client would wait for ever.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

from braid.errors import Away, BraidError, library
from braid.store import aws
from braid.store.interface import named, too_large

T = TypeVar("T")

PATIENCE = 120.0  # seconds after which a call is not tried again
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
_runtime: list[int] = []  # the process in which obstore was first used


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


class ObjectRoom:
    def __init__(self, kind: str, bucket: str, path: str) -> None:
        self._kind, self._bucket, self._path = kind, bucket, path
        self._made: tuple[int, Any] | None = None

    def __reduce__(self) -> tuple[type[ObjectRoom], tuple[str, str, str]]:
        return ObjectRoom, (self._kind, self._bucket, self._path)

    @property
    def url(self) -> str:
        return f"{self._kind}://{self._bucket}" + (f"/{self._path}" if self._path else "")

    def create(self, name: str, data: bytes) -> bool:
        mark = uuid4().hex
        exists = library("obstore.exceptions", "objects").AlreadyExistsError

        def made(store: Any) -> bool:
            try:
                store.put(named(name), data, mode="create", attributes={_MARK: mark})
            except exists:
                return False
            return True

        def tried() -> bool:
            if self._writing(made):
                return True
            # What is there may be of an earlier try of this call. Nothing is, if two were under way and both failed.
            if (found := self._mark(name)) is not None:
                return found == mark
            raise Away(f"{self.url}: others create {name}, and none comes to an end", _LATER)

        return _patiently(tried)

    def _mark(self, name: str) -> str | None:
        """Which call has created it; None where it is not there."""
        try:
            found = self._reading(lambda s: s.get(named(name), options={"head": True}).attributes)
        except FileNotFoundError:
            return None
        return str(found.get(_MARK, ""))

    def put(self, name: str, path: str) -> None:
        part = max(_PART, -(-os.path.getsize(path) // _PARTS))

        with open(path, "rb") as f:

            def sent(store: Any) -> None:
                f.seek(0)
                store.put(named(name), f, chunk_size=part, max_concurrency=_AT_ONCE)

            self._writing(sent)

    def get(self, name: str, most: int) -> bytes:
        def read(store: Any) -> bytes:
            found = store.get(named(name))
            if (size := found.meta["size"]) > most:
                raise too_large(self.url, name, size, most)
            return bytes(found.bytes())

        return self._reading(read)

    def range(self, name: str, start: int, length: int) -> bytes:
        def read(store: Any) -> bytes:
            try:
                return bytes(store.get_range(named(name), start=start, length=length))
            except Exception as e:
                if _status(str(e)) == _BEYOND:
                    return b""
                raise

        return self._reading(read) if length > 0 else b""

    def size(self, name: str) -> int | None:
        try:
            return self._reading(lambda s: int(s.head(named(name))["size"]))
        except FileNotFoundError:
            return None

    def delete(self, *names: str) -> None:
        for name in map(named, names):  # one by one: not all that speak as S3 does take many at once
            with contextlib.suppress(FileNotFoundError):
                self._reading(partial(_delete, name))

    def list(self, folder: str) -> Iterator[tuple[str, int]]:
        def read(store: Any) -> list[tuple[str, int]]:
            return [(x["path"], x["size"]) for page in store.list(named(folder) if folder else None) for x in page]

        yield from self._writing(read)

    def _writing(self, do: Callable[[Any], T]) -> T:
        """What a call gives for which only the bucket can be missing."""
        try:
            return self._reading(do)
        except FileNotFoundError:
            raise self._no_bucket() from None

    def _reading(self, do: Callable[[Any], T]) -> T:
        """What a call gives that is about one object, which may not be there. obstore tries again only where it is sure
        that nothing was done; all of ours may be done twice."""
        return _patiently(partial(self._asked, do))

    def _asked(self, do: Callable[[Any], T]) -> T:
        exceptions = library("obstore.exceptions", "objects")
        try:
            return do(self._store())
        except FileNotFoundError as e:
            if (code := _code(str(e))) in _NO_BUCKET:
                raise self._no_bucket() from None
            if code == "NoSuchUpload":  # it may have come to its end, and the answer was lost
                raise Away(f"{self.url}: an upload was lost", _LATER) from None
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.url) from None
        except (exceptions.BaseError, ValueError) as e:
            raise self._error(str(e), type(e).__name__) from None

    def _store(self) -> Any:
        """The client of this process."""
        process = os.getpid()
        if self._made is not None and self._made[0] == process:
            return self._made[1]
        _runtime[:] = _runtime or [process]
        if _runtime != [process]:
            raise RuntimeError(f"process {_runtime[0]} used object stores before {process} was forked from it")
        made = library("obstore.store", "objects")
        pause = {"init_backoff": timedelta(seconds=_PAUSE), "max_backoff": timedelta(seconds=_LONGEST_PAUSE), "base": 2}
        options: dict[str, Any] = {"timeout": timedelta(seconds=ANSWER)}
        config = aws.settings(os.environ) if self._kind == "s3" else {}
        if any(x.startswith("http://") for x in (config.get("endpoint", ""), *map(_environment, _ENDPOINTS))):
            options["allow_http"] = True
        store = getattr(made, KINDS[self._kind].maker)(
            self._bucket,
            prefix=self._path or None,
            config=config,
            client_options=options,
            retry_config={"max_retries": TRIES, "retry_timeout": timedelta(seconds=PATIENCE / 4), "backoff": pause},
        )
        self._made = process, store
        return store

    def _no_bucket(self) -> BraidError:
        kind = KINDS[self._kind]
        return BraidError(f"there is no {kind.bucket} {self._bucket}", f"make it: braid makes no {kind.bucket}s")

    def _error(self, said: str, name: str) -> BraidError:
        """`said`: what the library said, of which nothing is shown but a status and a code."""
        kind = KINDS[self._kind]
        status, code = _status(said), _code(said)
        told = f"{status} {code}".strip() if status else name
        if any(x in said for x in _UNKNOWN_USER):
            return BraidError(f"{self.url}: no credentials were found", kind.hint)
        if status in (401, 403):
            return BraidError(f"{self.url}: access is refused ({told})", kind.hint)
        if code in _NO_BUCKET:
            return self._no_bucket()
        if status >= 500 or status in _BUSY:
            return Away(f"{self.url}: the server is busy or ill ({told}), for {PATIENCE:g} s", _LATER)
        if "kind: Timeout" in said:
            return Away(f"{self.url}: no answer within {ANSWER:g} s", _LATER)
        if "HttpError" in said:
            return Away(f"{self.url}: the server cannot be reached", "is it up, and is its address right?")
        return BraidError(f"{self.url}: the server does not do it ({told})", "are region and address right?")


def _patiently(do: Callable[[], T]) -> T:
    """What it gives, sooner or later."""
    until = time.monotonic() + PATIENCE
    for n in range(TRIES):
        try:
            return do()
        except Away:
            if time.monotonic() > until:
                raise
            time.sleep(min(_PAUSE * 2**n, _LONGEST_PAUSE))
    return do()


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
