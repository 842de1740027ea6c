"""Participants that are served and registered with a directory."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

from trio_cogment._version import __version__
from trio_cogment.base.config import DirectoryServerConfig
from trio_cogment.base.services import ServiceKind
from trio_cogment.platform import open_platform
from trio_cogment.rpc import InProcessChannel
from trio_cogment.sdk import (
    ActorSession,
    EnvironmentSession,
    Participants,
    actor_params,
    serve_participants,
    trial_params,
)
from trio_cogment.sdk.spec import ActorClass, Spec
from trio_cogment.servers.directory import DirectoryServer, directory_services
from trio_cogment.servers.discovery import DirectoryClient, Offer
from trio_cogment.testing.fakes.directory import FakeDirectory


async def never(_session: Any) -> None:
    raise AssertionError


def of(kind: ServiceKind, **properties: str) -> Offer:
    return Offer(kind=kind, port=7, properties=properties)


def actor(actor_class: str, implementation: str, **properties: str) -> Offer:
    return of(ServiceKind.ACTOR, __actor_class=actor_class, __implementation=implementation, **properties)


async def test_an_address_is_no_host() -> None:
    address: Any = "127.0.0.1"
    with pytest.raises(TypeError, match=r"host: expected a Host, got a text; the address is `address='127\.0\.0\.1'`"):
        await serve_participants(Participants(), host=address)


def test_what_is_offered() -> None:
    participants = Participants(Spec.of(ActorClass("a"), ActorClass("b")))
    assert participants.offers(7) == []
    participants.register_actor(never, "two", ["b", "a"], properties={"speed": "high"})
    participants.register_actor(never, "any")
    participants.register_environment(never, properties={"__implementation": "renamed"})
    participants.register_environment(never, "other")
    participants.register_pre_trial_hook(never)
    participants.register_pre_trial_hook(never, "second")
    participants.register_datalog(never)
    assert participants.offers(7) == [
        actor("a", "two", speed="high"),
        actor("b", "two", speed="high"),
        actor("a", "any"),
        actor("b", "any"),
        of(ServiceKind.ENVIRONMENT, __implementation="renamed"),
        of(ServiceKind.ENVIRONMENT, __implementation="other"),
        of(ServiceKind.PRE_TRIAL_HOOK),
        of(ServiceKind.DATALOG),
    ]


def test_without_classes_there_is_none_to_name() -> None:
    participants = Participants()
    participants.register_actor(never, "any")
    assert participants.offers(7) == [of(ServiceKind.ACTOR, __implementation="any")]


@pytest.mark.parametrize("given", ["", "elsewhere"])
async def test_registered_while_served(given: str) -> None:
    fake, participants = FakeDirectory(), Participants()
    participants.register_environment(never)
    with trio.fail_after(60):
        async with InProcessChannel([fake.service()]) as channel, trio.open_nursery() as nursery:
            run = partial(
                serve_participants,
                participants,
                address="127.0.0.1",
                directory=DirectoryClient(channel),
                registration_host=given,
                registration_properties={"zone": "a"},
            )
            serving = await nursery.start(run)
            await fake.wait_until(lambda: bool(fake.entries))
            (entry,) = fake.entries.values()
            assert (entry.data.endpoint.host, entry.data.endpoint.port) == (given or "127.0.0.1", serving.port)
            assert dict(entry.data.details.properties) == {
                "__implementation": "default",
                "__registration_source": "PythonSDK-Implicit",
                "__version": __version__,
                "zone": "a",
            }
            nursery.cancel_scope.cancel()
        assert not fake.entries


async def test_an_actor_without_classes_is_found_through_a_directory_for_every_class() -> None:
    classes: list[str] = []

    async def world(session: EnvironmentSession) -> None:
        await session.start([("*", b"begin")])
        async for event in session.all_events():
            if event.actions is not None:
                await session.end([("*", b"end")])

    async def anybody(session: ActorSession) -> None:
        classes.append(session.actor_class)
        async for event in session.all_events():
            if event.observation is not None:
                await session.do_action(b"done")

    participants = Participants()
    participants.register_environment(world)
    participants.register_actor(anybody, "anybody")
    with trio.fail_after(60):
        async with (
            DirectoryServer(config=DirectoryServerConfig(startup_lag_seconds=0)) as directory,
            InProcessChannel(directory_services(directory)) as channel,
            open_platform(directory=directory) as platform,
            trio.open_nursery() as nursery,
        ):
            client = DirectoryClient(channel)
            serve_them = partial(serve_participants, participants, address="127.0.0.1", directory=client)
            await nursery.start(serve_them)
            while len(await client.inquire()) < 2:  # noqa: ASYNC110  a directory has no event for it
                await trio.sleep(0.01)
            actors = [actor_params("ann", "player"), actor_params("bob", "judge", implementation="anybody")]
            trial = await platform.controller.start_trial(trial_params(actors))
            await platform.controller.wait_trial(trial)
            nursery.cancel_scope.cancel()
    assert sorted(classes) == ["judge", "player"]
