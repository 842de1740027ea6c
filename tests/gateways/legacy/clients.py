"""Old clients, on this package's own gRPC, and platforms that they call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from tests.gateways.legacy.playing import Field, Newcomer, parameters
from tests.gateways.legacy.servers import PROFILE
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.legacy import common_pb2 as legacy
from trio_cogment.api.legacy import orchestrator_pb2 as pb
from trio_cogment.base.config import PlatformConfig
from trio_cogment.gateways.legacy import LegacyGateway, LegacyProfile
from trio_cogment.gateways.legacy.gateway import OpenedLegacyGateway
from trio_cogment.platform import Platform, open_platform
from trio_cogment.rpc import CallOpener, methods_of
from trio_cogment.sdk import Participants

TRIAL = methods_of(pb.DESCRIPTOR.services_by_name["Trial"])
CLIENT = "cogment://client"


@dataclass
class OldClient:
    """Calls `cogment.Trial`, and remembers the trial and the actor it has been given."""

    channel: CallOpener
    session_id: str = ""
    trial_id: str = ""
    actor_id: int = -1

    async def call(self, method: str, request: Any, timeout: float | None = None) -> Any:
        metadata = (("session_id", self.session_id),) if self.session_id else ()
        return await self.channel.unary(TRIAL[method], request, metadata=metadata, timeout=timeout)

    def _taken(self, reply: pb.TrialStartReply) -> pb.TrialStartReply:
        self.trial_id, self.actor_id = reply.trial_id, reply.actor_id
        return reply

    async def start(self, config: bytes | None = None, *, timeout: float | None = None) -> pb.TrialStartReply:
        request = pb.TrialStartRequest(user_id="ann")
        if config is not None:
            request.config.content = config
        return self._taken(await self.call("Start", request, timeout))

    async def join(self, trial_id: str, actor_id: int, *, timeout: float | None = None) -> pb.TrialStartReply:
        request = pb.TrialJoinRequest(trial_id=trial_id, actor_id=actor_id)
        return self._taken(await self.call("Join", request, timeout))

    def action(self, content: bytes) -> pb.TrialActionRequest:
        return pb.TrialActionRequest(
            trial_id=self.trial_id, actor_id=self.actor_id, action=legacy.Action(content=content)
        )

    async def act(self, content: bytes, *, timeout: float | None = None) -> pb.TrialActionReply:
        reply: pb.TrialActionReply = await self.call("Action", self.action(content), timeout)
        return reply

    async def end(self) -> None:
        await self.call("End", pb.TrialEndRequest(trial_id=self.trial_id))

    async def heartbeat(self) -> None:
        await self.call("Heartbeat", pb.TrialHeartbeatRequest(trial_id=self.trial_id))

    async def feed_back(self, *feedbacks: legacy.Feedback) -> None:
        await self.call("GiveFeedback", pb.TrialFeedbackRequest(trial_id=self.trial_id, feedbacks=feedbacks))

    async def send(self, *messages: legacy.Message) -> None:
        await self.call("SendMessage", pb.TrialMessageRequest(trial_id=self.trial_id, messages=messages))


class Kept:
    """A gateway that can be looked at while it is open."""

    def __init__(self, profile: LegacyProfile) -> None:
        self._gateway = LegacyGateway(profile)
        self.opened: OpenedLegacyGateway | None = None

    @asynccontextmanager
    async def open(self, platform: Platform) -> AsyncIterator[OpenedLegacyGateway]:
        async with self._gateway.open(platform) as self.opened:
            yield self.opened


@dataclass
class Theatre:
    """A platform for old clients, and who plays there."""

    platform: Platform
    newcomer: Newcomer
    ground: Field
    gateway: OpenedLegacyGateway

    def client(self, session_id: str = "") -> OldClient:
        return OldClient(self.platform.channel, session_id)

    async def actions(self) -> list[list[bytes]]:
        """Return the actions of each tick, in the order of the parameters."""
        return [[each.payload for each in event.actions] for event in self.ground.events if event.actions is not None]


def with_clients(*names: str, **options: Any) -> TrialParams:
    """Return parameters in which these actors are clients."""
    params = parameters(**options)
    for actor in params.actors:
        if actor.name in names:
            actor.endpoint = CLIENT
            actor.implementation = ""
    return params


@asynccontextmanager
async def theatre(
    params: TrialParams | None = None,
    profile: LegacyProfile = PROFILE,
    *,
    default_params: TrialParams | None = None,
    ends_at: int = 3,
    hooks: Sequence[Any] = (),
) -> AsyncIterator[Theatre]:
    """Open a platform whose old clients start trials with these parameters."""
    newcomer, ground = Newcomer(), Field(ends_at)
    found = Participants()
    found.register_actor(newcomer.play, "today")
    found.register_environment(ground.play, "today")
    for number, hook in enumerate(hooks):
        found.register_pre_trial_hook(hook, f"hook {number}")
    if params is not None:
        profile = replace(profile, params=params)
    settings = PlatformConfig(default_params=default_params, pre_trial_hooks=("cogment://discover",) if hooks else ())
    gateway = Kept(profile)
    async with open_platform(found, config=settings, extensions=[gateway]) as platform:
        assert gateway.opened is not None
        yield Theatre(platform, newcomer, ground, gateway.opened)
