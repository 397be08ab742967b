"""The Spark session: settings, Java, where the log goes, who may speak to its processes.

In: a master URL and the user's own settings. Out: a session that runs Braid's queries as fast as Spark can; lines for
`braid doctor`.
Rule: every setting of ours stands in `SETTINGS` with its reason (`braid doctor` shows them); the user's come last and
win. The terminal stays clean: what the JVM and its workers say goes to a file. On one node all stays on the loopback
address (`LOCAL_SETTINGS`). Between machines Spark authenticates and encrypts only where it is told to, so what it is
told is looked at; settings given on the command line go before those of spark-defaults.conf.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from braid.errors import BraidError
from braid.spark import warm
from braid.spark.private import own_folder, socket_folder

OLDEST_JAVA = 17
_helpers = contextlib.ExitStack()  # what lives as long as the session


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting and why it is made. `early`: only before the JVM starts."""

    key: str
    value: str
    reason: str
    early: bool = False


_STATE = "spark.sql.streaming.stateStore."
_FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_FILE_MANAGER_KEY = "spark.sql.streaming.checkpointFileManagerClass"

SETTINGS: tuple[Setting, ...] = (
    Setting(
        _STATE + "providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        "of `session.sql`: the only state store that keeps what Python stages write",
    ),
    Setting(
        _STATE + "rocksdb.changelogCheckpointing.enabled",
        "true",
        "the same: a batch commits its changes, not a copy of the state",
    ),
    Setting(_STATE + "rocksdb.trackTotalNumberOfRows", "false", "saves one read per write of state"),
    Setting(
        f"spark.hadoop.{_FILE_MANAGER_KEY}",
        _FILE_MANAGER,
        "the default starts about twenty processes per batch to write two small files",
        early=True,
    ),
    Setting("spark.python.unix.domain.socket.enabled", "true", "halves the way between the JVM and Python", early=True),
    Setting("spark.python.daemon.module", "braid.spark.daemon", "workers start with all modules imported", early=True),
    Setting("spark.sql.shuffle.partitions", "2", "each is a task and a commit of state; a query sets its own"),
    Setting("spark.sql.adaptive.enabled", "false", "buckets are spread on purpose; nothing may regroup them"),
    Setting("spark.sql.adaptive.streaming.stateless.enabled", "false", "the same, for queries without state"),
    Setting(
        "spark.sql.streaming.noDataMicroBatches.enabled", "false", "clocks are Braid's own; no batch without input"
    ),
    Setting(
        "spark.sql.streaming.pollingDelay",
        "50ms",
        "a query without input asks for some 20 times a second, not 100: each time costs its Python process a call",
    ),
    Setting("spark.sql.streaming.minBatchesToRetain", "20", "fewer files to list; enough to restart"),
    Setting(
        "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart",
        "false",
        "a driver that is killed while it writes batch 0 leaves a file, and the query would never start again",
    ),
    Setting("spark.sql.session.timeZone", "UTC", "times are milliseconds since 1970"),
    Setting("spark.ui.enabled", "false", "no web server for a local run", early=True),
    Setting(
        "spark.sql.ui.retainedExecutions",
        "50",
        "Spark keeps 1,000 batches for its web page, with or without the page: 10 to 20 MB, more with many tasks",
        early=True,
    ),
    Setting("spark.ui.retainedJobs", "50", "the same: their jobs", early=True),
    Setting("spark.ui.retainedStages", "100", "the same: their stages, each with its tasks", early=True),
    Setting("spark.driver.memory", "2g", "a batch of a million rows", early=True),
    Setting("spark.executorEnv.POLARS_MAX_THREADS", "1", "Spark's tasks are the parallelism", early=True),
)

# Beside these, where all tasks run on one node: nothing of Spark's is to be reached from another machine.
LOOPBACK = "127.0.0.1"
LOCAL_SETTINGS: tuple[Setting, ...] = (
    Setting("spark.driver.bindAddress", LOOPBACK, "no port is open to other machines", early=True),
    Setting("spark.driver.host", LOOPBACK, "the same: the address that this process tells its own parts", early=True),
)
_LOCAL_IP = "SPARK_LOCAL_IP"  # the address of Spark's web page, if a user asks for it: no setting names it

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
EXTENDING = ("spark.jars", "spark.jars.packages", "spark.sql.extensions")  # what a user extends a session by


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
        raise BraidError(f"{command} does not tell its version", how)
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


