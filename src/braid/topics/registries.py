"""The kinds of schema registries: a folder of a store (or this process's memory), an object store, a server.

In: an address, and a file of settings. Out: a `records.registry.Registry`; `opened` gives the one at an address, once a
process.
Rule: a server speaks Confluent's HTTP interface, and answers within seconds or is told to be away. It travels to tasks
as its address and the path of the file: what stands in the file is read where a client is made. No secret stands in a
message or in an address.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from braid.errors import BraidError
from braid.records.registry import Incompatible, Registry, RegistryAway, Schema, UnknownSchema
from braid.store import ObjectStore
from braid.store.files import locked, private_folder, refuse_link, write_atomic
from braid.topics.documents import called, changed, document
from braid.topics.files import members, parsed, read_small
from braid.topics.sealed import sealed, unsealed
from braid.topics.settings import read_settings

SECONDS = 4.0  # to wait for an answer
_NAME = "registry"  # of the document in an object store
OWN = ("url", "timeout", "max.retries", "retries.wait.ms", "cache.latest.ttl.sec")  # settings that Braid gives itself

T = TypeVar("T")


# ------------------------------------------------------------ of this process, of a store


class Memory:
    """The documents of a registry by their names: `schemas/<id>`, which names its subjects, and `subjects/<name>`, the
    ids of its versions. `called`: what has them."""

    def __init__(self, held: dict[str, Any] | None = None, called: str = "the registry of the driver") -> None:
        self.held, self.called = held or {}, called

    def names(self) -> list[str]:
        return [*self.held]

    def get(self, name: str) -> Any:
        return self.held.get(name)

    def put(self, name: str, doc: Any) -> None:
        self.held[name] = doc

    def shown(self, name: str) -> str:
        return name

    def now(self, _: str = "") -> Memory:
        return self

    def change(self, do: Callable[[Memory], T]) -> T:
        return do(self)


class Folder:
    """The same as JSON files, each under a checksum of it and its name. One process at a time changes them."""

    called = "the registry of the store"

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        kinds = [x for x in ("schemas", "subjects") if os.path.isdir(os.path.join(self._folder, x))]
        files = (f"{x}/{name}" for x in kinds for name in os.listdir(os.path.join(self._folder, x)))
        return [name.removesuffix(".json") for name in files if name.endswith(".json")]

    def get(self, name: str) -> Any:
        path = self.shown(name)
        try:
            return parsed(unsealed(read_small(path), name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError as e:
            raise BraidError(f"{path} is no document of a registry: {e}", "put it back as it was") from None

    def put(self, name: str, doc: Any) -> None:
        path = self.shown(name)
        folder = os.path.dirname(path)
        refuse_link(folder)
        os.makedirs(folder, exist_ok=True)
        write_atomic(path, sealed(json.dumps(doc, ensure_ascii=False, indent=1).encode(), name), folder)

    def shown(self, name: str) -> str:
        return os.path.join(self._folder, f"{name}.json")

    def now(self, _: str = "") -> Folder:
        return self

    def change(self, do: Callable[[Folder], T]) -> T:
        refuse_link(self._folder)
        private_folder(os.path.dirname(self._folder))
        os.makedirs(self._folder, exist_ok=True)
        with locked(os.path.join(self._folder, ".lock")):
            return do(self)


class InObjects:
    """The same in an object store, all in one of its documents."""

    def __init__(self, root: ObjectStore) -> None:
        self._root = root
        self._last = Memory()

    def now(self, name: str = "") -> Memory:
        """As they are; of one that never changes (`name`), as they were at the last look if it was there."""
        if name not in self._last.held:
            self._last = self._of(document(self._root, _NAME))
        return self._last

    def change(self, do: Callable[[Memory], T]) -> T:
        found = list[T]()

        def to(data: bytes | None) -> bytes | None:
            self._last = self._of(data)
            before = {**self._last.held}
            found[:] = [do(self._last)]
            return None if self._last.held == before else json.dumps(self._last.held, ensure_ascii=False).encode()

        changed(self._root, _NAME, to)
        return found[0]

    def _of(self, data: bytes | None) -> Memory:
        try:
            return Memory({} if data is None else members(parsed(data)), Folder.called)
        except ValueError as e:
            what = f"{called(self._root, _NAME)} is no document of a registry: {e}"
            raise BraidError(what, "put it back as it was") from None


class StoreRegistry:
    """Schemas as documents, wherever these are.

    Compatibility is BACKWARD, as Confluent's is where nobody says another: who reads by the new schema can read what
    the last one wrote.
    """

    def __init__(self, at: Memory | Folder | InObjects | None = None) -> None:
        self._at = at or Memory()

    def all(self) -> dict[str, Any]:
        """Every document by its name."""
        now = self._at.now()
        return {name: now.get(name) for name in now.names()}

    def fill(self, documents: Mapping[str, Any]) -> None:
        """With those of another."""

        def filled(now: Memory | Folder) -> None:
            for name, doc in documents.items():
                now.put(name, doc)

        self._at.change(filled)

    def by_id(self, id: int) -> Schema:
        now = self._at.now(f"schemas/{id}")
        doc = now.get(f"schemas/{id}")
        if doc is None:
            raise UnknownSchema(f"no schema has the id {id}", f"it is not in {now.called}")
        try:
            return Schema(doc["kind"], doc["text"], tuple((n, s, v) for n, s, v in doc["references"]))
        except (KeyError, TypeError, ValueError):
            raise BraidError(f"schema {id} in {now.called} is damaged", "put its file back as it was") from None

    def latest(self, subject: str) -> tuple[int, Schema] | None:
        ids = _ids(self._at.now(), subject)
        return (ids[-1], self.by_id(ids[-1])) if ids else None

    def version(self, subject: str, version: int) -> Schema:
        ids = _ids(self._at.now(), subject)
        if not 1 <= version <= len(ids):
            raise BraidError(f"subject {subject} has no version {version}", f"it has {len(ids)}")
        return self.by_id(ids[version - 1])

    def check(self, subject: str, schema: Schema) -> None:
        from braid.records.framed import misfit

        now = StoreRegistry(self._at.now())
        last = now.latest(subject)
        if last is None or last[1] == schema:
            return
        before = last[1]
        why = f"it was {before.kind}" if before.kind != schema.kind else misfit(now, schema, before)
        if why is not None:
            hint = "write another topic, or make the new schema able to read what the last one wrote"
            raise Incompatible(f"the schema of {subject} cannot be changed so: {why}", hint)

    def register(self, subject: str, schema: Schema, id: int | None = None, *, checked: bool = True) -> int:
        """`id`: the number to give it, where one is wanted."""
        return self._at.change(lambda now: _registered(now, subject, schema, id, checked))

    def forget(self, subject: str) -> None:
        def forgotten(now: Memory | Folder) -> None:
            if _ids(now, subject):
                now.put(_file_of(subject), {"ids": []})

        self._at.change(forgotten)

    def whole(self) -> None:
        """All documents are what was written, and none is missing that another names."""
        now = self._at.now()
        for name in now.names():
            doc = now.get(name)
            if name.startswith("schemas/"):
                others = [_file_of(subject) for subject in doc.get("subjects", ())]
            else:
                others = [f"schemas/{i}" for i in _ids_in(doc)]
            if (gone := next((x for x in others if now.get(x) is None), None)) is not None:
                raise _missing(now, gone)


def _registered(now: Memory | Folder, subject: str, schema: Schema, id: int | None, checked: bool) -> int:
    known = StoreRegistry(now)
    ids = _ids(now, subject)
    same = next((i for i in ids if known.by_id(i) == schema and id in (None, i)), None)
    if same is not None:
        return same
    if checked:
        known.check(subject, schema)
    there = _numbers(now)
    if id is None:
        id = next((i for i in there if known.by_id(i) == schema), None) or max(there, default=0) + 1
    elif id in there and known.by_id(id) != schema:
        raise BraidError(f"the id {id} names another schema", "take another id, or none")
    known_by = (now.get(f"schemas/{id}") or {}).get("subjects", [])
    doc = {"kind": schema.kind, "text": schema.text, "references": [list(r) for r in schema.references]}
    now.put(f"schemas/{id}", doc | {"subjects": sorted({*known_by, subject})})
    now.put(_file_of(subject), {"ids": [*(i for i in ids if i != id), id]})
    return id


def _missing(now: Memory | Folder, name: str) -> BraidError:
    return BraidError(f"{now.shown(name)} is missing in {now.called}, and others name it", "put it back as it was")


def _ids(now: Memory | Folder, subject: str) -> list[int]:
    doc = now.get(_file_of(subject))
    if doc is None and any(subject in (now.get(f"schemas/{n}") or {}).get("subjects", ()) for n in _numbers(now)):
        raise _missing(now, _file_of(subject))
    return _ids_in(doc)


def _numbers(now: Memory | Folder) -> list[int]:
    found = (n.removeprefix("schemas/") for n in now.names() if n.startswith("schemas/"))
    return sorted(int(n) for n in found if n.isdigit())


def copied(root: ObjectStore, to: ObjectStore) -> None:
    """The schemas of a store, in another."""
    if found := of_store(root).all():
        of_store(to).fill(found)


def check(root: ObjectStore) -> None:
    """Whether the registry of a store is whole."""
    of_store(root).whole()


def _ids_in(doc: Any) -> list[int]:
    """Of a subject; older versions wrote the ids alone."""
    return list(doc["ids"] if isinstance(doc, dict) else doc or [])


def _file_of(subject: str) -> str:
    return f"subjects/{quote(subject, safe='')}"


# --------------------------------------------------------------- on a server


class HttpRegistry:
    """Confluent's HTTP interface, by the client of confluent-kafka; what an id names is asked for once."""

    def __init__(self, url: str, settings: Sequence[tuple[str, str]] = ()) -> None:
        from confluent_kafka.schema_registry import SchemaRegistryClient

        self._called, self._settings = url, settings
        # `cache.latest.ttl.sec`: else the client remembers the latest version for ever
        ours = {"timeout": SECONDS, "max.retries": 1, "retries.wait.ms": 100, "cache.latest.ttl.sec": 1}
        try:
            self._client = SchemaRegistryClient({**dict(settings), **ours, "url": url})
        except (ValueError, TypeError, OSError) as e:
            hint = "settings are those of confluent-kafka's client, such as basic.auth.user.info=NAME:PASSWORD"
            raise BraidError(f"the registry's settings are refused: {_first(e, settings)}", hint) from None
        self._schemas: dict[int, Schema] = {}

    def by_id(self, id: int) -> Schema:
        if id not in self._schemas:
            found = self._asked(lambda: self._client.get_schema(id), f"schema {id}")
            if found is None:
                raise UnknownSchema(f"no schema has the id {id}", f"it is not in {self._called}")
            self._schemas[id] = _from_client(found)
        return self._schemas[id]

    def latest(self, subject: str) -> tuple[int, Schema] | None:
        found = self._asked(lambda: self._client.get_latest_version(subject), f"subject {subject}")
        return None if found is None else (int(found.schema_id or 0), _from_client(found.schema))

    def version(self, subject: str, version: int) -> Schema:
        found = self._asked(lambda: self._client.get_version(subject, version), f"subject {subject}")
        if found is None:
            raise BraidError(f"subject {subject} has no version {version}", f"it is not in {self._called}")
        return _from_client(found.schema)

    def check(self, subject: str, schema: Schema) -> None:
        """Some registries take a schema that they cannot compare, because of what it imports: registering decides."""
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        def compatible() -> bool:
            try:
                return self._client.test_compatibility(subject, _to_client(schema))
            except SchemaRegistryError as e:
                if e.http_status_code == 422:
                    return True
                raise

        if self._asked(compatible, f"subject {subject}") is False:
            raise self._incompatible(subject)

    def register(self, subject: str, schema: Schema) -> int:
        made = self._asked(lambda: self._client.register_schema(subject, _to_client(schema)), f"subject {subject}")
        if made is None:
            raise BraidError(f"{self._called} does not take schemas for {subject}", "is it a schema registry?")
        return int(made)

    def forget(self, subject: str) -> None:
        self._asked(lambda: self._client.delete_subject(subject), f"subject {subject}")

    def _incompatible(self, subject: str) -> Incompatible:
        hint = "write another topic, or make the new schema able to read what the last one wrote"
        return Incompatible(f"{self._called} refuses the schema of {subject}: incompatible with an earlier one", hint)

    def _asked(self, ask: Callable[[], T], what: str) -> T | None:
        """What it answers; None where it knows no such thing."""
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return ask()
        except SchemaRegistryError as e:
            if e.http_status_code == 404 and 40000 < e.error_code < 40500:  # a subject, a version, a schema
                return None
            if e.http_status_code == 409:
                raise self._incompatible(what.removeprefix("subject ")) from None
            if e.http_status_code in (401, 403):
                hint = "check basic.auth.user.info in the file of --registry-config"
                raise BraidError(f"{self._called} refuses access to {what} ({e.http_status_code})", hint) from None
            if e.http_status_code == 422:
                why = _first(e, self._settings)
                raise BraidError(f"{self._called} refuses the schema of {what}: {why}", _registry_hint(e)) from None
            kind = RegistryAway if e.http_status_code >= 500 else BraidError
            raise kind(f"{self._called} does not give {what}: {e.http_status_code}", _registry_hint(e)) from None
        except Exception as e:  # what the HTTP client raises is not told by its own interface
            if "SSL" in str(e):
                hint = "check ssl.* in the file of --registry-config"
                raise BraidError(f"{self._called} cannot be trusted, or does not trust: {e}", hint) from None
            hint = "is it up, and is this its address?"
            raise RegistryAway(f"no registry answers at {self._called}: {type(e).__name__}", hint) from None


