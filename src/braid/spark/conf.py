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
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from braid import allocator
from braid.errors import BraidError
from braid.spark import jvm, warm, worker_env
from braid.spark.private import own_folder, socket_folder

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
    Setting("spark.python.daemon.module", worker_env.DAEMON, "workers start with all modules imported", early=True),
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
    Setting(
        f"spark.executorEnv.{allocator.NAME}",
        allocator.KEPT,
        "a batch takes the memory that the last one had; by itself Polars gives it back between them",
        early=True,
    ),
)

# Beside these, of a query whose checkpoint of Spark's is scratch (`scratch.py`).
SCRATCH_SETTINGS: tuple[Setting, ...] = (
    Setting(
        "fs.file.impl",
        "org.apache.hadoop.fs.RawLocalFileSystem",
        "no file of checksums beside each of Spark's logs: a batch starts two processes (chmod), not four",
    ),
    Setting("fs.file.impl.disable.cache", "true", "the same, for this query only: state stores need the usual one"),
)

# Beside these, where all tasks run on one node: nothing of Spark's is to be reached from another machine.
LOOPBACK = "127.0.0.1"
LOCAL_SETTINGS: tuple[Setting, ...] = (
    Setting("spark.driver.bindAddress", LOOPBACK, "no port is open to other machines", early=True),
    Setting("spark.driver.host", LOOPBACK, "the same: the address that this process gives its own parts", early=True),
)
_LOCAL_IP = "SPARK_LOCAL_IP"  # the address of Spark's web page, if a user asks for it: no setting names it

APP = "braid"
EXTENDING = ("spark.jars", "spark.jars.packages", "spark.sql.extensions")  # what a user extends a session by


def session(
    master: str = "local[*]", conf: Mapping[str, str] | None = None, app: str = APP, log: str | None = None
) -> SparkSession:
    """A session with the settings above, or the one this process has. `log`: the file for what Spark says."""
    refuse_connect(None)
    active = SparkSession.getActiveSession()
    if active is not None:
        prepare(active)
        return active
    begun = _taken(master, conf or {}, app, log) or _begun(master, conf or {}, app, log)
    if begun.forks is not None:
        begun.forks.begin()
    builder = SparkSession.builder.master(master).appName(app)
    for name, value in begun.settings.items():
        builder = builder.config(name, value)
    address = begun.address()
    with _told_to(begun.log), _environment(address):
        context = SparkContext.getOrCreate(SparkConf().setAll(list(begun.settings.items())))
        if begun.jvm is not None:
            context._gateway.proc = begun.jvm.process
        carries = jvm.CARRIER.items() <= (conf or {}).items()
        if carries and not any(context.getConf().contains(name) for name in EXTENDING):
            _made_plain(context)
        spark = builder.getOrCreate()
    prepare(spark)
    return spark


@dataclass(frozen=True, slots=True)
class _Begun:
    """A session on its way: what was asked for, its settings, its log, its Python, where that is ours, and its JVM
    (None: this process has one)."""

    asked: tuple[object, ...]
    settings: Mapping[str, str]
    log: str
    forks: warm.Forks | None
    jvm: jvm.Launched | None

    def address(self) -> dict[str, str]:
        try:
            return {} if self.jvm is None else self.jvm.address()
        except ChildProcessError:
            hint = f"check --master and --conf; the log is {self.log}"
            raise BraidError("Spark does not start: its JVM has ended at once", hint) from None


_early: list[_Begun] = []  # one at most


def begin(master: str, conf: Mapping[str, str]) -> None:
    """Lets the JVM begin of the session that will be asked for in the same words; `abandon` ends it. Where something is
    wrong, the session says it."""
    if not running():
        with contextlib.suppress(BraidError, OSError):
            _early.append(_begun(master, conf, APP, None))


def abandon() -> None:
    """Ends a JVM that has begun and that no session has taken."""
    while _early:
        begun = _early.pop()
        if begun.jvm is not None:
            begun.jvm.kill()
        _helpers.close()


def _taken(*asked: object) -> _Begun | None:
    if _early and _early[0].asked == asked:
        return _early.pop()
    abandon()
    return None


