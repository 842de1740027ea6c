"""The web proxy: trials are started, listed and played by requests, each with its answer.

A page takes the part of an actor by joining, and holds it by a token that the answer has. The answer to an action is
the next observation, whenever that comes (a long poll).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from trio_cogment.access import EXACTLY, AccessControl, Grant, Identity, Role, anonymous, authorization
from trio_cogment.base.config import WebProxyConfig
from trio_cogment.base.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from trio_cogment.budget.shares import share_of
from trio_cogment.gateways.rest.acting import Act, act_from_json, default_act, message_to_json, reward_to_json
from trio_cogment.gateways.rest.messages import loads, payload_to_json, to_json
from trio_cogment.gateways.rest.observations import ObservationTexts, UnreadableError
from trio_cogment.gateways.rest.seats import Seats, WebSeat
from trio_cogment.gateways.rest.starting import trial_from_json
from trio_cogment.rpc import CallOpener, WithMetadata
from trio_cogment.sdk import ActorSession, Controller, Participants
from trio_cogment.sdk.spec import Spec
from trio_cogment.seats.mailbox import Answer

#: The user id of the trials, as with the reference.
_USER = "web_proxy_controller/start_trial"
_START = "/cogmentAPI.TrialLifecycleSP/StartTrial"
_LIST = "/cogmentAPI.TrialLifecycleSP/GetTrialInfo"
#: Whose trials are remembered, so that they may play in them.
_MOST_OWNERS = 10_000
#: The name of who holds a token of a seat.
_HOLDER = "web_proxy"
#: Whose the seats are in trials that were started elsewhere.
_ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request.

    Attributes:
        peer: the other end, in gRPC's notation.
        identity: whose token or certificate it has; None: nobody is known.
        token: of the platform, empty without one: the orchestrator gets it, too.
        seat_token: of an actor.
    """

    peer: str
    identity: Identity | None = None
    token: str = ""
    seat_token: str = ""