def _registry_hint(e: Any) -> str:
    return "is this the address of a schema registry?" if e.error_code < 40000 else f"error {e.error_code}"


def _from_client(found: Any) -> Schema:
    references = tuple((r.name, r.subject, r.version) for r in found.references or ())
    return Schema(found.schema_type or "AVRO", found.schema_str, references)


def _to_client(schema: Schema) -> Any:
    from confluent_kafka.schema_registry import Schema as Theirs
    from confluent_kafka.schema_registry import SchemaReference

    return Theirs(schema.text, schema.kind, [SchemaReference(*r) for r in schema.references])


def _first(e: Exception, settings: Sequence[tuple[str, str]]) -> str:
    text = str(e).splitlines()[0] if str(e) else type(e).__name__
    for _, value in settings:
        text = text.replace(value, "…") if len(value) > 3 else text
    return text


# ----------------------------------------------------------------- addresses


@dataclass(frozen=True, slots=True)
class Address:
    """Where a registry is: a folder or a URL. `config`: the path of a file of settings of confluent-kafka's client
    (`basic.auth.user.info`, `ssl.ca.location`, …), a line each: name=value."""

    where: str
    config: str | None = None

    def settings(self) -> dict[str, str]:
        return read_settings(self.config, "--registry-config", OWN, "basic.auth.user.info=NAME:PASSWORD")


