"""Delta tables as other writers make them: columns by physical names, rows that deletion vectors leave out.

In: rows, how columns are mapped, which rows are deleted. Out: a table of Delta's, whose log is written by hand: the
library that we use makes neither.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

NAMES = {pa.int32(): "integer", pa.int64(): "long", pa.string(): "string", pa.float64(): "double"}
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


class Mapped:
    """A table in a folder; `mode`: `name`, `id` or none. Each column and field has a number and a physical name."""

    def __init__(self, folder: Path, schema: pa.Schema, mode: str | None, partition: str | None = None,
                 vectors: bool = False, agree: bool = False) -> None:  # fmt: skip
        """`agree`: files have the physical names where columns are mapped by number, too."""
        self.agree = agree
        self.folder, self.schema, self.mode, self.partition = folder, schema, mode, partition
        self._number, self._version = 0, -1
        self.physical: dict[str, str] = {}
        (folder / "_delta_log").mkdir(parents=True)
        features = ["columnMapping"] * (mode is not None) + ["deletionVectors"] * vectors
        protocol: dict[str, Any] = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features,
                                    "writerFeatures": features}  # fmt: skip
        if mode is not None and not vectors:
            protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
        fields = [self._field(f, "") for f in schema]
        configuration = {} if mode is None else {"delta.columnMapping.mode": mode,
                                                 "delta.columnMapping.maxColumnId": str(self._number)}  # fmt: skip
        configuration |= {"delta.enableDeletionVectors": "true"} if vectors else {}
        self.metadata = {
            "id": "00000000-0000-0000-0000-000000000001", "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": [partition] if partition else [], "configuration": configuration, "createdTime": 0,
        }  # fmt: skip
        self.commit({"protocol": protocol}, {"metaData": self.metadata})

    def _field(self, f: pa.Field, path: str) -> dict[str, Any]:
        self._number += 1
        number, own = self._number, f"{path}{f.name}"
        self.physical[own] = f"col-{number:04}"
        known = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": self.physical[own]}
        made: Any = NAMES.get(f.type)
        if pa.types.is_struct(f.type):
            made = {"type": "struct", "fields": [self._field(x, f"{own}.") for x in f.type]}
        elif pa.types.is_list(f.type):
            inside = f.type.value_type
            element: Any = NAMES.get(inside)
            if pa.types.is_struct(inside):
                element = {"type": "struct", "fields": [self._field(x, f"{own}.element.") for x in inside]}
            made = {"type": "array", "elementType": element, "containsNull": True}
        return {"name": f.name, "type": made, "nullable": True, "metadata": {} if self.mode is None else known}

    def _there(self, f: pa.Field, path: str) -> pa.Field:
        """A field as the file has it."""
        own, t = f"{path}{f.name}", f.type
        if pa.types.is_struct(t):
            t = pa.struct([self._there(x, f"{own}.") for x in t])
        elif pa.types.is_list(t) and pa.types.is_struct(t.value_type):
            t = pa.list_(pa.struct([self._there(x, f"{own}.element.") for x in t.value_type]))
        number = int(self.physical[own][4:])
        name = {"name": self.physical[own], "id": self.physical[own] if self.agree else f"any-{number}"}.get(
            self.mode or "", f.name
        )
        return pa.field(name, t, metadata={"PARQUET:field_id": str(number)} if self.mode else None)

    def add(self, rows: Sequence[Mapping[str, Any]], deleted: Sequence[int] = (), value: str | None = None) -> None:
        """A file of rows, of which some are deleted; `value`: that of the partition's column."""
        kept = pa.schema([f for f in self.schema if f.name != self.partition])
        table = pa.Table.from_pylist([{n: r.get(n) for n in kept.names} for r in rows], kept)
        there = pa.schema([self._there(f, "") for f in kept])
        arrays = [pa.array(_renamed(c.to_pylist(), f.type, t.type), t.type)
                  for c, f, t in zip(table.columns, kept, there, strict=True)]  # fmt: skip
        name = f"part-{self._version + 1}.parquet"
        pq.write_table(pa.Table.from_arrays(arrays, schema=there), self.folder / name)
        add: dict[str, Any] = {"path": name, "partitionValues": {}, "size": (self.folder / name).stat().st_size,
                               "modificationTime": 0, "dataChange": True,
                               "stats": json.dumps({"numRecords": len(rows)})}  # fmt: skip
        if self.partition:
            own = self.physical[self.partition] if self.mode else self.partition
            add["partitionValues"] = {own: value}
        if deleted:
            add["deletionVector"] = vector(deleted)
        self.commit({"add": add})

    def commit(self, *actions: Mapping[str, Any]) -> None:
        self._version += 1
        lines = "".join(json.dumps(a) + "\n" for a in actions)
        (self.folder / "_delta_log" / f"{self._version:020}.json").write_text(lines)


def _renamed(values: list[Any], was: pa.DataType, now: pa.DataType) -> list[Any]:
    if pa.types.is_list(was):
        return [None if v is None else _renamed(v, was.value_type, now.value_type) for v in values]
    if not pa.types.is_struct(was):
        return values
    return [
        None if v is None else {n.name: _renamed([v[w.name]], w.type, n.type)[0] for w, n in zip(was, now, strict=True)}
        for v in values
    ]


def vector(deleted: Sequence[int]) -> dict[str, Any]:
    """A deletion vector that stands in the log itself: a bitmap of one container."""
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(deleted) - 1, 16) + b"".join(struct.pack("<H", n) for n in deleted)
    data = struct.pack("<iQI", 1681511377, 1, 0) + bitmap
    padded = data + b"\0" * (-len(data) % 4)
    text = ""
    for (word,) in struct.iter_unpack(">I", padded):
        text += "".join(_Z85[word // 85**k % 85] for k in (4, 3, 2, 1, 0))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": len(deleted)}
