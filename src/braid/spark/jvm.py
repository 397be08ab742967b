"""The JVM of a session: which Java it is, what its command line has, how it begins.

In: settings of a session, a file for its log. Out: a process, and the address at which PySpark reaches it.
Rule: it is told what Spark's own `spark-submit` makes of the settings, so what a user has in Spark's files holds. It
may begin while a command still reads its modules and its SQL; one that nobody asks for ends with the command.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyspark
from pyspark.find_spark_home import _find_spark_home

from braid.errors import BraidError

OLDEST_JAVA = 17

# What the JVM is told beside; log4j2.properties names the file that its log goes to. Its heap begins small and grows
# with need: what lives there are some 60 MB, and the heap it would take by itself is a share of the machine's memory.
# So does the room for classes: Spark's fill 120 MB, and each limit on the way there would cost a collection of all.
_JAVA_OPTIONS = ("-XX:+UseSerialGC", "-Xms192m", "-XX:NewSize=96m", "-XX:MetaspaceSize=192m")

# A class is looked for in one jar of Spark's after the other, of which there are 280, in the order in which the folder
# lists them: a tenth of a start. So these come first, by how many classes a query loads from each.
_JARS = (
    "spark-catalyst_",
    "scala-library",
    "spark-core_",
    "spark-sql_",
    "spark-sql-api_",
    "log4j-core",
    "jackson-databind",
    "hadoop-client-api",
    "spark-config_",
    "janino",
    "arrow-vector",
    "hadoop-client-runtime",
    "spark-network-common_",
    "netty-common",
    "ivy",
    "netty-transport",
    "jackson-module-scala",
    "jackson-core",
    "spark-common-utils_",
    "log4j-api",
    "netty-buffer",
)
CLASS_PATH = "spark.driver.extraClassPath"


TIER = "braid.jvm.tier"  # 4: Java's own choice; 1: its quick compiler alone
# For a JVM that only carries blobs: the thorough compiler would take a core for minutes and bring next to nothing.
CARRIER = {TIER: "1"}
JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def java_command() -> str:
    """The `java` that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return os.path.join(home, "bin", "java")
    return "java"


def java_version() -> int:
    """Java's major version; a `BraidError` in one line where it is missing or too old."""
    command = java_command()
    how = "install a JDK 17 or 21 (Debian: apt-get install openjdk-17-jre-headless) and set JAVA_HOME"
    if shutil.which(command) is None:
        place = f"JAVA_HOME is {os.environ['JAVA_HOME']}, but " if os.environ.get("JAVA_HOME") else ""
        raise BraidError(f"{place}there is no Java, and Spark needs it", how)
    found = _VERSION.search(_release(command) or _said(command))
    if found is None:
        raise BraidError(f"{command} does not say its version", how)
    major = int(found[2]) if found[1] == "1" and found[2] else int(found[1])
    if major < OLDEST_JAVA:
        raise BraidError(f"Java {major} is too old, Spark needs {OLDEST_JAVA} or later", how)
    return major


_VERSION = re.compile(r'version ?=? ?"(\d+)(?:\.(\d+))?', re.IGNORECASE)


def _release(command: str) -> str:
    """What a JDK's own file says of its version: starting it to ask takes a tenth of a second."""
    home = Path(os.path.realpath(shutil.which(command) or "")).parent.parent
    try:
        lines = (home / "release").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    return next((line for line in lines if line.startswith("JAVA_VERSION=")), "")


def _said(command: str) -> str:
    shown = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=False)
    return shown.stderr + shown.stdout


def told(users: Mapping[str, str], tier: str, log: str) -> dict[str, str]:
    """What its command line gets, beside what the user has for it, here or in spark-defaults.conf."""
    named = archived() if users.get(CLASS_PATH) in (None, defaults().get(CLASS_PATH)) else ""
    users = defaults() | dict(users)
    config = Path(__file__).with_name("log4j2.properties")
    options = [f"-Dlog4j2.configurationFile={config}", f"-Dbraid.log={log}", f"-XX:TieredStopAtLevel={tier}"]
    options += [*_JAVA_OPTIONS]
    if named:  # checked by the checksums in it, in a tenth of a second: a JVM dies of a byte that is wrong
        options += [f"-XX:SharedArchiveFile={named}", "-XX:+VerifySharedSpaces"]
    return {
        JAVA_OPTIONS: " ".join([*map(quoted, options), users.get(JAVA_OPTIONS, "")]).strip(),
        CLASS_PATH: _class_path(users),
    }


