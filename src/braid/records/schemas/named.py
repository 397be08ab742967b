"""The kinds of schemas.

In: what a registry calls the kind of a schema. Out: the `Kind`.
Rule: who reads and writes asks the kind, and not which one it is.
"""

from __future__ import annotations

from braid.records.schemas.avro import AvroKind
from braid.records.schemas.interface import Kind
from braid.records.schemas.json import JsonKind
from braid.records.schemas.protobuf import ProtobufKind

AVRO, JSON, PROTOBUF = AvroKind(), JsonKind(), ProtobufKind()
KINDS: dict[str, Kind] = {k.name: k for k in (AVRO, JSON, PROTOBUF)}
