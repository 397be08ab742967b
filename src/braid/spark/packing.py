"""What tasks need and a worker may lack: Braid and its libraries, two archives that Spark unpacks beside an executor.

In: this Python environment. Out: two zip files, and how Spark is told of them.
Rule: what Braid's requirements name, and what these need in turn, as it is installed here; never Spark, which workers
have, nor what only tests need. An archive is named after what is in it and made once. Modules lie compiled in it, or
each executor would have to compile them anew.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import py_compile
import re
import shutil
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from braid.errors import BraidError
from braid.spark.holding import NEW, alone, clear, hold
from braid.spark.private import own_folder
from braid.store import on_disk

OWN = "braid-sql"  # the distribution
OF_WORKERS = frozenset({"pyspark", "py4j"})  # what lies there with Spark
OF_THIS_PROJECT = frozenset({"dev", "docs"})  # extras that no query needs
NOT_SENT = frozenset({"..", "__pycache__", "tests", "direct_url.json"})  # the last: an address may have a password
CORE = "braid_native."  # compiled for the driver's system; files are read there
ON_DRIVER = frozenset({"demo", "reference", "testing"})  # packages of Braid's that no task has a use for
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"  # archives are of one version

# The folders of an executor into which Spark unpacks them. Nothing else has such names.
BRAID, LIBRARIES = "__braid__", "__braid_libraries__"
PATH = os.pathsep.join((BRAID, LIBRARIES))

OTHERS = 1  # archive of each kind that stays besides: the one before


@dataclass(frozen=True, slots=True)
class Archive:
    """`folder`: where an executor has it."""

    file: str
    folder: str

    @property
    def words(self) -> str:
        """As Spark takes it."""
        return f"{self.file}#{self.folder}"


def archives() -> Sequence[Archive]:
    """Both, made where they are not there yet, in a folder for what can be made again."""
    to = own_folder("packs")
    named = (
        (f"braid-{version()}-{digest()[:8]}", BRAID, _told_own),
        (f"libraries-{_libraries()[1]}", LIBRARIES, _theirs),
    )
    made = []
    for name, place, files in named:
        path = os.path.join(to, f"{name}-{PYTHON}.zip")
        while not hold(path):  # a run sends it as long as it goes on
            with alone(to):
                if not os.path.exists(path):
                    _write(path, files())
        made.append(Archive(path, place))
        clear(to, name.partition("-")[0], [os.path.basename(path)], OTHERS)
    return made


def copied(folder: str) -> Sequence[Archive]:
    """The same in a folder of the user's."""
    os.makedirs(on_disk(folder), exist_ok=True)
    return [Archive(shutil.copy(a.file, folder), a.folder) for a in archives()]


def options(made: Iterable[Archive]) -> dict[str, str]:
    """The settings of a Spark that gets them when it starts."""
    return {"spark.archives": ",".join(a.words for a in made), "spark.executorEnv.PYTHONPATH": PATH}


def versions() -> dict[str, str]:
    """Of the libraries here."""
    return {name: importlib.metadata.version(name) for name in _libraries()[0]}


def told(made: Sequence[Archive]) -> Iterator[str]:
    """Lines for a terminal: what they are, and what Spark is told of them."""
    for a in made:
        yield f"{a.file}  {os.path.getsize(a.file) / 2**20:.1f} MB"
    yield "spark-submit " + " ".join(f"--conf {name}={value}" for name, value in options(made).items())