def session(
    master: str = "local[*]", conf: Mapping[str, str] | None = None, app: str = "braid", log: str | None = None
) -> SparkSession:
    """A session with the settings above, or the one this process has. `log`: the file for what Spark says."""
    refuse_connect(None)
    active = SparkSession.getActiveSession()
    if active is not None:
        prepare(active)
        return active
    java_version()
    log = log or default_log()
    os.makedirs(os.path.dirname(log), exist_ok=True)
    local = on_one_node(master)
    python = _helpers.enter_context(warm.start()) if local else sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = python
    os.environ["PYSPARK_PYTHON"] = workers_python(local, conf or {}) or python
    builder = SparkSession.builder.master(master).appName(app)
    wanted = {s.key: s.value for s in (*SETTINGS, *(LOCAL_SETTINGS if local else ()))}
    if local:
        wanted["spark.python.unix.domain.socket.dir"] = _helpers.enter_context(socket_folder())
    wanted |= conf or {}
    wanted |= of_the_jvm(wanted, wanted.pop(TIER, "4"), log)
    for name, value in wanted.items():
        builder = builder.config(name, value)
    with _told_to(log), _environment(_LOCAL_IP, LOOPBACK if local else None):
        context = SparkContext.getOrCreate(SparkConf().setMaster(master).setAppName(app).setAll(list(wanted.items())))
        if not any(context.getConf().contains(name) for name in EXTENDING):
            _made_plain(context)
        spark = builder.getOrCreate()
    prepare(spark)
    return spark


def of_the_jvm(users: Mapping[str, str], tier: str, log: str) -> dict[str, str]:
    """What its command line gets, beside what the user has for it, here or in spark-defaults.conf."""
    users = _defaults() | dict(users)
    config = Path(__file__).with_name("log4j2.properties")
    options = [f"-Dlog4j2.configurationFile={config}", f"-Dbraid.log={log}", f"-XX:TieredStopAtLevel={tier}"]
    options += [*_JAVA_OPTIONS, *([f"-XX:SharedArchiveFile={archive()}"] if os.path.exists(archive()) else [])]
    jars = Path(_find_spark_home(), "jars")
    first = [str(path) for name in _JARS for path in sorted(jars.glob(f"{name}*.jar"))]
    return {
        JAVA_OPTIONS: " ".join([*map(quoted, options), users.get(JAVA_OPTIONS, "")]).strip(),
        CLASS_PATH: os.pathsep.join([*filter(None, [users.get(CLASS_PATH)]), *first]),
    }


def _made_plain(context: SparkContext) -> None:
    """Makes the session of the JVM as Spark does, but does not ask each of Spark's jars whether it extends it. MLlib's
    does, with two functions for vectors, and loads Scala's reflection for them: a tenth of a start."""
    jvm: Any = context._jvm
    with contextlib.suppress(Exception):  # in another version it may be made otherwise: PySpark does it then
        none, nothing = (
            jvm.scala.Option.empty(),
            getattr(getattr(jvm, "scala.collection.immutable.Map$"), "MODULE$").empty(),
        )
        made, extensions = (
            jvm.org.apache.spark.sql.classic.SparkSession,
            jvm.org.apache.spark.sql.SparkSessionExtensions(),
        )
        made.setDefaultSession(made(context._jsc.sc(), none, none, extensions, nothing, nothing))


def refuse_connect(spark: Any) -> None:
    """Tasks of ours are written in the driver's process, which Spark Connect does not share with its clients."""
    asked = spark is None and not running() and "SPARK_REMOTE" in os.environ
    if asked or type(spark).__module__.startswith("pyspark.sql.connect"):
        hint = "give a session of SparkSession.builder.master(…), and unset SPARK_REMOTE"
        raise BraidError("Braid does not run over Spark Connect", hint)


def workers_python(local: bool, conf: Mapping[str, str]) -> str | None:
    """The Python that the user names for tasks. That of the environment is one of this machine's shells: where all
    tasks run here, it would be another one than ours, which has Braid."""
    named = (_defaults() | dict(conf)).get("spark.pyspark.python")
    return named or (None if local else os.environ.get("PYSPARK_PYTHON"))


def quoted(option: str) -> str:
    """An option as Spark's launcher reads it: a path may have blanks."""
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'


def on_one_node(master: str) -> bool:
    """Whether all tasks run on the driver's node."""
    return re.match(r"local(\[|$)", master) is not None


def archive() -> str:
    """Where the classes of a quick start lie, if they were made (`doctor.quick_start`): beside their code."""
    return os.path.join(sys.prefix, f"braid-spark-{pyspark.__version__}.jsa")


def running() -> bool:
    """Whether this process has a session."""
    return SparkSession.getActiveSession() is not None


def quiet(spark: SparkSession) -> None:
    """What PySpark and Py4J would print of a JVM that dies goes to the log, for all of this process's life."""
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(logging.FileHandler(default_log(), delay=True))
    server = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: logging.exception("the JVM no longer answers")


