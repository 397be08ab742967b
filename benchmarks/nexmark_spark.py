"""A NEXMark query by Spark's own joins of streams, as a user would write it: files in, files out.

In: the path of a document: the sources' columns and folders, the query, settings. Out: a line when the query is
started; the rows as JSON lines in the sink's folder.
Rule: nothing of Braid is imported. All there is has been read when it ends; what then still waits for a watermark is
not written, as Spark has no way to say that nothing follows.
"""

import json
import sys
import time


def main() -> None:
    began = time.monotonic()
    from pyspark.sql import SparkSession

    with open(sys.argv[1], encoding="utf-8") as f:
        asked = json.load(f)
    builder = SparkSession.builder.master("local[2]")
    for name, value in asked["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for name, (folder, columns) in asked["sources"].items():
        rows = spark.readStream.schema(columns).json(folder)
        rows.withWatermark("date_time", "5 seconds").createOrReplaceTempView(name)
    out = spark.sql(asked["query"]).writeStream.format("json").outputMode("append")
    out = out.option("path", asked["sink"]).option("checkpointLocation", asked["checkpoint"])
    query = out.trigger(availableNow=True).start()
    print(json.dumps({"submitted": time.monotonic() - began}), flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main()