@functools.cache
def digest() -> str:
    """Of Braid's own code: that of a worker must be the driver's."""
    found = hashlib.sha256()
    for name, path in _own():
        found.update(f"{name}\n{os.path.getsize(path)}\n".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


# ----------------------------------------------------------------- what is in it


def version() -> str:
    return importlib.metadata.version(OWN)


def _own() -> Iterator[tuple[str, Path]]:
    """Names in the archive, and files."""
    package = Path(__file__).parent.parent
    for path in sorted(package.rglob("*")):
        name = path.relative_to(package)
        if (
            path.is_file()
            and not path.name.startswith(CORE)
            and "__pycache__" not in name.parts
            and name.parts[0] not in ON_DRIVER
        ):
            yield str(path.relative_to(package.parent)), path


def _told_own() -> Iterator[tuple[str, Path]]:
    """The same, and what says which version it is."""
    yield from _own()
    for file in importlib.metadata.files(OWN) or ():
        if file.name == "METADATA":
            yield str(file), Path(str(file.locate()))


def _theirs() -> Iterator[tuple[str, Path]]:
    for name in _libraries()[0]:
        found = importlib.metadata.distribution(name)
        if not found.files:
            raise BraidError(f"it is not known which files {name} has", f"install it by pip: pip install {name}")
        for file in sorted(found.files):
            path = Path(str(found.locate_file(file)))
            if not NOT_SENT & set(file.parts) and path.is_file():
                yield str(file), path


@functools.cache
def _libraries() -> tuple[Sequence[str], str]:
    """The distributions that Braid needs, and a name for all of them together."""
    found: dict[str, set[str]] = {}
    own = importlib.metadata.metadata(OWN)
    extras = {e for e in own.get_all("Provides-Extra") or () if e not in OF_THIS_PROJECT and _installed(e)}
    _collect(OWN, extras, found)
    names = sorted(found.keys() - OF_WORKERS - {OWN})
    known = [f"{name}=={importlib.metadata.version(name)}" for name in names]
    told = hashlib.sha256("\n".join([*known, platform.python_version(), sysconfig.get_platform()]).encode())
    return names, told.hexdigest()[:16]


def _installed(extra: str) -> bool:
    return all(_there(name) for name, _, of in _required(OWN) if of == extra)


def _there(name: str) -> bool:
    try:
        return bool(importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return False


def _collect(name: str, extras: set[str], found: dict[str, set[str]]) -> None:
    """Adds a distribution and all that it needs. One that another system or an older Python would need is not here."""
    known = found.get(name)
    if known is not None and extras <= known:
        return
    found[name] = extras | (known or set())
    for needed, more, of in _required(name):
        if (of is None or of in found[name]) and _there(needed):
            _collect(needed, more, found)


def _required(name: str) -> Iterator[tuple[str, set[str], str | None]]:
    """What a distribution requires: a name, extras of that, and the extra for which it is."""
    for text in importlib.metadata.requires(name) or ():
        m = re.match(r"\s*([\w.-]+)\s*(?:\[([^]]*)\])?", text)
        of = re.search(r"\bextra\s*==\s*['\"]([^'\"]+)", text)
        assert m is not None
        plain = re.sub(r"[-_.]+", "-", m[1]).lower()
        yield plain, {x.strip() for x in (m[2] or "").split(",") if x.strip()}, of and of[1]


# ------------------------------------------------------------------------ writing


def _write(path: str, files: Iterable[tuple[str, Path]]) -> None:
    """Whole or not at all."""
    with tempfile.TemporaryDirectory(prefix=NEW, dir=os.path.dirname(path)) as scratch:
        new = os.path.join(scratch, "zip")
        with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as out:
            for name, file in files:
                _add(out, name, file.read_bytes())
                if name.endswith(".py") and (code := _compiled(name, file, scratch)) is not None:
                    _add(out, importlib.util.cache_from_source(name), code)
        os.replace(new, path)


def _add(out: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name)  # of 1980
    entry.external_attr = 0o644 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    out.writestr(entry, data)


def _compiled(name: str, file: Path, scratch: str) -> bytes | None:
    """A module's code, which is taken without a look at its source; None where that is no Python of this version."""
    target, mode = os.path.join(scratch, "code"), py_compile.PycInvalidationMode.UNCHECKED_HASH
    try:
        py_compile.compile(str(file), target, name, doraise=True, invalidation_mode=mode)
    except (py_compile.PyCompileError, ValueError):
        return None
    return Path(target).read_bytes()
