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

from tests.cli.process import server
from tests.conformance.served import everything
from trio_cogment.api.common_pb2 import CommunicationState, TrialState
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.conformance import Case, Verdict, cases_of, judged, open_server, play_cases
from trio_cogment.rpc import (
    CallDetails,
    Channel,
    ClientCall,
    ClientCallWrapper,
    ClientInterceptor,
    Metadata,
    ServerCall,
    ServerCallWrapper,
    intercept_channel,
)

WIRE = Path(__file__).resolve().parents[2] / "docs" / "wire.md"


def verdict_of_ours(case: Case) -> Verdict:
    """Return the verdict that this project has to get: that of 2.22 only where documents are silent."""
    if case.ours:
        return Verdict.OURS
    return Verdict.DOCUMENTED if case.documented else Verdict.REFERENCE


def test_what_the_reference_does_wrong_is_no_verdict_of_ours() -> None:
    worse = [
        judged(case, outcome)
        for case in cases_of()
        for outcome in case.reference
        if case.ours or (case.documented and outcome != case.documented)
    ]
    assert len(worse) >= 30
    assert [result for result in worse if result.verdict is verdict_of_ours(result.case)] == []


async def test_nothing_of_ours_differs_that_the_documents_do_not_name(tmp_path: Path) -> None:
    seen: list[str] = []
    with trio.fail_after(100):
        async with everything(tmp_path) as channel, open_server(channel, patience_seconds=30) as server:
            results = await play_cases(server, cases_of(), lambda result: seen.append(result.case.key))
    assert [result for result in results if result.verdict is not verdict_of_ours(result.case)] == []
    assert [result.case.key for result in results] == [case.key for case in cases_of()]
    assert sorted(seen) == sorted(case.key for case in cases_of())
    rows = [row.split("|")[1].strip() for row in re.findall(r"^\|.*\|$", WIRE.read_text(), re.MULTILINE)]
    for result in results:
        if result.verdict is Verdict.OURS:
            assert any(row.startswith(result.case.row) for row in rows), result.case.row


# --- planted bugs ---

#: Gets a message; returns what goes on in its place.
Change: TypeAlias = Callable[[Any], list[Any]]


