"""A NEXMark query by Flink SQL, in a process of its own: files in, files out, streaming mode.

In: the path of a document: SQL of the sources, of the sink, of the query, settings. Out: a line when the job is
submitted; the rows as JSON lines in the sink's folder.
Rule: nothing of Braid is imported, as Flink has an environment of its own. One process holds all of Flink.
"""

import json
import sys
import time


def main() -> None:
    began = time.monotonic()
    from pyflink.table import EnvironmentSettings, TableEnvironment

    with open(sys.argv[1], encoding="utf-8") as f:
        asked = json.load(f)
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in asked["settings"].items():
        env.get_config().set(name, value)
    for statement in asked["tables"]:
        env.execute_sql(statement)
    job = env.execute_sql(asked["insert"])
    print(json.dumps({"submitted": time.monotonic() - began}), flush=True)
    job.wait()


if __name__ == "__main__":
    main()