def jvm_gone(patience: float = 2.0) -> bool:
    """Whether the JVM that this process started has ended."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return False
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    return process.poll() is not None


def jvm_lost() -> str:
    """What the user is told of that."""
    return f"Spark's JVM has ended, killed or out of memory; its log is {default_log()}"


def end(spark: SparkSession, patience: float = 20.0) -> None:
    """Ends the session and the JVM that this process started for it, which may take some seconds."""
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    with contextlib.suppress(Exception):
        spark.stop()
        gateway.shutdown()
    if process is None:
        _helpers.close()
        return
    SparkContext._gateway = SparkContext._jvm = None
    SparkContext._active_spark_context = None  # a JVM that has died leaves these
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    with contextlib.suppress(OSError):
        process.stdin.close()  # it ends when its input does
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
    _helpers.close()


def joined(spark: SparkSession | None, conf: Mapping[str, str] | None) -> SparkSession:
    """A session that is not ours, with the least change; what that is stands in one line on stderr."""
    refuse_connect(spark)
    taken = spark if spark is not None else SparkSession.getActiveSession()
    assert taken is not None
    if taken.sparkContext.environment.get("POLARS_MAX_THREADS") != "1":
        text = f"braid: runs in the Spark session {taken.sparkContext.appName} ({taken.sparkContext.master})"
        text += ", whose Python workers get POLARS_MAX_THREADS=1"
        text += f" and are {sys.executable}" if _other_python(taken.sparkContext) else ""
        print(f"{text}; conf is not applied" if conf else text, file=sys.stderr)
    prepare(taken)
    return taken


def prepare(spark: SparkSession) -> None:
    """What a session that the user gave us still takes for good. The rest is set around each start of a query."""
    context = spark.sparkContext
    context.environment["POLARS_MAX_THREADS"] = "1"
    if _other_python(context):
        context.pythonExec = sys.executable
    context._jsc.hadoopConfiguration().set(_FILE_MANAGER_KEY, _FILE_MANAGER)


def _other_python(context: SparkContext) -> bool:
    """Would its Python workers be another Python of this machine than ours, though the user named none? Spark takes the
    first `python3` it finds; where a virtual environment is not activated, that is one without Braid."""
    if "PYSPARK_PYTHON" in os.environ or not on_one_node(context.master):
        return False
    return shutil.which(str(context.pythonExec)) != sys.executable


def keep_state(spark: SparkSession) -> None:
    """For a query that the user starts: where it keeps its state."""
    for setting in SETTINGS:
        if setting.key.startswith(_STATE):
            spark.conf.set(setting.key, setting.value)


_starting = threading.Lock()


@contextlib.contextmanager
def settings_of_a_query(spark: SparkSession, tasks: int) -> Iterator[None]:
    """A query takes a copy of the session's settings when it starts; within this block they are Braid's."""
    wanted = {s.key: s.value for s in SETTINGS if not s.early} | {"spark.sql.shuffle.partitions": str(tasks)}
    with _starting, changed(spark, wanted):
        yield


@contextlib.contextmanager
def changed(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """The session with these settings; afterwards as it was."""
    before = {key: spark.conf.get(key, None) for key in wanted}
    try:
        for key, value in wanted.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


def default_log() -> str:
    """A file of this process, in a folder of this user."""
    return os.path.join(own_folder("log"), f"spark-{os.getpid()}.log")


@contextlib.contextmanager
def _environment(name: str, value: str | None) -> Iterator[None]:
    """A variable for what is started meanwhile, where there is a value and the user has given none."""
    if value is None or name in os.environ:
        yield
        return
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


@contextlib.contextmanager
def _told_to(path: str) -> Iterator[None]:
    """What a process started meanwhile inherits as its standard output and error."""
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    kept = {1: os.dup(1), 2: os.dup(2)}
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        for fd in kept:
            os.dup2(target, fd)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for fd, own in kept.items():
            os.dup2(own, fd)
            os.close(own)
        os.close(target)


# -------------------------------------------------------------------- channels


@dataclass(frozen=True, slots=True)
class Wanted:
    """One of `ways` (setting and value) keeps others from `what`. The first is what we advise."""

    what: str
    ways: tuple[tuple[str, str], ...]


WANTED = (
    Wanted("anybody who reaches a port may give Spark work to do", (("spark.authenticate", "true"),)),
    Wanted(
        "records can be read and changed on the network",
        (("spark.network.crypto.enabled", "true"), ("spark.ssl.rpc.enabled", "true")),
    ),
    Wanted("records lie open in Spark's temporary files", (("spark.io.encryption.enabled", "true"),)),
    Wanted("Spark's web page is open to all", (("spark.ui.enabled", "false"), ("spark.acls.enable", "true"))),
)


def examined_channels(master: str, conf: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    """A line a channel, and whether it is safe."""
    if on_one_node(master):
        yield "ok    Spark's ports are open to this machine only", True
        return
    known = {s.key: s.value for s in SETTINGS} | _defaults() | dict(conf)
    for wanted in WANTED:
        found = next((f"{k}={v}" for k, v in wanted.ways if known.get(k, "").strip().lower() == v), None)
        if found is not None:
            yield f"ok    {master}: {found}", True
        else:
            key, value = wanted.ways[0]
            yield f"miss  {master}: {wanted.what}: --conf {key}={value} (docs/security.md)", False


def _defaults() -> dict[str, str]:
    """The settings of spark-defaults.conf: a name, then blanks, `=` or `:`, then the value."""
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(_find_spark_home(), "conf")
    try:
        lines = Path(folder, "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    found = (re.match(r"\s*([^\s=:#!][^\s=:]*)\s*[=:\s]\s*(.*?)\s*$", line) for line in lines)
    return {m[1]: m[2] for m in found if m}
