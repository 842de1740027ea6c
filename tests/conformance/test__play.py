"""The whole kit with the services of this project, and with servers that have a bug planted.

A planted server is this project's behind something that changes one kind of message: what it answers to clients, or
what it says to participants and data logs. The kit has to find it by the outcome of the case that is named.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import trio

from tests.conformance.served import everything
from trio_cogment.api.common_pb2 import CommunicationState, TrialState
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.conformance import Verdict, cases_of, open_server, play_cases
from trio_cogment.rpc import (
    CallDetails,
    ClientCall,
    ClientCallWrapper,
    ClientInterceptor,
    Metadata,
    ServerCall,
    ServerCallWrapper,
    intercept_channel,
)

WIRE = Path(__file__).resolve().parents[2] / "docs" / "wire.md"


async def test_nothing_of_ours_differs_that_the_documents_do_not_name(tmp_path: Path) -> None:
    seen: list[str] = []
    with trio.fail_after(100):
        async with everything(tmp_path) as channel, open_server(channel, patience_seconds=30) as server:
            results = await play_cases(server, cases_of(), lambda result: seen.append(result.case.key))
    assert [result for result in results if result.verdict is Verdict.DIFFERENT] == []
    assert [result.case.key for result in results] == [case.key for case in cases_of()]
    assert sorted(seen) == sorted(case.key for case in cases_of())
    rows = [row.split("|")[1].strip() for row in re.findall(r"^\|.*\|$", WIRE.read_text(), re.MULTILINE)]
    for result in results:
        if result.verdict is Verdict.OURS:
            assert any(row.startswith(result.case.row) for row in rows), result.case.row


# --- planted bugs ---

#: Gets a message; returns what goes on in its place.
Change: TypeAlias = Callable[[Any], list[Any]]


@dataclass(frozen=True)
class Bug:
    """A bug of a server.

    Attributes:
        of: the method that has it, or the role of the participant who is told wrongly.
        case: what finds it.
        replies: changes what comes from the server.
        requests: changes what the server gets to see.
        blind: the server does not see the metadata.
        fails: the server answers with this status.
    """

    of: str
    case: str
    replies: Change | None = None
    requests: Change | None = None
    blind: bool = False
    fails: StatusCode | None = None


def edit(change: Callable[[Any], object]) -> Change:
    """Return a change that edits each message in place."""

    def edited(message: Any) -> list[Any]:
        copy = type(message).FromString(message.SerializeToString())
        change(copy)
        return [copy]

    return edited


def drop(condition: Callable[[Any], bool]) -> Change:
    return lambda message: [] if condition(message) else [message]


def swapped() -> Change:
    """Return a change that lets every reward wait until another message has gone by."""
    held: list[Any] = []

    def change(message: Any) -> list[Any]:
        if message.HasField("reward"):
            held.append(message)
            return []
        gone = [message, *held]
        held.clear()
        return gone

    return change


def turned(values: Any) -> None:
    """Turn a repeated field round."""
    listed = list(values)
    del values[:]
    values.extend(reversed(listed))


def cleared(*fields: str) -> Change:
    """Return a change that leaves fields out, each given as a path."""

    def clear(message: Any) -> None:
        for field in fields:
            *path, name = field.split(".")
            inner = message
            for part in path:
                if not inner.HasField(part):
                    return
                inner = getattr(inner, part)
            inner.ClearField(name)

    return edit(clear)


def in_data(field: str, change: Callable[[Any], object]) -> Change:
    """Return a change of messages with this field, by a function of the field."""
    return edit(lambda message: change(getattr(message, field)) if message.HasField(field) else None)


def with_data(field: str) -> Callable[[Any], bool]:
    return lambda message: bool(message.HasField(field))


def in_state(state: int) -> Callable[[Any], bool]:
    return lambda message: bool(message.state == state)


def sum_up(reward: Any) -> None:
    reward.value = sum(source.value for source in reward.sources)


def forge(reward: Any) -> None:
    for source in reward.sources:
        source.sender_name = "forged"


def to_everybody(message: Any) -> None:
    if b"fence" not in message.payload.value:
        message.receiver_name = "*"


def run_on(sample: Any) -> None:
    if sample.info.state == TrialState.ENDED:
        sample.info.state = TrialState.RUNNING


def forget_observations(reply: Any) -> None:
    for info in reply.trial:
        info.latest_observation.observations[:] = [b""] * len(info.latest_observation.observations)


def set_to(field: str, value: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Return a function that sets a field of a message, by a function of what it is."""
    return lambda message: setattr(message, field, value(getattr(message, field)))


LAST, END = CommunicationState.LAST, CommunicationState.END