class RestProxy:
    """See the module.

    Args:
        spec: the types of the project.
        signing: signs and verifies the tokens of actors; it has keys, and if they are not the platform's, `control` is
            its platform.
        control: decides about callers; None: everybody may do everything.
        implementation: the name by which trials ask for actors that play here.
        config: limits.
        participants: where the actors are to be registered.
        recheck_seconds: how often is looked for actors whose token was revoked; they leave.
    """

    def __init__(
        self,
        spec: Spec,
        *,
        signing: AccessControl,
        control: AccessControl | None = None,
        implementation: str = "web",
        config: WebProxyConfig | None = None,
        participants: Participants | None = None,
        recheck_seconds: float = 5.0,
    ) -> None:
        self.spec = spec
        self.config = config or WebProxyConfig()
        self.implementation = implementation
        self.participants = participants or Participants(spec)
        self.participants.register_actor(self._play, implementation, spec.names())
        self._signing = signing
        self._control = control
        self._owners: OrderedDict[str, str] = OrderedDict()
        #: By whom trials are being started.
        self._starting: dict[str, str] = {}
        self._orchestrator: CallOpener | None = None
        self._seats = Seats(self.config, signing.stand, recheck_seconds)
        self._texts = ObservationTexts()

    def connect(self, orchestrator: CallOpener) -> None:
        """Say which orchestrator starts and lists trials; before that there are no requests."""
        self._orchestrator = orchestrator

    async def _play(self, session: ActorSession) -> None:
        trial_id = session.trial_id
        owner = self._owners.get(trial_id) or self._starting.get(trial_id) or _ELSEWHERE
        await self._seats.play(session, owner)

    # --- trials ---

    async def list_trials(self, caller: Caller) -> list[dict[str, Any]]:
        """Return the trials that the orchestrator has, those of the caller if it may see no others."""
        infos = await self._controller(caller, _LIST).trial_infos()
        return [
            {
                "trial_id": info.trial_id,
                **({"env_name": info.env_name} if info.env_name else {}),
                **({"state": info.state} if info.state else {}),
                **({"properties": dict(info.properties)} if info.properties else {}),
            }
            for info in infos
        ]

    async def start_trial(self, caller: Caller, body: bytes) -> dict[str, Any]:
        """Start a trial; return its id, and tokens for its actors that play here.

        Raises:
            InvalidArgumentError: the body makes no sense; the text names the field.
            AlreadyExistsError: the id is taken.
            ResourceExhaustedError: there is no room for its actors that play here.
            RpcError: the orchestrator refuses.
        """
        controller = self._controller(caller, _START)
        wanted, params = trial_from_json(loads(body), self.spec)
        account = self._identity(caller).account
        trial_id = wanted or self.participants.host.new_id()
        if trial_id in self._starting:
            raise AlreadyExistsError(f"trial_id: there is a trial {trial_id!r} already")
        here = [actor.name for actor in params.actors if actor.implementation == self.implementation]
        # Refused now, at no cost: else a trial would start, and end when its actors find no room.
        self._seats.expect_room(account, len(here))
        self._starting[trial_id] = account
        try:
            if not await controller.start_trial(params, trial_id=trial_id):
                raise AlreadyExistsError(f"trial_id: there is a trial {trial_id!r} already")
            self._owners[trial_id] = account
        finally:
            del self._starting[trial_id]
        if len(self._owners) > _MOST_OWNERS:
            self._owners.popitem(last=False)
        return {
            "message": "trial started",
            "trial_id": trial_id,
            "tokens": {name: self._token(trial_id, name, self._identity(caller)) for name in here},
        }

    def _controller(self, caller: Caller, right: str) -> Controller:
        identity = self._identity(caller)
        if identity.scope(right) is None:
            raise PermissionDeniedError(f"{right}: not allowed for the caller's roles")
        assert self._orchestrator is not None, "there is no orchestrator"
        opener = self._orchestrator
        if self._control is not None and caller.token:
            # The orchestrator judges the caller, not this proxy; what it starts is the caller's.
            opener = WithMetadata(opener, authorization(caller.token))
        return Controller(opener, spec=self.spec, user_id=_USER)

    def _identity(self, caller: Caller) -> Identity:
        if self._control is None:
            return anonymous(caller.peer)
        if caller.identity is None:
            raise UnauthenticatedError("expected a token, in the field authorization as 'Bearer TOKEN'")
        return caller.identity

    # --- actors ---

    async def join(self, caller: Caller, trial_id: str, actor_name: str) -> dict[str, Any]:
        """Take the part of an actor, or come back to it; return its first or present observation, and a token.

        Raises:
            UnauthenticatedError, PermissionDeniedError: the caller may not.
            NotFoundError: the trial has not started in time, or has no such actor that plays here.
            FailedPreconditionError: somebody else has joined, or the actor's part is over.
        """
        by_token = bool(caller.seat_token)
        holder = self._holder(caller.seat_token, trial_id, actor_name) if by_token else self._identity(caller)
        # Everybody's token of a seat has the same name.
        asking = anonymous(caller.peer) if by_token else holder
        seat = await self._seats.awaited(trial_id, actor_name, share_of(asking))
        self._check_stands(holder)
        account = seat.account if by_token else self._may_play(caller, seat)
        if not by_token and not seat.is_free and account != seat.account:
            raise FailedPreconditionError("somebody has joined; expected the token of the actor to join again")
        seat.join(account, holder.derives)
        news = await seat.news()
        self._check_stands(holder)
        session = seat.session
        return {
            "message": "joined",
            "trial_id": trial_id,
            "actor_name": session.name,
            "actor_class": session.actor_class,
            "actor_implementation": session.implementation,
            **({} if session.config is None else {"actor_config": payload_to_json(session.config)}),
            **await self._told(seat, news),
            "token": self._renewed(holder) if by_token else self._token(trial_id, actor_name, holder),
        }

    def _may_play(self, caller: Caller, seat: WebSeat) -> str:
        """Return the account of a caller, who may take the part of an actor."""
        identity, session = self._identity(caller), seat.session
        owner = self._owners.get(session.trial_id, "")
        if not identity.plays(session.trial_id, owner, session.actor_class, session.name):
            raise PermissionDeniedError("the caller may not play as this actor")
        return identity.account

    def leave(self, caller: Caller, trial_id: str, actor_name: str) -> dict[str, Any]:
        """Leave a trial.

        Raises:
            UnauthenticatedError: the token is missing, or is not one of this actor.
            NotFoundError: there is no such actor, or its part is over.
        """
        self._holder(caller.seat_token, trial_id, actor_name)
        self._seats.get(trial_id, actor_name).leave()
        return {"message": "left"}

    async def act(
        self, caller: Caller, trial_id: str, actor_name: str, tick_id: int, body: bytes | None
    ) -> dict[str, Any]:
        """Act for an observation; return the next one, or the end.

        Args:
            caller: has a token of the actor.
            trial_id: of the trial.
            actor_name: of the actor.
            tick_id: of the observation.
            body: the action, and rewards and messages; None: the action of which nothing is said.

        Raises:
            UnauthenticatedError: the token is missing, or is not one of this actor.
            InvalidArgumentError: the body makes no sense; the text names the field.
            NotFoundError: there is no such actor, or its part is over.
            FailedPreconditionError: it is not the actor's turn, or not in this tick.
        """
        holder = self._holder(caller.seat_token, trial_id, actor_name)
        seat = self._seats.get(trial_id, actor_name)
        kind = self.spec.actor_class(seat.session.actor_class).action
        act = default_act(kind) if body is None else act_from_json(loads(body), kind, self.spec)
        seat.act(tick_id, act)
        news = await seat.news()
        self._check_stands(holder)
        return {
            "message": "trial ended" if news is Answer.END else "acted",
            **await self._told(seat, news),
            "action": payload_to_json(act.action),
            **self._sent(act),
        }

    async def _told(self, seat: WebSeat, news: Answer) -> dict[str, Any]:
        """Return what a page is told of the news that its seat has just had; see `ObservationTexts.as_json`."""
        mailbox, ended = seat.mailbox, news is Answer.END
        document: dict[str, Any] = {
            "tick_id": str(mailbox.tick_id + ended),  # the end comes after the last tick
            "ended": ended,
            "final": mailbox.final and not ended,
        }
        observation = None if ended else mailbox.observation
        if mailbox.rewards:
            document["rewards"] = [reward_to_json(reward, self.spec) for reward in mailbox.rewards]
        if mailbox.messages:
            document["messages"] = [message_to_json(message, self.spec) for message in mailbox.messages]
        if ended and seat.details:
            document["details"] = seat.details
        if observation is not None:
            kind = self.spec.actor_class(seat.session.actor_class).observation
            try:
                document["observation"] = await self._texts.as_json(observation.payload, kind)
            except UnreadableError:
                if not seat.is_finished:
                    seat.leave()  # as any actor goes that cannot read what it is to see
                raise
        return document

    def _sent(self, act: Act) -> dict[str, Any]:
        """Return what was sent with an action, as the reference does."""
        if not act.rewards:
            return {}
        return {
            "sent_rewards": [
                {
                    "tick_id": str(reward.tick_id),
                    "receiver": reward.to,
                    "value": reward.value,
                    "confidence": reward.confidence,
                    **({} if reward.user_data is None else {"user_data": to_json(reward.user_data)}),
                }
                for reward in act.rewards
            ]
        }

    # --- tokens of actors ---

    def _token(self, trial_id: str, actor_name: str, holder: Identity) -> str:
        """Return a token of an actor, which ends with what its holder is known by."""
        grant = Grant(
            name=_HOLDER,
            roles=frozenset([Role.SEAT]),
            trials=(EXACTLY + trial_id,),
            actors=(EXACTLY + actor_name,),
        )
        return self._signing.mint(grant, self.config.token_seconds, holder.derives)

    def _check_stands(self, holder: Identity) -> None:
        """Refuse a request whose token was revoked while it waited.

        Raises:
            UnauthenticatedError: it was.
        """
        if not self._signing.stand(holder.derives):
            raise UnauthenticatedError("the token has been revoked")

    def _renewed(self, holder: Identity) -> str:
        return self._signing.renew(holder, self.config.token_seconds)

    def _holder(self, text: str, trial_id: str, actor_name: str) -> Identity:
        """Return whose the token of an actor is that a request has.

        Raises:
            UnauthenticatedError: it has none, or one that is not valid for this actor (any more).
        """
        if not text:
            raise UnauthenticatedError("Cogment-Actor-Trial-Token: expected the token of this actor")
        holder = self._signing.verified(text, local=False)
        if (holder.grant.trials, holder.grant.actors) != ((EXACTLY + trial_id,), (EXACTLY + actor_name,)):
            raise UnauthenticatedError("Cogment-Actor-Trial-Token: it is not that of this actor")
        return holder