def _class_path(users: Mapping[str, str]) -> str:
    jars = Path(_find_spark_home(), "jars")
    first = [str(path) for name in _JARS for path in sorted(jars.glob(f"{name}*.jar"))]
    return os.pathsep.join([*filter(None, [users.get(CLASS_PATH)]), *first])


def quoted(option: str) -> str:
    """An option as Spark's launcher reads it: a path may have blanks."""
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'


ARCHIVES = "braid-classes"  # a folder of the Python environment


@functools.cache
def archive() -> str:
    """How the path of the archive begins that holds the classes a JVM loads for Braid (`face/quick_start.py`): beside
    their code. It follows from all that it is made of: the Java, and Spark's jars, their order, sizes and times. So
    one that has become stale is not there."""
    java = os.path.realpath(shutil.which(java_command()) or "")
    of = [java, _release(java), _class_path(defaults())]
    for path in [java, *sorted(map(str, Path(_find_spark_home(), "jars").glob("*.jar")))]:
        with contextlib.suppress(OSError):
            found = os.stat(path)
            of.append(f"{path} {found.st_size} {found.st_mtime_ns}")
    digest = hashlib.sha256("\n".join(of).encode(errors="surrogateescape")).hexdigest()
    return os.path.join(sys.prefix, ARCHIVES, f"spark-{pyspark.__version__}-{digest[:16]}")


def archive_of(size: int) -> str:
    """The path of the archive: its name ends with how large it is, in bytes."""
    return f"{archive()}-{size}.jsa"


def archived() -> str:
    """The archive, if it was made and nothing of it is cut off; else empty."""
    found = glob.glob(f"{glob.escape(archive())}-*.jsa")
    return next((path for path in found if path == archive_of(os.stat(path).st_size)), "")


def defaults() -> dict[str, str]:
    """The settings of spark-defaults.conf: a name, then blanks, `=` or `:`, then the value."""
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(_find_spark_home(), "conf")
    try:
        lines = Path(folder, "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    found = (re.match(r"\s*([^\s=:#!][^\s=:]*)\s*[=:\s]\s*(.*?)\s*$", line) for line in lines)
    return {m[1]: m[2] for m in found if m}


# ----------------------------------------------------------------------- start

_TOLD = "_PYSPARK_DRIVER_CONN_INFO_PATH"  # the file in which the JVM says where it listens
PORT, SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"  # where PySpark looks for a JVM that is there
LOOK = 0.02  # s between two looks


@dataclass(frozen=True, slots=True)
class Launched:
    """A JVM on its way; `folder`: where it says its address."""

    process: subprocess.Popen[bytes]
    folder: str

    def address(self) -> dict[str, str]:
        """What PySpark is told in its environment, when the JVM is there; ChildProcessError where it has ended."""
        path = Path(self.folder, "told")
        while self.process.poll() is None and not path.exists():
            time.sleep(LOOK)
        try:
            found = path.read_bytes()
        except FileNotFoundError:
            raise ChildProcessError("the JVM has ended before it was there") from None
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
        size = int.from_bytes(found[4:8], "big")
        return {PORT: str(int.from_bytes(found[:4], "big")), SECRET: found[8 : 8 + size].decode()}

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def launched(settings: Mapping[str, str], env: Mapping[str, str], log: str) -> Launched:
    """Starts the JVM, as PySpark would. What it says goes to the log; it ends when its standard input does; Ctrl-C is
    not for it."""
    words = [os.path.join(_find_spark_home(), "bin", "spark-submit")]
    words += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    words += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    folder = tempfile.mkdtemp(prefix="braid-jvm-")
    env = {**os.environ, **env, "SPARK_CONNECT_MODE": "0", _TOLD: os.path.join(folder, "told")}
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as target:
        process = subprocess.Popen(
            words,
            env=env,
            stdin=subprocess.PIPE,
            stdout=target,
            stderr=target,
            preexec_fn=_without_ctrl_c,  # noqa: PLW1509 (PySpark has it so)
        )
    return Launched(process, folder)


def _without_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
