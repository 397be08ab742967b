"""The schema registry of the tests itself: what tests rely on, shown once.

In: the shared registry, and one of its own. Out: ids, versions, references, refusals are as Confluent's.
Rule: nothing of Braid is used here.
"""

from __future__ import annotations

import json
from urllib.error import HTTPError

import pytest

from kafka.clients import fresh
from kafka.registry import Registry

pytestmark = pytest.mark.kafka


def record(*fields: dict[str, object]) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": list(fields)})


A = {"name": "a", "type": "int"}
B = {"name": "b", "type": ["null", "string"], "default": None}
C = {"name": "c", "type": "string"}


def test_a_schema_has_an_id_and_a_subject_versions(registry: Registry) -> None:
    subject = fresh() + "-value"
    first, second = registry.register(subject, record(A)), registry.register(subject, record(A, B))
    assert first != second
    assert registry.register(subject, record(A)) == first
    assert (registry.latest(subject)["id"], registry.latest(subject)["version"]) == (second, 2)
    assert json.loads(registry.schema(first)["schema"]) == json.loads(record(A))


def test_an_incompatible_schema_is_refused_where_that_is_asked_for(registry: Registry) -> None:
    subject = fresh() + "-value"
    registry.register(subject, record(A))
    registry.compatibility(subject, "BACKWARD")
    registry.register(subject, record(A, B))
    with pytest.raises(HTTPError) as failure:
        registry.register(subject, record(A, B, C))  # no default: old records have no c
    assert failure.value.code == 409


def test_what_is_missing_is_told_by_confluents_codes(registry: Registry) -> None:
    for path, code in ((f"/subjects/{fresh()}/versions/latest", 40401), ("/schemas/ids/999999999", 40403)):
        with pytest.raises(HTTPError) as failure:
            registry.call("GET", path)
        assert (failure.value.code, json.loads(failure.value.read())["error_code"]) == (404, code)


def test_protobuf_and_json_schemas_and_references(registry: Registry) -> None:
    other, name = fresh() + ".proto", fresh()
    registry.register(other, 'syntax = "proto3"; message Other { int32 x = 1; }', "PROTOBUF")
    text = f'syntax = "proto3"; import "{other}"; message M {{ Other o = 1; }}'
    id = registry.register(name, text, "PROTOBUF", [{"name": other, "subject": other, "version": 1}])
    found = registry.schema(id)
    assert (found["schemaType"], found["references"][0]["subject"]) == ("PROTOBUF", other)
    id = registry.register(fresh(), '{"type":"object","properties":{"a":{"type":"integer"}}}', "JSON")
    assert registry.schema(id)["schemaType"] == "JSON"


def test_a_registry_of_ones_own_is_empty_again_after_a_kill(fresh_registry: Registry) -> None:
    fresh_registry.register("s", record(A))
    fresh_registry.kill()
    fresh_registry.start()
    assert fresh_registry.call("GET", "/subjects") == []
