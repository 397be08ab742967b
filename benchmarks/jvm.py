"""What a JVM keeps: its live heap, and each kind of memory beside the heap.

In: a Spark session. Out: one number a measure, from the JVM's own beans and from /proc/PID/smaps.
Rule: a heap takes what it may before it collects, so its resident memory tells nothing about a leak. What tells is the
heap in use right after a full collection (`live_mb`), and what is resident outside of the heap (`native_mb`). All of
it together has a bound (`jvm_bound_mb`), whatever it does below.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

# Its beans are called by name from Python; Java must let that happen. For the session's Java options.
OPTIONS = " ".join(
    f"--add-opens={package}=ALL-UNNAMED"
    for package in ("java.management/sun.management", "java.management/com.sun.jmx.mbeanserver")
)
MB = 1e6
CLEANING = 0.5  # s
STACK = 1.05  # MB: Java's own limit, of which a thread touches a tenth
OWN = 256.0  # MB: mapped jars, tables of the collector and of symbols, the compiler, the allocator's reserve


class Jvm:
    """The JVM of a session that was started with `OPTIONS`."""

    def __init__(self, spark: Any) -> None:
        self._jvm, self._gateway = spark.sparkContext._jvm, spark.sparkContext._gateway
        java = self._jvm.java.lang
        factory = java.management.ManagementFactory
        self._memory, self._threads = factory.getMemoryMXBean(), factory.getThreadMXBean()
        self._loading = factory.getClassLoadingMXBean()
        self._pools = {pool.getName(): pool for pool in factory.getMemoryPoolMXBeans()}
        buffers = java.Class.forName("java.lang.management.BufferPoolMXBean")
        self._buffers = list(factory.getPlatformMXBeans(buffers))
        self._exit_files = java.Class.forName("java.io.DeleteOnExitHook").getDeclaredField("files")
        self._exit_files.setAccessible(True)
        self._server = factory.getPlatformMBeanServer()
        self._commands = self._jvm.javax.management.ObjectName("com.sun.management:type=DiagnosticCommand")
        self.pid = int(java.ProcessHandle.current().pid())
        self._heap_limit = self._memory.getHeapMemoryUsage().getMax() / MB
        ends = [int(x, 16) for x in re.findall(r"0x[0-9a-f]+", self._command("gcHeapInfo").split("Metaspace")[0])]
        self._heap = (min(ends), max(ends))

    def _command(self, name: str) -> str:
        """What `jcmd` would say."""
        new, java = self._gateway.new_array, self._jvm.java.lang
        arguments, kinds = new(java.Object, 1), new(java.String, 1)
        arguments[0], kinds[0] = new(java.String, 0), "[Ljava.lang.String;"
        return str(self._server.invoke(self._commands, name, arguments, kinds))

    def histogram(self) -> str:
        """Instances and bytes of each class that live after a full collection, the largest first."""
        return self._command("gcClassHistogram")

    def live_mb(self) -> float:
        """The heap in use after a full collection, the less of two: what the first finds unused, such as blocks of past
        batches, Spark's cleaner gives up for the second, and one is put off while native code holds an array."""
        used = []
        for pause in (CLEANING, 0.0):
            self._jvm.java.lang.System.gc()
            used.append(self._memory.getHeapMemoryUsage().getUsed() / MB)
            time.sleep(pause)
        return min(used)

    def now(self) -> dict[str, float]:
        """All that may be looked at often."""
        heap, native = resident(Path(f"/proc/{self.pid}/smaps").read_text(), *self._heap)
        code = [pool for name, pool in self._pools.items() if name.startswith(("CodeHeap", "CodeCache"))]
        beside = {
            "metaspace_mb": self._pools["Metaspace"].getUsage().getUsed() / MB,
            "code_mb": sum(pool.getUsage().getUsed() for pool in code) / MB,
            "direct_mb": sum(b.getMemoryUsed() for b in self._buffers if b.getName() == "direct") / MB,
        }
        threads = self._threads.getThreadCount()
        return beside | {
            "heap_mb": heap / MB,
            "native_mb": native / MB,
            "classes": self._loading.getLoadedClassCount(),
            "classes_ever": self._loading.getTotalLoadedClassCount(),
            "threads": threads,
            "exit_files": self._exit_files.get(None).size(),  # paths to delete when it ends: none is taken back before
            "jvm_bound_mb": self._heap_limit + sum(beside.values()) + threads * STACK + OWN,
        }


def resident(smaps: str, begin: int, end: int) -> tuple[int, int]:
    """Anonymous resident bytes (within the addresses of the heap, elsewhere)."""
    inside = outside = 0
    here = False
    for line in smaps.splitlines():
        if place := re.match(r"([0-9a-f]+)-[0-9a-f]+ ", line):
            here = begin <= int(place[1], 16) < end
        elif line.startswith("Anonymous:"):
            size = int(line.split()[1]) * 1024
            inside, outside = (inside + size, outside) if here else (inside, outside + size)
    return inside, outside
