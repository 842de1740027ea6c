"""A model in memory, and how its id is shown."""

from __future__ import annotations

import pytest

from trio_cogment.api.model_registry_pb2 import ModelVersionInfo, RetrieveVersionDataRequest
from trio_cogment.base.errors import NotFoundError, ResourceExhaustedError, UnavailableError
from trio_cogment.servers.model_registry._model import Model, VersionWatch, shown
from trio_cogment.servers.model_registry._version_cache import Payload, Transient


def test_long_ids_are_shown_shortened() -> None:
    assert shown("x" * 80) == repr("x" * 80)
    assert shown("x" * 81) == repr("x" * 80 + "…")
    assert shown("it's") == repr("it's")


async def test_all_watches_end_with_a_model() -> None:
    model = Model("m", "m")
    watches = [VersionWatch(3) for _ in range(3)]
    model.watches.update(dict.fromkeys(watches))
    model.add(ModelVersionInfo(version_number=1))
    assert [(await watch.__anext__()).version_number for watch in watches] == [1] * 3
    model.end(UnavailableError("over"))
    for watch in watches:
        with pytest.raises(UnavailableError, match="over"):
            await watch.__anext__()


def test_the_last_number_is_given_and_none_after_it() -> None:
    """It is the largest that a request can name."""
    most = 2**31 - 1
    assert RetrieveVersionDataRequest(version_number=most).version_number == most
    with pytest.raises(ValueError, match="out of range"):
        RetrieveVersionDataRequest(version_number=most + 1)
    model = Model("m", "m", last=most - 1)
    assert model.next_number() == most
    with pytest.raises(ResourceExhaustedError, match="model 'm': the version numbers are used up"):
        model.next_number()


def test_versions_are_found_by_number_and_from_the_end() -> None:
    model = Model("m", "m", [2, 5, 7], 9)
    assert [model.find(wanted) for wanted in (1, 2, 4, 5, 7, 8, 0)] == [None, 2, None, 5, 7, None, None]
    assert [model.find(-wanted) for wanted in (1, 2, 3, 4)] == [7, 5, 2, None]
    assert [model.since(number) for number in (0, 2, 3, 8)] == [[2, 5, 7], [2, 5, 7], [5, 7], []]
    assert str(model.missing(4)) == "model 'm' has no version 4"
    assert str(model.missing(-4)) == "model 'm' has no version -4; it has 3"
    model.drop(5)
    model.drop(6)
    assert model.numbers == [2, 7]
    model.check()
    model.deleted = True
    with pytest.raises(NotFoundError, match="model_id: model 'm' is deleted"):
        model.check()


def test_its_bytes_are_counted_once_somebody_has_asked() -> None:
    model = Model("m", "m")
    model.grow(10)
    assert model.bytes is None
    model.bytes = 100
    model.grow(10)
    model.grow(-30)
    assert model.bytes == 80
    payload = Payload()
    payload.append(bytes(50))
    version = Transient(model, ModelVersionInfo(version_number=3), payload)
    model.numbers, model.transients = [3], {3: version}
    model.drop(3)
    assert (model.bytes, model.numbers, model.transients) == (80 - version.counted_bytes, [], {})