def address_of(url: str | None, config: str | None) -> Address | None:
    """The registry that a user names; its settings are looked at."""
    if url is None:
        if config is not None:
            raise BraidError("--registry-config has no meaning without --registry", "name it: --registry URL")
        return None
    parts = urlsplit(url)
    if "@" in url:
        hint = "write basic.auth.user.info=NAME:PASSWORD into the file of --registry-config"
        raise BraidError("--registry takes an address without name and password", hint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise BraidError(f"--registry {url} is no address", "--registry http://localhost:8081")
    address = Address(url, None if config is None else os.path.abspath(config))
    address.settings()
    return address


def of_store(root: ObjectStore) -> StoreRegistry:
    """The registry of a store; one a process."""
    return _of_store(root, os.getpid())


@functools.lru_cache(maxsize=16)
def _of_store(root: ObjectStore, _: int) -> StoreRegistry:
    return StoreRegistry(InObjects(root) if root.path is None else Folder(os.path.join(root.path, "registry")))


def opened(address: Address) -> Registry:
    """The registry at an address; one a process, so that it asks for each id once."""
    return _opened(address, os.getpid())


@functools.lru_cache(maxsize=16)
def _opened(address: Address, _: int) -> Registry:
    if "://" in address.where:
        return HttpRegistry(address.where, tuple(address.settings().items()))
    return StoreRegistry(Folder(address.where))