BUGS = {
    # An orchestrator.
    "a taken id is given again": Bug(
        "StartTrial", "taken_id", replies=edit(set_to("trial_id", lambda trial_id: trial_id or "again"))
    ),
    "no id is made": Bug("StartTrial", "start_without_an_id", replies=cleared("trial_id")),
    "ids of no trial are refused": Bug("TerminateTrial", "end_of_no_trial", fails=StatusCode.NOT_FOUND),
    "a client is refused as unauthenticated": Bug("RunTrial", "taken_place", fails=StatusCode.UNAUTHENTICATED),
    "clients cannot ask for a class": Bug("RunTrial", "client_by_class", fails=StatusCode.NOT_FOUND),
    "an actor is not told its environment": Bug("actor", "introductions", replies=cleared("init_input.env_name")),
    "an observation is of the next tick": Bug(
        "actor", "observations_by_index", replies=in_data("observation", set_to("tick_id", lambda tick: tick + 1))
    ),
    "observations are lost": Bug("actor", "actions_in_order", replies=drop(with_data("observation"))),
    "observations come twice": Bug(
        "actor", "soft_end_within_a_tick", replies=lambda message: [message] * (1 + message.HasField("observation"))
    ),
    "actions are in another order": Bug(
        "environment", "actions_in_order", replies=in_data("action_set", lambda made: turned(made.actions))
    ),
    "action sets have no tick": Bug("environment", "actions_in_order", replies=cleared("action_set.tick_id")),
    "action sets are lost": Bug("environment", "one_step", replies=drop(with_data("action_set"))),
    "actors get no LAST": Bug("actor", "one_step", replies=drop(in_state(LAST))),
    "the environment gets no LAST": Bug("environment", "one_step", replies=drop(in_state(LAST))),
    "END has no details": Bug("actor", "hard_end_before_all_are_there", replies=cleared("details")),
    "nobody gets END": Bug("actor", "hard_end_before_all_are_there", replies=drop(in_state(END))),
    "whose action is a default one is unavailable": Bug(
        "environment", "default_action", replies=in_data("action_set", lambda made: made.unavailable_actors.append(0))
    ),
    "rewards are summed up": Bug("actor", "weighted_reward", replies=in_data("reward", sum_up)),
    "senders of rewards are believed": Bug("actor", "weighted_reward", replies=in_data("reward", forge)),
    "rewards come after the observation": Bug("actor", "weighted_reward", replies=swapped()),
    "messages keep their receivers": Bug("actor", "receivers_of_messages", replies=in_data("message", to_everybody)),
    "the last sample says RUNNING": Bug("datalog", "one_step", replies=in_data("sample", run_on)),
    "samples do not say whose action is a default one": Bug(
        "datalog", "default_action", replies=cleared("sample.default_actors")
    ),
    "samples are lost": Bug("datalog", "rewards_for_other_ticks", replies=drop(with_data("sample"))),
    "information has no observations": Bug("GetTrialInfo", "information", replies=edit(forget_observations)),
    "watchers miss a state": Bug("WatchTrials", "states_of_a_trial", replies=drop(in_state(TrialState.TERMINATING))),
    "watchers are told twice": Bug("WatchTrials", "states_of_a_trial", replies=lambda entry: [entry, entry]),
    "there are no versions": Bug("Version", "versions", replies=cleared("versions")),
    # A trial datastore.
    "samples are not acknowledged": Bug("RunTrialDatalog", "answers_of_the_data_log", replies=drop(lambda _: True)),
    "trials have no user": Bug(
        "RetrieveTrials",
        "user_of_a_logged_trial",
        replies=edit(lambda reply: [info.ClearField("user_id") for info in reply.trial_infos]),
    ),
    "trials are in another order": Bug(
        "RetrieveTrials", "order_of_trials", replies=edit(lambda reply: turned(reply.trial_infos))
    ),
    "properties filter nothing": Bug("RetrieveTrials", "trials_by_properties", requests=cleared("properties")),
    "pages have any size": Bug("RetrieveTrials", "pages_of_trials", requests=cleared("trials_count")),
    "handles lead to the beginning": Bug("RetrieveTrials", "pages_of_trials", requests=cleared("trial_handle")),
    "the last sample is lost": Bug(
        "RetrieveSamples",
        "following_a_trial",
        replies=drop(lambda reply: bool(reply.trial_sample.state == TrialState.ENDED)),
    ),
    "classes filter nobody": Bug("RetrieveSamples", "filters_that_nobody_passes", requests=cleared("actor_classes")),
    "all fields are selected": Bug("RetrieveSamples", "selected_fields", requests=cleared("selected_sample_fields")),
    "nothing is deleted": Bug("DeleteTrials", "deleting", requests=cleared("trial_ids")),
    # A model registry.
    "versions begin with 2": Bug(
        "CreateVersion",
        "versions_of_a_model",
        replies=in_data("version_info", set_to("version_number", lambda number: number + 1)),
    ),
    "a byte of a model is lost": Bug(
        "RetrieveVersionData", "versions_of_a_model", replies=edit(set_to("data_chunk", lambda data: data[:-1]))
    ),
    "old user data stay": Bug(
        "RetrieveModels",
        "updated_model",
        replies=edit(lambda reply: reply.model_infos[0].user_data.update(a="1")),
    ),
    "a wrong hash is taken": Bug(
        "CreateVersion", "versions_that_are_wrong", requests=cleared("header.version_info.data_hash")
    ),
    "all versions are on the first page": Bug(
        "RetrieveVersionInfos", "pages_of_versions", requests=cleared("versions_count")
    ),
    # A directory.
    "tokens are not looked at": Bug("Inquire", "tokens", blind=True),
    "properties are not looked at": Bug("Inquire", "found_by_properties", requests=cleared("details.properties")),
    "types are not looked at": Bug("Inquire", "found_by_type", requests=cleared("details.type")),
    "any secret removes": Bug("Deregister", "secrets", replies=edit(set_to("status", lambda _: 1))),
    "nothing is permanent": Bug("Register", "registered_for_good", requests=cleared("permanent")),
}


