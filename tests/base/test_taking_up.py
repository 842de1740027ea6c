"""The past of a trial: made of its samples, from the last whole checkpoint on, without a gap."""

from __future__ import annotations

import zlib

import pytest

from trio_cogment.api.common_pb2 import ActorParams, Checkpoint, TakenUp, TrialParams
from trio_cogment.api.trial_datastore_pb2 import StoredTrialActorSample, StoredTrialSample
from trio_cogment.base.errors import DataLossError, NotFoundError
from trio_cogment.base.taking_up import PastReader, branch_of, is_whole, saved_checkpoint

PARAMS = TrialParams(actors=[ActorParams(name="a"), ActorParams(name="b")])


def sample(
    tick_id: int, *, acted: bool = True, unavailable: bool = False, saved: Checkpoint | None = None
) -> StoredTrialSample:
    payloads = [b"seen by a at %d" % tick_id, b"seen by b at %d" % tick_id]
    actors = [StoredTrialActorSample(actor=actor, observation=actor) for actor in (0, 1)]
    if acted:
        payloads += [b"done at %d" % tick_id]
        for one in actors[: 1 if unavailable else 2]:
            one.action = 2
    found = StoredTrialSample(tick_id=tick_id, actor_samples=actors, payloads=payloads, checkpoint=saved)
    found.unavailable_actors.extend([1] if unavailable else [])
    return found


def checkpoint_of(tick_id: int, content: bytes) -> Checkpoint:
    return Checkpoint.FromString(saved_checkpoint(tick_id, content))


def past(tick_id: int | None, *samples: StoredTrialSample) -> TakenUp:
    reader = PastReader("t", PARAMS, tick_id)
    for each in samples:
        reader.add(each)
    return reader.past().message()


def test_without_a_checkpoint_it_goes_back_to_the_beginning() -> None:
    found = past(1, sample(0), sample(1), sample(2))
    assert (found.trial_id, found.tick_id, found.HasField("checkpoint")) == ("t", 1, False)
    assert [list(tick.observations) for tick in found.past] == [
        [b"seen by a at 0", b"seen by b at 0"],
        [b"seen by a at 1", b"seen by b at 1"],
    ]
    assert [list(tick.actions) for tick in found.past] == [[b"done at 0", b"done at 0"], []]


def test_it_begins_at_the_last_checkpoint_up_to_its_tick() -> None:
    samples = [sample(tick, saved=checkpoint_of(tick, b"%d" % tick) if tick % 2 == 0 else None) for tick in range(6)]
    for tick_id, expected in ((0, 0), (1, 0), (2, 2), (3, 2), (None, 4)):
        found = past(tick_id, *samples)
        assert (found.checkpoint.tick_id, found.checkpoint.content) == (expected, b"%d" % expected)
        assert len(found.past) == found.tick_id - expected + 1


def test_what_is_missing_before_a_checkpoint_is_not_missed() -> None:
    assert len(past(5, sample(3), sample(4, saved=checkpoint_of(4, b"s")), sample(5)).past) == 2


@pytest.mark.parametrize(
    "broken",
    [
        Checkpoint(tick_id=2, content=b"ha", size=4, crc32=checkpoint_of(2, b"half").crc32),
        Checkpoint(tick_id=2, content=b"hulf", size=4, crc32=checkpoint_of(2, b"half").crc32),
        Checkpoint(tick_id=2, content=b"half"),
        checkpoint_of(1, b"of another tick"),
    ],
    ids=["half", "damaged", "unsigned", "misplaced"],
)
def test_a_checkpoint_that_is_not_whole_is_none(broken: Checkpoint) -> None:
    found = past(3, sample(0, saved=checkpoint_of(0, b"first")), sample(1), sample(2, saved=broken), sample(3))
    assert (found.checkpoint.content, len(found.past)) == (b"first", 4)


def test_whole_is_what_was_saved() -> None:
    assert is_whole(checkpoint_of(3, b""))
    assert is_whole(checkpoint_of(0, b""))
    assert is_whole(checkpoint_of(3, b"x" * 1000))
    assert not is_whole(Checkpoint(content=b"x", size=1))


def test_an_actor_without_an_action_is_named() -> None:
    found = past(1, sample(0, unavailable=True), sample(1))
    assert (list(found.past[0].actions), list(found.past[0].unavailable_actors)) == ([b"done at 0", b""], [1])


def test_a_tick_that_is_not_stored_is_not_found() -> None:
    with pytest.raises(NotFoundError, match="trial 't': tick 3: expected one that is stored, got ticks up to 1"):
        past(3, sample(0), sample(1))
    with pytest.raises(NotFoundError, match="trial 't': tick 0: expected one that is stored, got no tick"):
        past(None)


@pytest.mark.parametrize(
    ("samples", "text"),
    [
        ([sample(0), sample(2)], "tick 1: expected its sample, which is not stored"),
        ([sample(1), sample(2)], "tick 0: expected its sample, which is not stored"),
        ([sample(0), sample(1, acted=False), sample(2)], "tick 1: expected the actions of all actors"),
        ([sample(0), StoredTrialSample(tick_id=1), sample(2)], "tick 1: expected the observations of all actors"),
    ],
)
def test_a_gap_is_an_error_that_names_its_tick(samples: list[StoredTrialSample], text: str) -> None:
    with pytest.raises(DataLossError, match=text):
        past(2, *samples)


def test_the_tick_itself_needs_no_actions() -> None:
    assert past(1, sample(0), sample(1, acted=False)).tick_id == 1


def test_properties_tell_of_which_trial_one_is_a_branch() -> None:
    assert branch_of({"branch.trial": "t", "branch.tick": "12"}) == ("t", 12)
    for others in ({}, {"branch.trial": "t"}, {"branch.trial": "t", "branch.tick": "-1"}, {"branch.tick": "3"}):
        assert branch_of(others) is None


@pytest.mark.parametrize("tick_id", [0, 1, 200, 1 << 40])
@pytest.mark.parametrize("size", [1, 127, 128, 70_000])
def test_a_checkpoint_is_written_as_its_message_is(tick_id: int, size: int) -> None:
    content = b"s" * size
    message = Checkpoint(tick_id=tick_id, content=content, size=size, crc32=zlib.crc32(content))
    assert saved_checkpoint(tick_id, content) == message.SerializeToString()
