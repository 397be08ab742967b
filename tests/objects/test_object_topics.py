"""Topics in an object store: what holds of topics anywhere (`test_topics.py`), and what only an object store has."""

from __future__ import annotations

import pytest

pytest.importorskip("obstore")

from braid.store import opened
from braid.topics.rooms import RoomStore
from test_topics import (  # noqa: F401
    test_a_reader_beside_a_writer_at_every_step,
    test_append_and_read,
    test_delete_and_create_again,
    test_long_segments_are_read_in_part,
    test_many_commits_are_folded,
    test_pieces_of_a_partition_follow_each_other,
)

pytestmark = pytest.mark.objects


@pytest.fixture
def anywhere(place: str) -> RoomStore:
    return RoomStore(opened(place))
