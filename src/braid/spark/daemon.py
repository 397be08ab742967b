"""The process that Spark forks its Python workers from, with what every worker needs already imported.

In: Spark's call. Out: workers that are ready at once: a query needs half a dozen, and each would import for a second.
Rule: imports only, of libraries that the driver has sent where there are none (`unpacking`). No thread pool may start
before a fork: Polars and Arrow start theirs when first used, OpenBLAS is kept to one thread. (The setting
`spark.python.daemon.module` = `pyspark.daemon` does without.)
"""

from __future__ import annotations

import importlib
import os
import sys

from pyspark import daemon

from braid.spark import unpacking

NEEDED = (
    "pandas",  # PySpark's worker asks for it
    "pyspark.sql.conversion",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.streaming.stateful_processor_api_client",
    "pyspark.sql.worker.plan_data_source_read",
    "braid.spark.source",
    "braid.spark.writer",
)


def main() -> None:
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    unpacking.added()
    if sys.argv[1:2] == ["pyspark.worker"]:  # others look up a data source, once a query
        for module in ("pyspark.worker", *NEEDED):
            importlib.import_module(module)
    daemon.manager()


if __name__ == "__main__":
    main()
