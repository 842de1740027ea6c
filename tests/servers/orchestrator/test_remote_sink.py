"""The stream of a data log elsewhere: what is confirmed, and what its end means at which time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from trio_cogment.api.datalog_pb2 import DatalogSample, RunTrialDatalogInput
from trio_cogment.base.errors import RpcError, StatusCode, StorageFailedError
from trio_cogment.base.services import TRIAL_ID, TRIAL_ORCHESTRATOR, TRIAL_OWNER, USER_ID
from trio_cogment.rpc import ClientCall, Metadata
from trio_cogment.servers.orchestrator._remote_sink import RemoteSink, _RemoteStream

GONE = RpcError(StatusCode.UNAVAILABLE, "gone")


class Call:
    """The client's end of a call."""

    def __init__(self) -> None:
        self.sent: list[RunTrialDatalogInput] = []
        self.done = 0

    async def send(self, message: RunTrialDatalogInput) -> None:
        self.sent.append(message)

    async def done_sending(self) -> None:
        self.done += 1


class Side:
    def __init__(self) -> None:
        self.sink = RemoteSink(cast(Any, None), cast(Any, None), cast(Any, None))
        self.call = Call()
        self.scope = trio.CancelScope()
        self.stream = self.another()

    def another(self) -> _RemoteStream:
        return _RemoteStream(self.sink, cast(ClientCall, self.call), self.scope)


async def test_who_has_not_answered_the_parameters_soon_never_answers(autojump_clock: trio.testing.MockClock) -> None:
    side = Side()
    await side.stream.write(DatalogSample())
    assert side.stream.unconfirmed == 1  # that it answers may show yet
    await trio.sleep(5)
    assert side.stream.unconfirmed == 0
    again = side.another()
    await again.write(DatalogSample())
    assert again.unconfirmed == 0
    again.on_message(None)  # late, but it does
    assert again.unconfirmed == 1


@pytest.mark.parametrize(("error", "unconfirmed"), [(GONE, 0), (None, 0), (StorageFailedError("no room left"), 1)])
async def test_an_end_before_any_answer_says_whether_the_samples_were_taken(
    error: RpcError | None, unconfirmed: int
) -> None:
    """One whose storage fails has taken nothing; of others a sample that was sent counts as taken."""
    side = Side()
    await side.stream.write(DatalogSample())
    side.stream.on_end(error)
    assert side.stream.unconfirmed == unconfirmed


async def test_who_has_answered_once_confirms_from_then_on() -> None:
    side = Side()
    told: list[int] = []
    for _ in range(3):
        await side.stream.write(DatalogSample())
    side.stream.on_message(None)  # that is for the parameters
    assert side.stream.unconfirmed == 3
    side.stream.on_confirmed = lambda: told.append(side.stream.unconfirmed)
    side.stream.on_message(None)
    side.stream.on_message(None)
    assert told == [2, 1]
    assert len(side.call.sent) == 3
    again = side.another()
    await again.write(DatalogSample())
    assert again.unconfirmed == 1  # of a new stream the parameters are not answered yet
    again.on_message(None)
    assert again.unconfirmed == 1


@pytest.mark.parametrize("error", [None, GONE])
async def test_an_end_before_the_trials_breaks_the_stream(error: RpcError | None) -> None:
    side = Side()
    side.stream.on_end(error)
    assert side.scope.cancel_called
    assert side.stream.error is error
    if error is None:
        await side.stream.complete()
    else:
        with pytest.raises(RpcError, match="gone"):
            await side.stream.complete()
    assert side.call.done == 0


@pytest.mark.parametrize("error", [None, GONE])
async def test_an_end_that_was_asked_for_says_whether_everything_is_safe(error: RpcError | None) -> None:
    side = Side()
    outcome: list[object] = []

    async def complete() -> None:
        try:
            await side.stream.complete()
        except RpcError as failure:
            outcome.append(failure)
        else:
            outcome.append(None)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(complete)
        await trio.testing.wait_all_tasks_blocked()
        assert (side.call.done, outcome) == (1, [])
        side.stream.on_end(error)
    assert outcome == [error]
    assert not side.scope.cancel_called


@pytest.mark.parametrize(
    ("account", "owner"), [("token:ann b/c", "token%3Aann%20b/c"), ("192.0.2.7", None), ("", None)]
)
def test_a_data_log_is_told_whose_a_trial_is_unless_it_is_nobodys(account: str, owner: str | None) -> None:
    connections = SimpleNamespace(
        own_endpoint="", authorization=lambda trial_id, _: (("authorization", f"for {trial_id}"),)
    )
    sink = RemoteSink(cast(Any, connections), cast(Any, None), cast(Any, SimpleNamespace(account=account)))
    metadata = dict(Metadata(sink._metadata("t", "me")))
    assert metadata.get(TRIAL_OWNER) == owner
    assert (metadata[TRIAL_ID], metadata[USER_ID], metadata["authorization"]) == ("t", "me", "for t")
    assert TRIAL_ORCHESTRATOR not in metadata
    connections.own_endpoint = "grpc://10.0.0.1:9000"
    assert dict(Metadata(sink._metadata("t", "me")))[TRIAL_ORCHESTRATOR] == "grpc%3A//10.0.0.1%3A9000"