@dataclass
class Bug:
    """A bug of a server.

    Attributes:
        of: the method that has it, or the role of the participant who is told wrongly.
        case: what finds it.
        replies: changes what comes from the server.
        requests: changes what the server gets to see.
        blind: the server does not see the metadata.
        fails: the server answers with this status.
        outcome: of the first case that finds it; None: something does not come, and one waits for it in vain.
        times: so often the server has behaved wrongly.
    """

    of: str
    case: str
    replies: Change | None = None
    requests: Change | None = None
    blind: bool = False
    fails: StatusCode | None = None
    outcome: str | None = None
    times: int = 0

    def replied(self, message: Any) -> list[Any]:
        """Return what a client or participant gets in place of a message."""
        return self._changed(self.replies, message)

    def requested(self, message: Any) -> list[Any]:
        """Return what the server gets in place of a message."""
        return self._changed(self.requests, message)

    def _changed(self, change: Change | None, message: Any) -> list[Any]:
        if change is None:
            return [message]
        before = message.SerializeToString(deterministic=True)
        after = change(message)
        self.times += [each.SerializeToString(deterministic=True) for each in after] != [before]
        return after


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
        "StartTrial",
        "taken_id",
        outcome="started, then again",
        replies=edit(set_to("trial_id", lambda trial_id: trial_id or "again")),
    ),
    "no id is made": Bug("StartTrial", "start_without_an_id", outcome="no id", replies=cleared("trial_id")),
    "ids of no trial are refused": Bug(
        "TerminateTrial", "end_of_no_trial", outcome="NOT_FOUND", fails=StatusCode.NOT_FOUND
    ),
    "a client is refused as unauthenticated": Bug(
        "RunTrial", "taken_place", outcome="an answer that lacks something ('a')", fails=StatusCode.UNAUTHENTICATED
    ),
    "clients cannot ask for a class": Bug(
        "RunTrial", "client_by_class", outcome="NOT_FOUND", fails=StatusCode.NOT_FOUND
    ),
    "an actor is not told its environment": Bug(
        "actor",
        "introductions",
        outcome="env with a:cls, b:cls; a of cls, env ; b of cls, env ",
        replies=cleared("init_input.env_name"),
    ),
    "an observation is of the next tick": Bug(
        "actor",
        "observations_by_index",
        outcome="a: 1 x, b: 1 y; a: 2 y, b: 2 x",
        replies=in_data("observation", set_to("tick_id", lambda tick: tick + 1)),
    ),
    "observations are lost": Bug("actor", "actions_in_order", replies=drop(with_data("observation"))),
    "observations come twice": Bug(
        "actor",
        "soft_end_within_a_tick",
        outcome="RUNNING, then LAST, action set 0, TERMINATING; a: observation 0; ENDED",
        replies=lambda message: [message] * (1 + message.HasField("observation")),
    ),
    "actions are in another order": Bug(
        "environment",
        "actions_in_order",
        outcome="tick 0: [2, 1]; tick 1: [2, 1]",
        replies=in_data("action_set", lambda made: turned(made.actions)),
    ),
    "action sets have no tick": Bug(
        "environment",
        "actions_in_order",
        outcome="tick 0: [1, 2]; tick 0: [1, 2]",
        replies=cleared("action_set.tick_id"),
    ),
    "action sets are lost": Bug("environment", "one_step", replies=drop(with_data("action_set"))),
    "actors get no LAST": Bug(
        "actor",
        "one_step",
        outcome="env: action set 0, LAST, action set 1; a: reward, observation 2; ENDED at 2; "
        "samples 0 RUNNING, 1 TERMINATING, 2 ENDED",
        replies=drop(in_state(LAST)),
    ),
    "the environment gets no LAST": Bug(
        "environment",
        "one_step",
        outcome="env: action set 0, action set 1; a: reward, LAST, observation 2; ENDED at 2; "
        "samples 0 RUNNING, 1 TERMINATING, 2 ENDED",
        replies=drop(in_state(LAST)),
    ),
    "END has no details": Bug(
        "actor",
        "hard_end_before_all_are_there",
        outcome="PENDING, ENDED; a: END; b: END; env was not called",
        replies=cleared("details"),
    ),
    "nobody gets END": Bug(
        "actor", "hard_end_before_all_are_there", outcome="a did not get END", replies=drop(in_state(END))
    ),
    "whose action is a default one is unavailable": Bug(
        "environment",
        "default_action",
        outcome="set [D, b], default [0], unavailable [0]",
        replies=in_data("action_set", lambda made: made.unavailable_actors.append(0)),
    ),
    "rewards are summed up": Bug(
        "actor",
        "weighted_reward",
        outcome="30 of env 1, env 8, env 10, y 11, then the observation",
        replies=in_data("reward", sum_up),
    ),
    "senders of rewards are believed": Bug(
        "actor",
        "weighted_reward",
        outcome="4.5 of forged 1, forged 8, forged 10, forged 11, then the observation",
        replies=in_data("reward", forge),
    ),
    "rewards come after the observation": Bug("actor", "weighted_reward", outcome="0 of , then 1", replies=swapped()),
    "messages keep their receivers": Bug(
        "actor",
        "receivers_of_messages",
        outcome="*: ?* ?* ?*; cls.*: ?* ?*; cls.b: ?*; *.*: nobody; bogus: nobody; env: env; "
        "all from a at 0; all logged",
        replies=in_data("message", to_everybody),
    ),
    "the last sample says RUNNING": Bug(
        "datalog",
        "one_step",
        outcome="env: action set 0, LAST, action set 1; a: reward, LAST, observation 2; ENDED at 2; "
        "samples 0 RUNNING, 1 TERMINATING, 2 RUNNING",
        replies=in_data("sample", run_on),
    ),
    "samples do not say whose action is a default one": Bug(
        "datalog",
        "default_action",
        outcome="set [D, b], default [], unavailable []",
        replies=cleared("sample.default_actors"),
    ),
    "samples are lost": Bug("datalog", "rewards_for_other_ticks", replies=drop(with_data("sample"))),
    "information has no observations": Bug(
        "GetTrialInfo", "information", outcome="RUNNING at 1 with , a:cls, env", replies=edit(forget_observations)
    ),
    "watchers miss a state": Bug(
        "WatchTrials",
        "states_of_a_trial",
        outcome="PENDING, RUNNING, ENDED",
        replies=drop(in_state(TrialState.TERMINATING)),
    ),
    "watchers are told twice": Bug(
        "WatchTrials",
        "states_of_a_trial",
        outcome="PENDING, PENDING, RUNNING, RUNNING, TERMINATING, TERMINATING, ENDED, ENDED",
        replies=lambda entry: [entry, entry],
    ),
    "there are no versions": Bug("Version", "versions", outcome="none", replies=cleared("versions")),
    # A trial datastore.
    "samples are not acknowledged": Bug(
        "RunTrialDatalog", "answers_of_the_data_log", outcome="0 answers", replies=drop(lambda _: True)
    ),
    "trials have no user": Bug(
        "RetrieveTrials",
        "user_of_a_logged_trial",
        outcome="",
        replies=edit(lambda reply: [info.ClearField("user_id") for info in reply.trial_infos]),
    ),
    "trials are in another order": Bug(
        "RetrieveTrials",
        "order_of_trials",
        outcome="as [2, 1, 0]",
        replies=edit(lambda reply: turned(reply.trial_infos)),
    ),
    "properties filter nothing": Bug(
        "RetrieveTrials", "trials_by_properties", outcome="3 trials", requests=cleared("properties")
    ),
    "pages have any size": Bug(
        "RetrieveTrials", "pages_of_trials", outcome="pages of 3, 0: each once", requests=cleared("trials_count")
    ),
    "handles lead to the beginning": Bug(
        "RetrieveTrials", "pages_of_trials", outcome="pages of 2, 2: others", requests=cleared("trial_handle")
    ),
    "the last sample is lost": Bug(
        "RetrieveSamples",
        "following_a_trial",
        outcome="ticks 0, 1; the end",
        replies=drop(lambda reply: bool(reply.trial_sample.state == TrialState.ENDED)),
    ),
    "classes filter nobody": Bug(
        "RetrieveSamples",
        "filters_that_nobody_passes",
        outcome="actors 1; payloads 0 2 0 1 0",
        requests=cleared("actor_classes"),
    ),
    "all fields are selected": Bug(
        "RetrieveSamples",
        "selected_fields",
        outcome="observation, actions, of b alone; payloads 0 2 0 1 0",
        requests=cleared("selected_sample_fields"),
    ),
    "nothing is deleted": Bug("DeleteTrials", "deleting", outcome="OK, 1 left", requests=cleared("trial_ids")),
    # A model registry.
    "versions begin with 2": Bug(
        "CreateVersion",
        "versions_of_a_model",
        outcome="versions 2, 3; hash and size as sent; data as sent, version 2 by -1",
        replies=in_data("version_info", set_to("version_number", lambda number: number + 1)),
    ),
    "a byte of a model is lost": Bug(
        "RetrieveVersionData",
        "versions_of_a_model",
        outcome="versions 1, 2; hash and size as sent; data others, version 2 by -1",
        replies=edit(set_to("data_chunk", lambda data: data[:-1])),
    ),
    "old user data stay": Bug(
        "RetrieveModels",
        "updated_model",
        outcome="{'a': '1', 'b': '2'}",
        replies=edit(lambda reply: reply.model_infos[0].user_data.update(a="1")),
    ),
    "a wrong hash is taken": Bug(
        "CreateVersion",
        "versions_that_are_wrong",
        outcome="INVALID_ARGUMENT, OK, INVALID_ARGUMENT, INVALID_ARGUMENT, INVALID_ARGUMENT",
        requests=cleared("header.version_info.data_hash"),
    ),
    "all versions are on the first page": Bug(
        "RetrieveVersionInfos", "pages_of_versions", outcome="[1, 2, 3] []", requests=cleared("versions_count")
    ),
    # A directory.
    "tokens are not looked at": Bug("Inquire", "tokens", blind=True),
    "properties are not looked at": Bug(
        "Inquire",
        "found_by_properties",
        outcome="OK, OK; found by all: 2, by some: 2, by another value: 2",
        requests=cleared("details.properties"),
    ),
    "types are not looked at": Bug(
        "Inquire", "found_by_type", outcome="of its type: 1, of another: 1, of any: 1", requests=cleared("details.type")
    ),
    "any secret removes": Bug("Deregister", "secrets", replies=edit(set_to("status", lambda _: 1))),
    "nothing is permanent": Bug(
        "Register", "registered_for_good", outcome="2 entry, of another id", requests=cleared("permanent")
    ),
}


