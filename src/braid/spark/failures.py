"""Why a query died: what Spark says of it, in a line for users; and whether it is to be started again.

In: Spark's account, Spark's handle of a query. Out: a reason, a hint; what passes by itself.
Rule: an error of a user's, or of ours, is never one that passes, whatever else stands in the account.
"""

from __future__ import annotations

import re
from typing import Any

from braid.records.registry import RegistryAway
from braid.topics.broker import BrokerAway, NotReady

HINT = "Spark's log has more"
TOO_SLOW = "Python worker failed to connect back"  # Spark gives it ten seconds
OF_A_TASK = ("braid.errors.", "PythonException")  # an error of a user's, or of ours
LOST = re.compile(  # what Spark says when it gives a batch up that lost machines, not because a task failed
    "ExecutorLostFailure|FetchFailed|maximum allowable (number of times|total stage)|has to fail this job"
    "|[Rr]ollback (failed|a running result|completed result)"
)
WORKER_GONE = "Python worker exited unexpectedly"


def reason(text: str) -> str:
    """The cause in Spark's account of a failure: the last line of the Python error, or the JVM's innermost message."""
    if WORKER_GONE in text:
        return "a Python process of Spark has ended, killed or out of memory"
    lines = [re.sub(r"^(: |Caused by: )", "", line.strip()) for line in text.splitlines() if line.strip()]
    errors = [x for x in lines if re.match(r"^(([\w.]+\.)?\w*(Error|Exception|Interrupt)|braid\.[\w.]+)(: |$)", x)]
    python = [x for x in errors if not x.startswith(("org.", "java.", "py4j.", "pyspark.errors"))]
    jvm = [x for x in errors if x.startswith(("org.", "java.")) and ": " in x]
    chosen = (python or jvm or lines[:1] or ["no reason given"])[-1]
    return re.sub(r"^braid\.[\w.]+: ", "", chosen)


def advice(text: str) -> str:
    """The hint in Spark's account of a failure, if the error was one of ours."""
    hints = [line.strip().removeprefix("hint: ") for line in text.splitlines() if line.strip().startswith("hint: ")]
    return hints[-1] if hints and WORKER_GONE not in text else HINT


def was_away(handle: Any) -> bool:
    """Whether the query died of a broker, or a registry, that did not answer."""
    why = str(handle.exception() or "") if not handle.isActive else ""
    return any(kind.__name__ in why for kind in (BrokerAway, NotReady, RegistryAway))


def of_spark(handle: Any) -> str | None:
    """Why a query died that nobody's error ended: a Python process that was not up in time, machines that went."""
    why = str(handle.exception() or "") if not handle.isActive else ""
    if TOO_SLOW in why:
        return "a Python process was not up in time"
    lost = LOST.search(why) is not None and not any(x in why for x in OF_A_TASK)
    return "Spark has lost executors, and gave the batch up" if lost else None
