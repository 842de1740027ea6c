"""A small trial whose host is cancelled: within one process, with participants outside of what is cancelled, and
over the wire."""

from __future__ import annotations

import trio

from tests.helpers import Everything
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.config import PlatformConfig
from trio_cogment.base.errors import RpcError
from trio_cogment.rpc import CallOpener, InProcessChannel, serve
from trio_cogment.sdk import ActorSession, Controller, EnvironmentSession, PreTrialSession, actor_params, trial_params
from trio_cogment.servers.orchestrator import Orchestrator, orchestrator_services
from trio_cogment.testing import (
    CancelledBlock,
    FakeActor,
    FakeDatalog,
    FakeEnvironment,
    History,
    Link,
    World,
    check_history,
)
from trio_cogment.trial.recording import TrialRecorder

PORT = 9000
TRIAL = "t"
TICKS = 2
NAMES = {-1: "environment env", 0: "actor ann", 1: "actor cat"}


def params(endpoint: str) -> TrialParams:
    return trial_params(
        [actor_params("ann", "player", endpoint=endpoint), actor_params("cat", "player", endpoint="cogment://client")],
        environment_endpoint=endpoint,
        environment_name="env",
        datalog_endpoint=endpoint,
    )


# --- all of it is cancelled: a platform in somebody's program ---


async def embedded(world: World, block: CancelledBlock) -> None:
    recorder = TrialRecorder()
    actors = [actor_params("ann", "player"), actor_params("cat", "player", endpoint="cogment://client")]
    info = None
    with block:
        async with world.open_platform(
            config=PlatformConfig(
                default_params=trial_params(actors, environment_name="env"), pre_trial_hooks=("cogment://discover",)
            ),
        ) as platform:
            platform.orchestrator.make_machine = recorder.machine
            platform.participants.register_environment(two_ticks)
            platform.participants.register_actor(thinker, "thinker")
            platform.participants.register_pre_trial_hook(no_change)
            trial_id = await platform.controller.start_trial()
            await platform.join_trial(trial_id, thinker, actor_name="cat")
            info = await platform.controller.wait_trial_state(trial_id)
    if not block.cancelled:
        assert info is not None
        assert info.tick_id == TICKS
    for trial in recorder.trials.values():
        # Everything was taken apart in the way that the rules know.
        assert any(line.get("phase") == "ENDED" for line in trial.lines)


async def two_ticks(session: EnvironmentSession) -> None:
    await session.start([("*", b"0")])
    async for event in session.all_events():
        if event.actions is not None:
            await trio.sleep(0.01)
            if session.tick_id + 1 < TICKS:
                await session.produce_observations([("*", b"1")])
            else:
                await session.end([("*", b"2")])


async def thinker(session: ActorSession) -> None:
    async for event in session.all_events():
        if event.observation is not None:
            await trio.sleep(0.01)
            await session.do_action(b"x")


async def no_change(session: PreTrialSession) -> None:
    await trio.sleep(0.01)


# --- the orchestrator is cancelled, participants in the same process are not ---


async def in_process(world: World, block: CancelledBlock) -> None:
    recorder = TrialRecorder()
    actor = FakeActor(world)
    services = [actor.service(), FakeEnvironment(world, ticks=TICKS).service(), FakeDatalog(world).service()]
    async with InProcessChannel(services) as participants:
        with block:
            orchestrator = Orchestrator(host=world.host("orchestrator"), local=Everything(participants))
            orchestrator.make_machine = recorder.machine
            own = orchestrator_services(orchestrator)
            async with orchestrator, InProcessChannel(own) as channel:
                await start_and_join(world, channel, actor, "cogment://discover")
                await Controller(channel).wait_trial_state(TRIAL)
                await orchestrator.stop()
        await trio.sleep(10)
    check_history(world.history)
    # The client actor is called from within what is cancelled.
    check_told(world.history, recorder, without="actor cat")


async def start_and_join(world: World, opener: CallOpener, actor: FakeActor, endpoint: str) -> None:
    try:
        await Controller(opener).start_trial(params(endpoint), trial_id=TRIAL)
    except RpcError as error:
        world.history.record("desk", "refused", TRIAL, code=error.code.name)
    else:
        await actor.join(opener, TRIAL, "cat")


# --- the orchestrator is cancelled, everybody else is elsewhere ---


async def over_the_wire(world: World, block: CancelledBlock, buffer_bytes: int = 64 * 1024) -> None:
    """With a small buffer writers wait for readers, as they do over lockstep streams."""
    recorder = TrialRecorder()
    network = world.network
    network.set_default_link(Link(latency_seconds=0.005, buffer_bytes=buffer_bytes))
    actor = FakeActor(world)
    services = [actor.service(), FakeEnvironment(world, ticks=TICKS).service(), FakeDatalog(world).service()]
    async with trio.open_nursery() as nursery:
        await nursery.start(serve, services, [network.host("fakes").listen(PORT)])
        await trio.sleep(0.1)  # this server accepts now: the descriptors that it holds are not the block's
        nursery.start_soon(desk, world, actor)
        with block:
            async with world.serve_orchestrator(port=PORT) as orchestrator:
                orchestrator.make_machine = recorder.machine
                await trio.sleep(0.3)
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    check_history(world.history)
    check_told(world.history, recorder)


async def desk(world: World, actor: FakeActor) -> None:
    async with world.network.host("desk").channel("orchestrator", PORT) as channel:
        await start_and_join(world, channel, actor, f"grpc://fakes:{PORT}")


# --- what must be so ---


def said(recorder: TrialRecorder) -> tuple[set[int], set[int]]:
    """Return whom the machine has contacted, and to whom it has said END."""
    contacted: set[int] = set()
    ended: set[int] = set()
    for line in recorder.trials[TRIAL].lines if TRIAL in recorder.trials else ():
        if line.get("out") == "connect" or line.get("in") == "joined":
            contacted.add(line["participant"])
        elif line.get("out") == "send" and line["message"].startswith("state: END"):
            ended.add(line["participant"])
    return contacted, ended


def check_told(history: History, recorder: TrialRecorder, *, without: str = "") -> None:
    """Everybody who was contacted was said END to, and has heard it if it was there to hear anything.

    Nobody misbehaves here: whoever is lost before END was lost by us.
    """
    contacted, ended = said(recorder)
    assert {NAMES[index] for index in contacted - ended} <= {without}
    opened = {event.who for event in history if event.what == "opened"}
    heard = {event.who for event in history if event.what == "end"}
    told = {NAMES[index] for index in ended}
    assert (told & opened) - heard <= {without}, (told, opened, heard)