def _begun(master: str, conf: Mapping[str, str], app: str, log: str | None) -> _Begun:
    asked = (master, conf, app, log)
    jvm.java_version()
    log = log or default_log()
    os.makedirs(os.path.dirname(log), exist_ok=True)
    local = on_one_node(master)
    forks = _helpers.enter_context(warm.start()) if local else None
    python = sys.executable if forks is None else forks.program
    os.environ["PYSPARK_DRIVER_PYTHON"] = python
    os.environ["PYSPARK_PYTHON"] = workers_python(local, conf) or python
    wanted = {s.key: s.value for s in (*SETTINGS, *(LOCAL_SETTINGS if local else ()))}
    if not local:
        worker_env.named_here()
    else:
        wanted["spark.python.unix.domain.socket.dir"] = _helpers.enter_context(socket_folder())
    wanted |= {"spark.master": master, "spark.app.name": app, **conf}
    wanted |= jvm.told(wanted, wanted.pop(jvm.TIER, "4"), log)
    if SparkContext._gateway is not None or jvm.PORT in os.environ:
        return _Begun(asked, wanted, log, forks, None)
    own = {_LOCAL_IP: LOOPBACK} if local and _LOCAL_IP not in os.environ else {}
    return _Begun(asked, wanted, log, forks, jvm.launched(wanted, own, log))


def _made_plain(context: SparkContext) -> None:
    """Makes the session of a JVM that only carries blobs as Spark does, but does not ask each of Spark's jars whether
    it extends it. MLlib's does, by two functions for vectors, and loads Scala's reflection for them: a tenth of a
    start."""
    there: Any = context._jvm
    sql = there.org.apache.spark.sql
    with contextlib.suppress(Exception):  # in another version it may be made otherwise: PySpark does it then
        none = there.scala.Option.empty()
        nothing = getattr(getattr(there, "scala.collection.immutable.Map$"), "MODULE$").empty()
        made = sql.classic.SparkSession(context._jsc.sc(), none, none, sql.SparkSessionExtensions(), nothing, nothing)
        sql.classic.SparkSession.setDefaultSession(made)


def refuse_connect(spark: Any) -> None:
    """Tasks of ours are written in the driver's process, which Spark Connect does not share with its clients."""
    asked = spark is None and not running() and "SPARK_REMOTE" in os.environ
    if asked or type(spark).__module__.startswith("pyspark.sql.connect"):
        hint = "give a session of SparkSession.builder.master(…), and unset SPARK_REMOTE"
        raise BraidError("Braid does not run over Spark Connect", hint)


def workers_python(local: bool, conf: Mapping[str, str]) -> str | None:
    """The Python that the user names for tasks. That of the environment is one of this machine's shells: where all
    tasks run here, it would be another one than ours, which has Braid."""
    named = (jvm.defaults() | dict(conf)).get("spark.pyspark.python")
    return named or (None if local else os.environ.get("PYSPARK_PYTHON"))


def on_one_node(master: str) -> bool:
    """Whether all tasks run on the driver's node."""
    return re.match(r"local(\[|$)", master) is not None


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
        _stop_accumulators(spark.sparkContext)
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


def _stop_accumulators(context: SparkContext) -> None:
    """PySpark would wait for this thread of its own, which looks once a second whether it is to end. If the JVM is
    faster, the thread shows an end of its input that is nobody's error."""
    server: Any = getattr(context, "_accumulatorServer", None)
    if server is not None:
        context._accumulatorServer = None
        server.handle_error = lambda *_: None
        threading.Thread(target=server.shutdown, name="end of accumulators", daemon=True).start()


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
def settings_of_a_query(spark: SparkSession, tasks: int, scratch: bool) -> Iterator[None]:
    """A query takes a copy of the session's settings when it starts; within this block they are Braid's. `scratch`: its
    checkpoint is."""
    made = [s for s in SETTINGS if not s.early] + list(SCRATCH_SETTINGS) * scratch
    wanted = {s.key: s.value for s in made} | {"spark.sql.shuffle.partitions": str(tasks)}
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
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Variables of this process for a while."""
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            del os.environ[name]


@contextlib.contextmanager
def _told_to(path: str) -> Iterator[None]:
    """Where what is said on standard output and error goes meanwhile."""
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
    known = {s.key: s.value for s in SETTINGS} | jvm.defaults() | dict(conf)
    for wanted in WANTED:
        found = next((f"{k}={v}" for k, v in wanted.ways if known.get(k, "").strip().lower() == v), None)
        if found is not None:
            yield f"ok    {master}: {found}", True
        else:
            key, value = wanted.ways[0]
            yield f"miss  {master}: {wanted.what}: --conf {key}={value} (docs/security.md)", False