class ChangedReplies:
    """What a call receives, changed."""

    def __init__(self, receive: Callable[[], Awaitable[Any]], change: Change | None) -> None:
        self._receive = receive
        self._change = change
        self._ready: list[Any] = []

    async def receive(self) -> Any:
        while not self._ready:
            message = await self._receive()
            if message is None:
                return None
            self._ready = changed(self._change, message)
        return self._ready.pop(0)


def changed(change: Change | None, message: Any) -> list[Any]:
    return [message] if change is None else change(message)


class BadCall(ClientCallWrapper):
    """A call of a client whose server has a bug."""

    def __init__(self, call: ClientCall, bug: Bug) -> None:
        super().__init__(call)
        self._bug = bug
        self._replies = ChangedReplies(call.receive, bug.replies)

    async def receive(self) -> Any:
        return await self._replies.receive()

    async def send(self, message: Any) -> None:
        for each in changed(self._bug.requests, message):
            await super().send(each)


def _name_of(details: CallDetails) -> str:
    return details.method.path.rpartition("/")[2]


class BadService(ClientInterceptor):
    """A server whose method has a bug."""

    def __init__(self, bug: Bug) -> None:
        self._bug = bug

    def _seen(self, details: CallDetails) -> CallDetails:
        if self._bug.fails is not None:
            raise RpcError(self._bug.fails, "planted")
        return replace(details, metadata=Metadata()) if self._bug.blind else details

    async def intercept_unary(
        self, details: CallDetails, request: Any, continuation: Callable[[CallDetails, Any], Awaitable[Any]]
    ) -> Any:
        if _name_of(details) != self._bug.of:
            return await continuation(details, request)
        details = self._seen(details)
        [request] = changed(self._bug.requests, request)
        [reply] = changed(self._bug.replies, await continuation(details, request))
        return reply

    @asynccontextmanager
    async def _call(
        self, details: CallDetails, continuation: Callable[[CallDetails], AbstractAsyncContextManager[ClientCall]]
    ) -> AsyncIterator[ClientCall]:
        async with continuation(self._seen(details)) as call:
            yield BadCall(call, self._bug)

    def intercept_call(
        self, details: CallDetails, continuation: Callable[[CallDetails], AbstractAsyncContextManager[ClientCall]]
    ) -> AbstractAsyncContextManager[ClientCall]:
        return continuation(details) if _name_of(details) != self._bug.of else self._call(details, continuation)


class ToldWrongly(ServerCallWrapper):
    """A call to a participant, by a server that has a bug."""

    def __init__(self, call: ServerCall, change: Change | None) -> None:
        super().__init__(call)
        self._replies = ChangedReplies(call.receive, change)

    async def receive(self) -> Any:
        return await self._replies.receive()


class ToldWronglyHosts(dict[str, Any]):
    """The participants of the kit, one kind of which is told wrongly."""

    def __init__(self, bug: Bug) -> None:
        super().__init__()
        self._bug = bug

    def __setitem__(self, trial_id: str, host: Any) -> None:
        if self._bug.of in ("environment", "actor", "datalog"):
            run = getattr(host, self._bug.of)
            setattr(host, self._bug.of, lambda call: run(ToldWrongly(call, self._bug.replies)))
        super().__setitem__(trial_id, host)


@pytest.mark.parametrize("name", BUGS)
async def test_a_planted_bug_is_found(name: str, tmp_path: Path) -> None:
    bug = BUGS[name]
    cases = [case for case in cases_of() if case.name == bug.case]
    with trio.fail_after(60):
        async with (
            everything(tmp_path) as channel,
            open_server(intercept_channel(channel, BadService(bug)), patience_seconds=1) as server,
        ):
            server.hosts = ToldWronglyHosts(bug)
            results = await play_cases(server, cases)
    assert [result for result in results if result.verdict is Verdict.DIFFERENT], results
