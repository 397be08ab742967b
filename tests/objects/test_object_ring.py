"""`metrics.ring` in an object store: an object a minute."""

from __future__ import annotations

import pytest

pytest.importorskip("obstore")

from braid.stage.ring import FOLDER, Ring, read
from braid.store import opened
from objects.faulty import Faulty
from test_ring import Clock, document, silent

URL = "s3://memory/p/checkpoints/Q"


def test_an_object_a_minute(memory: Faulty) -> None:
    clock, place = Clock(), opened(URL)
    one = Ring(place, silent, clock)
    for n in range(180):
        one.add(document(n))
        clock.now += 1
    assert [x["batch"] for x in read(place).documents] == list(range(120))
    assert len([*place.list(FOLDER)]) == 2
    one.rest(over=False)
    assert len(read(place).documents) == 180
    one.add(document(180))
    one.rest()
    assert [x["batch"] for x in read(place).documents] == list(range(181))


def test_an_hour(memory: Faulty) -> None:
    clock, place = Clock(), opened(URL)
    one = Ring(place, silent, clock)
    for n in range(400):
        one.add(document(n))
        clock.now += 30
    assert 60 <= len([*place.list(FOLDER)]) <= 63
    found = [x["batch"] for x in read(place).documents]
    assert found == list(range(found[0], found[-1] + 1)) and found[-1] >= 396


def test_a_store_that_refuses_ends_nothing(memory: Faulty) -> None:
    clock, said = Clock(), list[str]()
    one = Ring(opened(URL), said.append, clock)
    one.add(document(1))
    memory.always = 403
    one.rest()
    clock.now += 30
    one.add(document(2))
    memory.always = None
    clock.now += 61
    one.add(document(3))
    one.rest()
    assert len(said) == 1 and "403" in said[0]
    assert [x["batch"] for x in read(opened(URL)).documents] == [3]
