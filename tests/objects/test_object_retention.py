"""What topics keep, in an object store: what holds anywhere (`test_retention.py`), on a real server."""

from __future__ import annotations

import pytest

pytest.importorskip("obstore")

from braid.store import opened
from braid.topics.object_topic_store import ObjectTopicStore
from test_retention import (
    _folded_soon,
    test_a_reader_beside_it_at_every_step,
    test_of_each_key_the_last_record_stays,
    test_records_go_that_are_older,
    test_tombstones_stay_for_a_while,
    test_what_is_wanted_is_a_document_of_the_store,
)

__all__ = [
    "_folded_soon",
    "test_a_reader_beside_it_at_every_step",
    "test_of_each_key_the_last_record_stays",
    "test_records_go_that_are_older",
    "test_tombstones_stay_for_a_while",
    "test_what_is_wanted_is_a_document_of_the_store",
]

pytestmark = pytest.mark.objects


@pytest.fixture
def anywhere(place: str) -> ObjectTopicStore:
    return ObjectTopicStore(opened(place))