class ChangedReplies:
    """What a call receives, changed."""

    def __init__(self, receive: Callable[[], Awaitable[Any]], bug: Bug) -> None:
        self._receive = receive
        self._bug = bug
        self._ready: list[Any] = []

    async def receive(self) -> Any:
        while not self._ready:
            message = await self._receive()
            if message is None:
                return None
            self._ready = self._bug.replied(message)
        return self._ready.pop(0)


class BadCall(ClientCallWrapper):
    """A call of a client whose server has a bug."""

    def __init__(self, call: ClientCall, bug: Bug) -> None:
        super().__init__(call)
        self._bug = bug
        self._replies = ChangedReplies(call.receive, bug)

    async def receive(self) -> Any:
        return await self._replies.receive()

    async def send(self, message: Any) -> None:
        for each in self._bug.requested(message):
            await super().send(each)


def _name_of(details: CallDetails) -> str:
    return details.method.path.rpartition("/")[2]


class BadService(ClientInterceptor):
    """A server whose method has a bug."""

    def __init__(self, bug: Bug) -> None:
        self._bug = bug

    def _seen(self, details: CallDetails) -> CallDetails:
        if self._bug.fails is not None:
            self._bug.times += 1
            raise RpcError(self._bug.fails, "planted")
        if not self._bug.blind:
            return details
        self._bug.times += 1
        return replace(details, metadata=Metadata())

    async def intercept_unary(
        self, details: CallDetails, request: Any, continuation: Callable[[CallDetails, Any], Awaitable[Any]]
    ) -> Any:
        if _name_of(details) != self._bug.of:
            return await continuation(details, request)
        details = self._seen(details)
        [request] = self._bug.requested(request)
        [reply] = self._bug.replied(await continuation(details, request))
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

    def __init__(self, call: ServerCall, bug: Bug) -> None:
        super().__init__(call)
        self._replies = ChangedReplies(call.receive, bug)

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
            setattr(host, self._bug.of, lambda call: run(ToldWrongly(call, self._bug)))
        super().__setitem__(trial_id, host)


