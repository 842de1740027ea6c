"""An old client's place in a running trial: its calls, and the stream of the actor that it plays."""

from __future__ import annotations

import logging
from typing import Any

import trio

from trio_cogment.api.legacy import orchestrator_pb2 as pb
from trio_cogment.base.errors import (
    AlreadyExistsError,
    CogmentError,
    FailedPreconditionError,
    LocalProtocolError,
    UnavailableError,
)
from trio_cogment.base.host import Host
from trio_cogment.gateways.legacy.actor_ids import ActorIds, Member
from trio_cogment.gateways.legacy.client_part import ClientPart
from trio_cogment.gateways.legacy.client_states import JOINED, Do, State
from trio_cogment.rpc import CallOpener
from trio_cogment.sdk import ActorSession, Event, Reward, join_trial
from trio_cogment.sdk.spec import encode

_log = logging.getLogger(__name__)


class ClientSeat:
    """The place of one old client in one trial.

    Args:
        nursery: where its stream is.
        opener: a channel to the orchestrator.
        trial_id: of the trial.
        ids: of the trial.
        member: the actor.
        config: of the actor, as far as it is known before it has joined.
        host: gives the wall clock.

    Attributes:
        member: see above.
        session_id: of the client, if it says; some calls name nobody else.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        opener: CallOpener,
        trial_id: str,
        ids: ActorIds,
        member: Member,
        config: bytes | None,
        host: Host,
    ) -> None:
        self.member = member
        self.session_id = ""
        self._part = ClientPart(trial_id, ids, member)
        self._nursery = nursery
        self._opener = opener
        self._trial_id = trial_id
        self._config = config
        self._host = host
        self._session: ActorSession[Any, Any, Any] | None = None
        #: Of the call that waits.
        self._answered: trio.Event | None = None
        self._refusal: CogmentError | None = None
        #: Act with nothing from now on: the client has ended the trial.
        self._drained = False

    @property
    def state(self) -> State:
        """Where the client is."""
        return self._part.state

    @property
    def is_joined(self) -> bool:
        """Whether the client has a part in the trial, and it goes on."""
        return self._part.state in JOINED

    @property
    def is_over(self) -> bool:
        """Whether the trial is over for it."""
        return self._part.state in (State.ENDED, State.OVER)

    @property
    def _who(self) -> str:
        return f"trial {self._trial_id!r}, actor {self.member.actor_id}"

    # Calls

    async def join(self, session_id: str, *, wait: bool = True) -> pb.TrialStartReply:
        """Answer a call that joins the trial.

        Args:
            session_id: of the client.
            wait: for the first observation; otherwise the next call gets it.

        Raises:
            AlreadyExistsError: somebody has joined.
            FailedPreconditionError: the trial is over.
            UnavailableError: another call of this client waits.
            CogmentError: the trial does not have the client.
        """
        self._check_free()
        do = self._part.call_join()
        if do is Do.TAKEN:
            raise AlreadyExistsError(f"{self._who}: a client has joined already")
        if do is Do.OVER:
            raise FailedPreconditionError(f"{self._who}: the trial is over")
        self.session_id = session_id or self.session_id
        if do is Do.JOIN:
            self._nursery.start_soon(self._run, name=f"old client in trial {self._trial_id}")
        if not wait:
            self._part.call_gone()
            return self._part.start_reply(self._config, with_observation=False)
        if do is not Do.ANSWER:
            await self._wait()
        return self._part.start_reply(self._config)

    async def act(self, content: bytes) -> pb.TrialActionReply:
        """Answer a call with an action: the next observation, or the final answer.

        Raises:
            FailedPreconditionError: nobody has joined.
            UnavailableError: another call of this client waits.
            CogmentError: the trial does not have the client.
        """
        self._check_free()
        do = self._part.call_action(content)
        if do is Do.NOT_JOINED:
            raise FailedPreconditionError(f"{self._who}: no client has joined")
        if do is Do.ACT:
            self._act(content)
        if do is Do.ANSWER:
            await trio.lowlevel.checkpoint()
        else:
            await self._wait()
        return self._part.action_reply()

    def _check_free(self) -> None:
        if self._answered is not None:
            raise UnavailableError(f"{self._who}: busy: another call is being answered")

    async def _wait(self) -> None:
        self._answered = trio.Event()
        told = False
        try:
            await self._answered.wait()
            told = True
        finally:
            self._answered = None
            if self._refusal is not None:
                refusal, self._refusal = self._refusal, None
                if told:
                    raise refusal
            elif told:
                self._part.told()
            else:
                self._part.call_gone()

    # What it says

    def give(self, rewards: list[Reward]) -> None:
        """Give rewards, unless the trial is over."""
        for reward in rewards:
            session = self._speaking()
            if session is not None:
                session.add_reward_nowait(
                    reward.value, reward.confidence, reward.to, tick_id=reward.tick_id, user_data=reward.user_data
                )

    def send(self, messages: list[tuple[Any, str]]) -> None:
        """Send messages, unless the trial is over."""
        for payload, receiver in messages:
            session = self._speaking()
            if session is not None:
                session.send_message_nowait(payload, receiver)

    def _speaking(self) -> ActorSession[Any, Any, Any] | None:
        session = self._session
        return None if session is None or session.is_over else session

    def drain(self) -> None:
        """Act with nothing from now on, whenever the trial waits for the client: it has ended the trial."""
        self._drained = True
        if self._part.owes_an_action and self._answered is None:
            self._act(b"")

    def _act(self, content: bytes) -> None:
        session = self._speaking()
        if session is None:
            return
        try:
            session.do_action_nowait(content)
        except LocalProtocolError as error:
            # The trial has ended in this very moment; the final answer follows.
            _log.debug("%s: %s", self._who, error)

    # The stream

    async def _run(self) -> None:
        try:
            await join_trial(self._opener, self._trial_id, self._play, actor_name=self.member.name, host=self._host)
        except CogmentError as error:
            _log.warning("%s: %s%s", self._who, "a client cannot join: " if self._session is None else "", error)
            self._lost(error)
        except Exception:  # noqa: BLE001  the boundary of a client
            _log.exception("%s: the gateway failed", self._who)
            self._lost(UnavailableError(f"{self._who}: the gateway failed; its log has the details"))
        finally:
            # Also when the gateway stops: whoever waits is answered.
            if self._session is not None or self._part.state is not State.FREE:
                self._end()

    def _lost(self, error: CogmentError) -> None:
        """Refuse the call of a client that cannot join; one that has joined learns that it is over."""
        if self._session is None:
            self._refusal = error if self._part.refused() is Do.FAIL else None
            self._wake()

    def _end(self) -> None:
        session, self._session = self._session, None
        do = self._part.ended()
        if do is Do.FAIL:
            why = "" if session is None or not session.details else f": {session.details}"
            self._refusal = UnavailableError(f"{self._who}: the trial ended before it began{why}")
        if do in (Do.FAIL, Do.ANSWER):
            self._wake()

    async def _play(self, session: ActorSession[Any, Any, Any]) -> None:
        self._session = session
        if session.config is not None:
            self._config = encode(session.config, None, "config")
        await session.handle(self._on_event)

    def _on_event(self, event: Event[Any, None]) -> None:
        do = self._part.take(event)
        if do is Do.ACT:
            self._act(self._part.action)
        elif do is Do.ANSWER:
            self._wake()
        elif self._drained and event.observation is not None and self._part.owes_an_action:
            self._act(b"")

    def _wake(self) -> None:
        if self._answered is not None:
            self._answered.set()
