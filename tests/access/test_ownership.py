"""Ownership of trials that somebody else has started, over the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from tests.access.keys import control, grant, token_text
from trio_cogment.access import AccessControl, Grant, Quotas, Role
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.config import PlatformConfig
from trio_cogment.base.endpoints import CLIENT
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.platform import Platform, open_platform
from trio_cogment.rpc import Channel, open_listeners, serve
from trio_cogment.sdk import (
    ActorSession,
    Controller,
    EnvironmentSession,
    Participants,
    actor_params,
    join_trial,
    trial_params,
)

PATIENCE_SECONDS = 30
OPERATOR = {"alice": (Role.OPERATOR,), "bob": (Role.OPERATOR,), "eve": (Role.OBSERVER,), "root": (Role.ADMIN,)}


async def idle(session: EnvironmentSession) -> None:
    await session.start([("*", b"")])
    async for event in session.all_events():
        if event.actions is not None:
            await session.produce_observations([("*", b"")])


async def play(session: ActorSession) -> None:
    async for event in session.all_events():
        if event.observation is not None:
            await session.do_action(b"")


class World:
    """A platform that asks for tokens, and who calls it."""

    def __init__(self, platform: Platform, port: int, nursery: trio.Nursery, access: AccessControl) -> None:
        self.platform = platform
        self.access = access
        self._port = port
        self._nursery = nursery

    @asynccontextmanager
    async def channel(self, held: Grant | None) -> AsyncIterator[Channel]:
        token = "" if held is None else token_text(held, token_id="".join(filter(str.isalnum, held.name)))
        async with Channel("127.0.0.1", self._port, token=token) as channel:
            yield channel

    def named(self, name: str) -> Grant:
        return grant(*OPERATOR[name], name=name)


@asynccontextmanager
async def world(config: PlatformConfig | None = None, store: str = "memory:") -> AsyncIterator[World]:
    participants = Participants()
    participants.register_environment(idle)
    with trio.fail_after(PATIENCE_SECONDS):
        async with (
            open_platform(participants, config=config, store=store) as platform,
            trio.open_nursery() as nursery,
        ):
            listeners = await open_listeners("127.0.0.1")
            access = control()
            running = await nursery.start(partial(serve, platform.services, listeners, access=access))
            yield World(platform, running.port, nursery, access)
            nursery.cancel_scope.cancel()


PARAMS = trial_params(
    [actor_params("ann", "pilot", endpoint=CLIENT), actor_params("cas", "captain", endpoint=CLIENT)],
    datalog_endpoint="cogment://discover",
)


async def refused(doing: object) -> StatusCode:
    with pytest.raises(RpcError) as caught:
        await doing  # type: ignore[misc]  # whatever awaitable it is
    return caught.value.code


async def test_operators_end_and_see_their_own_trials_only() -> None:
    async with (
        world() as here,
        here.channel(here.named("alice")) as alices,
        here.channel(here.named("bob")) as bobs,
        here.channel(here.named("eve")) as eves,
        here.channel(here.named("root")) as roots,
    ):
        alice, bob, eve, root = map(Controller, (alices, bobs, eves, roots))
        hers, his = await alice.start_trial(PARAMS), await bob.start_trial(PARAMS)
        ours = await here.platform.controller.start_trial(PARAMS)
        assert {info.trial_id for info in await alice.trial_infos()} == {hers}
        assert await alice.trial_infos([his]) == []
        assert {info.trial_id for info in await bob.trial_infos([hers, his])} == {his}
        for reader in (eve, root):
            assert {info.trial_id for info in await reader.trial_infos()} == {hers, his, ours}
        for other in (his, ours):
            assert await refused(alice.terminate_trial([hers, other], hard=True)) is StatusCode.PERMISSION_DENIED
        assert await refused(eve.terminate_trial(hers)) is StatusCode.PERMISSION_DENIED
        # A request that was refused has ended nothing.
        assert {info.state for info in await root.trial_infos()} == {TrialState.PENDING}
        await alice.terminate_trial(hers, hard=True)
        await root.terminate_trial([his, ours], hard=True)


async def test_a_watcher_sees_what_it_reaches() -> None:
    async with (
        world() as here,
        here.channel(here.named("alice")) as alices,
        here.channel(here.named("bob")) as bobs,
        here.channel(here.named("eve")) as eves,
    ):
        alice, bob, eve = map(Controller, (alices, bobs, eves))
        before = await alice.start_trial(PARAMS), await bob.start_trial(PARAMS)
        seen: dict[str, set[str]] = {"alice": set(), "eve": set()}
        async with trio.open_nursery() as nursery:
            watching = trio.Event()

            async def watch(name: str, controller: Controller, until: int) -> None:
                async with controller.watch_trials() as entries:
                    async for entry in entries:
                        seen[name].add(entry.trial_id)
                        watching.set()
                        if len(seen[name]) == until:
                            return

            nursery.start_soon(watch, "eve", eve, 4)
            nursery.start_soon(watch, "alice", alice, 2)
            await watching.wait()
            after = await bob.start_trial(PARAMS), await alice.start_trial(PARAMS)
        assert seen == {"eve": {*before, *after}, "alice": {before[0], after[1]}}


@pytest.mark.parametrize(
    ("held", "actor", "allowed"),
    [
        (grant(Role.PARTICIPANT, name="p"), "ann", True),
        (Grant(name="p", roles=frozenset([Role.PARTICIPANT]), classes=("pilot",)), "ann", True),
        (Grant(name="p", roles=frozenset([Role.PARTICIPANT]), classes=("pilot",)), "cas", False),
        (Grant(name="p", roles=frozenset([Role.PARTICIPANT]), actors=("cas",)), "ann", False),
        (Grant(name="p", roles=frozenset([Role.PARTICIPANT]), trials=("lab-*",)), "ann", True),
        (Grant(name="p", roles=frozenset([Role.PARTICIPANT]), trials=("other",)), "ann", False),
        (grant(Role.OPERATOR, name="alice"), "ann", True),
        (grant(Role.OPERATOR, name="bob"), "ann", False),
        (grant(Role.OBSERVER, name="alice"), "ann", False),
        (grant(Role.ADMIN, name="root"), "ann", True),
    ],
)
async def test_actors_are_played_by_those_they_are_for(held: Grant, actor: str, allowed: bool) -> None:
    async with world() as here, here.channel(here.named("alice")) as alices, here.channel(held) as theirs:
        trial_id = await Controller(alices).start_trial(PARAMS, trial_id="lab-1")
        joined = trio.Event()

        async def seen(session: ActorSession) -> None:
            joined.set()
            await play(session)

        async with trio.open_nursery() as nursery:

            async def join() -> None:
                await join_trial(theirs, trial_id, seen, actor_name=actor)

            if allowed:
                nursery.start_soon(join)
                await joined.wait()
            else:
                assert await refused(join()) is StatusCode.PERMISSION_DENIED
                assert not joined.is_set()
            await Controller(alices).terminate_trial(trial_id, hard=True)


async def test_a_stranger_does_not_learn_whether_there_is_a_trial() -> None:
    held = Grant(name="p", roles=frozenset([Role.PARTICIPANT]), trials=("other",))
    async with world() as here, here.channel(here.named("alice")) as alices, here.channel(held) as theirs:
        await Controller(alices).start_trial(PARAMS, trial_id="there")
        texts = set()
        for trial_id in ("there", "away!"):
            with pytest.raises(RpcError) as caught:
                await join_trial(theirs, trial_id, play, actor_name="ann")
            texts.add((caught.value.code, caught.value.message.replace(trial_id, "?")))
        assert texts == {(StatusCode.PERMISSION_DENIED, "metadata trial-id: trial '?': not for this caller")}


async def test_a_quota_of_trials_holds_under_races_and_is_given_back() -> None:
    held = grant(Role.OPERATOR, name="alice", quotas=Quotas(trials=3))
    async with world() as here, here.channel(held) as first, here.channel(held) as second:
        results: list[str] = []
        refusals: list[tuple[StatusCode, str]] = []

        async def start(channel: Channel) -> None:
            try:
                results.append(await Controller(channel).start_trial(PARAMS))
            except RpcError as error:
                refusals.append((error.code, error.message))

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(start, first)
                nursery.start_soon(start, second)
        assert len(results) == 3
        assert set(refusals) == {
            (StatusCode.RESOURCE_EXHAUSTED, "the quota of 3 trials of this account is used up"),
        }
        # Others have their own.
        async with here.channel(here.named("bob")) as bobs:
            assert await Controller(bobs).start_trial(PARAMS)
        await Controller(first).terminate_trial(results.pop(), hard=True)
        while not results[2:]:
            await start(second)
            await trio.lowlevel.checkpoint()
        assert len({*results}) == 3
