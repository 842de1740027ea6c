"""The same checkers on a run with the real clock, real sockets and the system's TCP; and on what it was not."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any

import pytest
import trio

from tests.helpers import params_of
from trio_cogment import rpc
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.sdk import Controller
from trio_cogment.servers.orchestrator import Orchestrator, orchestrator_services
from trio_cogment.testing import (
    CHECKERS,
    FakeActor,
    FakeDatalog,
    FakeEnvironment,
    History,
    HistoryEvent,
    InvariantError,
    Probe,
    RecordedCalls,
    World,
    check_history,
    record_params,
    record_states,
)


async def a_run() -> World:
    """One trial with a client actor and a data log that keeps its samples; everything over loopback."""
    world = World(1)
    disk = world.disk("log")
    actor = FakeActor(world)
    datalog = FakeDatalog(world, files=lambda _trial_id: disk)
    services = [actor.service(), FakeEnvironment(world, ticks=3).service(), datalog.service()]

    def recorded(address: str, port: int, **options: Any) -> RecordedCalls:
        return RecordedCalls(rpc.Channel(address, port, **options), world.history, "orchestrator")

    async with trio.open_nursery() as nursery:
        listen = partial(rpc.open_listeners, "127.0.0.1")
        fakes = await nursery.start(rpc.serve, services, await listen())
        orchestrator = Orchestrator(host=rpc.CallHost(wall_clock=lambda: 1, new_id=world.new_id, channel=recorded))
        async with orchestrator:
            own = orchestrator_services(orchestrator)
            serving = await nursery.start(rpc.serve, own, await listen())
            async with rpc.Channel("127.0.0.1", serving.port) as channel, trio.open_nursery() as watching:
                calls = RecordedCalls(channel, world.history, "desk")
                watching.start_soon(record_states, Controller(channel), world.history)
                ends = partial(record_states, states=[TrialState.ENDED], full_info=True)
                watching.start_soon(ends, Controller(channel), world.history, "ends")
                watching.start_soon(Probe(orchestrator, world.history).run, 0.01)
                endpoint = f"grpc://127.0.0.1:{fakes.port}"
                params = params_of("ann", "cat", environment_endpoint=endpoint, datalog_endpoint=endpoint)
                params.actors[0].endpoint = endpoint
                params.actors[1].endpoint = "cogment://client"
                params.max_steps = 9
                record_params(world.history, "t", params)
                assert await Controller(calls).start_trial(params, trial_id="t") == "t"
                world.history.record("desk", "started", "t")
                await actor.join(calls, "t", "cat")
                await Controller(channel).wait_trial_state("t")
                while orchestrator.running_trials:  # noqa: ASYNC110  there is no event for it
                    await trio.sleep(0.01)
                await trio.sleep(0.05)
                world.history.record("orchestrator", "cancelled", within=5.0)
                watching.cancel_scope.cancel()
            await orchestrator.stop()
        world.history.record("orchestrator", "gone")
        nursery.cancel_scope.cancel()
    datalog.note_kept()
    return world


def changed(history: History, which: HistoryEvent, *instead: HistoryEvent) -> History:
    """Return a history with other events in the place of one."""
    copy = History()
    for event in history:
        copy._events.extend(instead if event is which else [event])
    return copy


def with_details(event: HistoryEvent, **details: Any) -> HistoryEvent:
    return dataclasses.replace(event, details={**event.details, **details})


async def test_honest_run_passes_and_a_doctored_one_does_not() -> None:
    history = (await a_run()).history
    check_history(history)

    def find(what: str, who: str = "") -> HistoryEvent:
        return [event for event in history if event.what == what and event.who.startswith(who)][-1]

    end, closed, state = find("end", "actor ann"), find("closed", "actor ann"), find("state", "watcher")
    outcome = find("outcome")
    last, ack = find("actions"), find("acknowledged", "actor")
    again = next(event for event in history if event.what == "started")
    shield = dataclasses.replace(end, who="probe", what="shield", details={"task": "t", "deadline": math.inf})
    stranger = with_details(find("observation", "actor cat"), content="wrong")
    shown_to_ann = with_details(find("observation", "actor cat"), content="ann sees 3")
    reward = find("reward", "actor ann")
    excluding = with_details(find("params"), excluded=["actions"])
    greeting = find("message", "actor ann")
    logged = next(event for event in history if event.what == "sample")
    overdue = dataclasses.replace(end, what="overdue", details={"waits_for": "it", "seconds": 9.0, "patience": 5.0})
    doctored: dict[str, History] = {
        "states-go-forward": changed(history, state, state, with_details(state, state=2)),
        "watchers-see-all": changed(history, state, state, *_far(state)),
        "watchers-see-one-sequence": changed(history, state, state, *_far(state)),
        "causes-have-happened": changed(history, outcome, with_details(outcome, cause="hard_termination")),
        "blame-is-right": changed(history, outcome, with_details(outcome, participant="")),
        "ticks-are-counted": changed(history, outcome, with_details(outcome, ticks=1)),
        "terminated-trials-have-ended": changed(history, again, dataclasses.replace(again, what="terminated")),
        "every-trial-ends": changed(history, state),
        "nothing-after-end": changed(history, end, end, end),
        "ends-are-told": changed(history, end),
        "sessions-close-once": changed(history, closed),
        "ticks-grow-by-one": changed(history, last, last, last),
        "actions-belong-to-their-tick": changed(history, last, with_details(last, contents={"ann": "ann:7"})),
        "environments-may-end": changed(history, end, end, dataclasses.replace(last, seconds=end.seconds)),
        "absent-once": changed(history, last, with_details(last, unavailable=[1, 1])),
        "wrong-observations-are-refused": changed(history, find("observation", "actor cat"), stranger),
        "observations-reach-their-actors": changed(history, find("observation", "actor cat"), shown_to_ann),
        "rewards-come-once": changed(history, reward, reward, reward),
        "rewards-reach-their-actors": changed(history, reward, with_details(reward, tick=7)),
        "rewards-come-in-time": changed(history, reward),
        "absences-follow-the-params": changed(history, last, with_details(last, unavailable=[0])),
        "steps-are-limited": changed(history, last, with_details(last, tick=10)),
        "excluded-fields-are-left-out": changed(history, find("params"), excluding),
        "messages-reach-their-receivers": changed(history, greeting, with_details(greeting, sender="liar")),
        "messages-come-once": changed(history, greeting, greeting, greeting),
        "samples-tell-what-happened": changed(history, logged, with_details(logged, actions=[])),
        "nobody-waits-for-ever": changed(history, end, end, overdue),
        "samples-come-once": changed(history, find("sample")),
        "soft-end-waits-for-everybody": changed(history, ack),
        "ids-are-given-once": changed(history, again, again, again),
        "failed-starts-leave-nothing": _failed_start(history),
        "queues-stay-within-limits": changed(history, find("tasks"), _queues(end)),
        "tasks-end-with-their-trial": changed(history, find("tasks"), _tasks(find("tasks"))),
        "shields-have-deadlines": changed(history, end, end, shield),
        "hosts-leave-in-time": changed(history, find("gone")),
        "calls-end-once": changed(history, find("status"), find("status"), find("status")),
        "acknowledged-samples-are-kept": changed(history, find("kept"), with_details(find("kept"), ticks=[0])),
    }
    assert set(doctored) == set(CHECKERS)
    for name, copy in doctored.items():
        with pytest.raises(InvariantError, match=f"(?m)^{name}: "):
            check_history(copy, [name])


def _far(state: HistoryEvent) -> list[HistoryEvent]:
    return [dataclasses.replace(state, who="far", details={"state": number}) for number in (1, 2, 5)]


def _failed_start(history: History) -> History:
    copy = History()
    for event in history:
        if event.what == "state" and event.details["state"] in (1, 5):
            copy._events.append(event)
    known = {"trial_ids": ["t"]}
    copy._events.append(HistoryEvent(copy.recent(1)[0].seconds, "orchestrator", "known", details=known))
    return copy


def _queues(event: HistoryEvent) -> HistoryEvent:
    details = {"messages": 3, "most_messages": 2, "samples": 0, "most_samples": 2}
    return dataclasses.replace(event, who="probe", what="queues", details=details)


def _tasks(event: HistoryEvent) -> HistoryEvent:
    return with_details(event, names=["trial t: ann"], seconds=event.details["patience"] + 1)