@pytest.mark.parametrize("name", BUGS)
async def test_a_planted_bug_is_found(name: str, tmp_path: Path) -> None:
    """By an outcome that it alone has: a slow machine is no bug, and without bugs no case is different."""
    bug = replace(BUGS[name])
    cases = [case for case in cases_of() if case.name == bug.case]
    patience_seconds = 3 if bug.outcome is None else 30
    with trio.fail_after(90):
        async with (
            everything(tmp_path) as channel,
            open_server(intercept_channel(channel, BadService(bug)), patience_seconds=patience_seconds) as server,
        ):
            server.hosts = ToldWronglyHosts(bug)
            results = await play_cases(server, cases)
    assert bug.times
    first, *_ = [result for result in results if result.verdict is Verdict.DIFFERENT]
    assert bug.outcome in (None, first.outcome)


async def test_a_server_that_ends_for_a_bad_set_is_as_the_reference(tmp_path: Path) -> None:
    async with server("serve", "--host=127.0.0.1", "--port=0", folder=tmp_path) as running:

        class Deadly(dict[str, Any]):
            """The participants of the kit, one of whose messages the server does not survive."""

            def __setitem__(self, trial_id: str, host: Any) -> None:
                run = host.environment
                host.environment = lambda call: run(Killing(call))
                super().__setitem__(trial_id, host)

        class Killing(ServerCallWrapper):
            async def send(self, message: Any) -> None:
                if message.HasField("observation_set") and len(message.observation_set.actors_map) < 2:
                    running.process.kill()
                    await running.process.wait()
                await super().send(message)

        async with (
            Channel("127.0.0.1", running.port) as channel,
            open_server(channel, patience_seconds=30) as tested,
        ):
            tested.hosts = Deadly()
            [case] = [case for case in cases_of() if case.name == "too_few_observations"]
            with trio.fail_after(60):
                [result] = await play_cases(tested, [case])
    assert (result.outcome, result.verdict) == ("the server is gone", Verdict.REFERENCE)
