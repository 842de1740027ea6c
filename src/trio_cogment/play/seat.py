"""A seat that a server holds: the Trio shell around `seat_machine`, and the actor of the trial in one.

Whoever brings an input (the trial, a page, a timer, a bot) feeds the machine in its own task, and what is to be done is
done before that returns; nothing of it waits, so nothing needs a lock. What is an input itself queues behind the one
that is being handled.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import trio
from google.protobuf import wrappers_pb2

from trio_cogment.base.config import PlayConfig
from trio_cogment.base.errors import CogmentError, FailedPreconditionError, InvalidArgumentError
from trio_cogment.base.stand_ins import StandIn, stand_in_note
from trio_cogment.play import seat_machine as machine
from trio_cogment.play.codecs import Codec
from trio_cogment.play.effects import EffectQueue
from trio_cogment.play.page import Page, PageSocket
from trio_cogment.play.page_messages import Act, Hello, PageMessage, Rate, Resign, Say
from trio_cogment.play.seat_machine import Outcome, SeatEffect, SeatMachine, Timer
from trio_cogment.play.seat_parts import SeatSettings, part_of, text_of
from trio_cogment.play.seat_table import SeatState
from trio_cogment.play.stand_in import Asked, Bot
from trio_cogment.play.views import View, page_message
from trio_cogment.sdk import ActorSession, Event, EventType, RecvObservation
from trio_cogment.sdk.spec import Payload
from trio_cogment.web.json_text import shortest_mean

_log = logging.getLogger(__name__)

#: For so long a bot may be at its last answer when it is not needed any more.
_GOODBYE_SECONDS = 2.0
#: What is to be seen before the first observation.
_NOTHING: tuple[int | None, View, Any] = (None, View(), None)
#: What the log says of a person: why a trial waits, and who acts.
_SAID = {
    SeatState.HELD: "the person is here",
    SeatState.AWAY: "the page is gone; the trial waits for it",
    SeatState.ABSENT: "the person stays away; a bot or the default action acts",
    SeatState.LEFT: "the person stays away; the seat is lost",
}


class Seat:
    """One seat in one trial.

    Args:
        trial_id: of the trial.
        actor: the actor's name.
        codec: its payloads.
        settings: see there.
        config: limits.

    Attributes:
        trial_id, actor: see above.
        kept_bytes: how much of it is kept for those who look again, once its part is over.
        on_change: called when the state is another one.
        on_taken: called when the first page comes.
        failure: why the seat could not be taken, or was lost; empty if it was not.
    """

    def __init__(
        self,
        trial_id: str,
        actor: str,
        codec: Codec,
        settings: SeatSettings,
        config: PlayConfig,
    ) -> None:
        self.trial_id = trial_id
        self.actor = actor
        self.failure = ""
        self._playing: Codec | None = codec
        self._settings = settings
        self._config = config
        self.on_change: Callable[[], None] = lambda: None
        self.on_taken: Callable[[], None] = lambda: None
        self._machine = SeatMachine(settings.rules)
        self._perform = EffectQueue(self._perform_one)
        self._session: ActorSession[Any, Any, Any] | None = None
        self._observed: RecvObservation[Any] | None = None
        self._total = 0.0
        self._history: deque[dict[str, Any]] = deque(maxlen=config.max_notices)
        self._last = _NOTHING
        self.kept_bytes = 0
        self._over: dict[str, Any] | None = None
        self._deadline = math.inf
        self._timers = dict.fromkeys(Timer, trio.CancelScope())
        self._bot: Bot | None = None
        self._bot_scope = trio.CancelScope()
        self._bot_gone = trio.Event()
        self._taken = self._resigned = False
        self._nursery: trio.Nursery | None = None
        self._scope = trio.CancelScope()

    @property
    def state(self) -> SeatState:
        """Who sits there."""
        return self._machine.state

    @property
    def _codec(self) -> Codec:
        assert self._playing is not None, "the trial is not over"
        return self._playing

    @property
    def is_vacant(self) -> bool:
        """Whether nobody is there, nor has time to come."""
        return self.state in (SeatState.ABSENT, SeatState.LEFT, SeatState.OVER)

    @property
    def is_given_up(self) -> bool:
        """Whether nobody is expected to come back: nobody has come at all, or who was there has left."""
        return self.is_vacant and (self.state is not SeatState.ABSENT or self._resigned or not self._taken)

    def give_up(self) -> None:
        """Have nobody come, if nobody has: the trial waits no more."""
        self._perform(self._machine.nobody_comes())

    # --- the trial ---

    async def play(self, session: ActorSession[Any, Any, Any]) -> None:
        """Take part in the trial; an `ActorImplementation`."""
        self._session = session
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                try:
                    with self._scope:
                        self._perform(self._machine.begin())
                        await session.handle(self._on_event)
                        if self._dismiss_bot():
                            await self._bot_gone.wait()
                finally:
                    self._nursery = None  # pages come and go meanwhile, and it takes no more tasks
                nursery.cancel_scope.cancel()
        finally:
            self._session = None
            if self._machine.state is not SeatState.LEFT:
                self._finish(session)
            self._settle()

    def fail(self, reason: str) -> None:
        """Have the seat be one that could not be taken, or was lost."""
        self.failure = reason
        self._over = {"cause": "failed", "reason": reason}
        self._perform(self._machine.end())
        self._settle()

    def _settle(self) -> None:
        """Keep what was seen last, for those who look again, and nothing of what it was made of."""
        if self._playing is None:
            return
        self._last = self._look() if self._taken else _NOTHING
        self._playing = self._observed = None
        _, view, _ = self._last
        if view.parts:
            self.kept_bytes = sum(len(content) for _, content in view.blobs) + len(page_message({"parts": view.parts}))

    def _look(self) -> tuple[int | None, View, Any]:
        """Return the tick of the observation, what is shown of it, and the form for an action."""
        observed = self._observed
        if observed is None:
            return _NOTHING
        view = self._codec.view(observed.payload)
        self._without_large(view)
        return observed.tick_id, view, self._codec.form()

    def _finish(self, session: ActorSession[Any, Any, Any]) -> None:
        outcome = session.outcome
        self._over = {
            "cause": "unknown" if outcome is None else outcome.cause.name.lower().replace("_", " "),
            "reason": session.details or ("" if outcome is None else outcome.reason),
        }
        self._perform(self._machine.end())

    def _on_event(self, event: Event[Any, None]) -> None:
        if event.observation is not None:
            self._observe(event.observation, asks=event.type is EventType.ACTIVE)
        elif event.reward is not None:
            sources = event.reward.sources
            value = shortest_mean(event.reward.value, [(source.value, source.confidence) for source in sources])
            # To what adding in binary leaves at the end nobody has given a reward.
            self._total = float(f"{self._total + value:.12g}")
            senders = sorted({source.sender_name for source in sources if source.sender_name})
            self._notify(
                {
                    "type": "reward",
                    "tick": event.reward.tick_id,
                    "value": value,
                    "total": self._total,
                    "from": senders,
                }
            )
        elif event.message is not None and event.message.sender_name != self.actor:
            text = text_of(event.message.payload)
            self._notify({"type": "message", "from": event.message.sender_name, "text": text})

    def _observe(self, observation: RecvObservation[Any], *, asks: bool) -> None:
        self._observed = observation
        asked = self._codec.observe(observation.payload)
        if asked and asks:
            self._perform(self._machine.ask(observation.tick_id))
            return
        self._perform(self._machine.show())
        if asks:
            self._send(self._codec.idle())

    def _notify(self, notice: dict[str, Any]) -> None:
        self._history.append(notice)
        if isinstance(self._machine.page, Page):
            self._machine.page.notify(notice)

    # --- pages ---

    async def serve_page(self, socket: PageSocket) -> None:
        """Have a page at this seat until it is gone."""
        page = Page(self._config)
        before, self._taken, self._resigned = self._taken, True, False
        self._perform(self._machine.attach(page))
        if not before:
            self.on_taken()
        try:
            await page.serve(socket, partial(self._on_page, page))
        finally:
            self._perform(self._machine.detach(page))

    def _on_page(self, page: Page, message: PageMessage) -> None:
        if isinstance(message, Act):
            if page is self._machine.page and message.tick_id == self._machine.asked:
                action = self._codec.action(message.answer)
                self._perform(self._machine.act(page, message.tick_id, action))
            else:
                self._perform(self._machine.act(page, message.tick_id, None))
        elif isinstance(message, Rate | Say):
            self._pass_on(page, message)
        elif isinstance(message, Resign):
            self._resigned = page is self._machine.page
            self._perform(self._machine.resign(page))
        elif not isinstance(message, Hello):  # which pages of lobbies have to say
            raise InvalidArgumentError("expected what a page of a seat says")

    def _pass_on(self, page: Page, message: Rate | Say) -> None:
        """Send what the person says to others."""
        if page is not self._machine.page or self._session is None:
            raise FailedPreconditionError("you do not have this seat any more")
        if message.to not in self._settings.receivers:
            raise InvalidArgumentError(f"to: expected one of {', '.join(self._settings.receivers) or 'nobody'}")
        if self._observed is None:
            raise FailedPreconditionError("the trial has not begun")
        if isinstance(message, Rate):
            self._session.add_reward_nowait(message.value, 1.0, message.to, tick_id=self._observed.tick_id)
        else:
            self._session.send_message_nowait(wrappers_pb2.StringValue(value=message.text), message.to)
        self._notify({"type": "sent", "to": message.to, "what": "reward" if isinstance(message, Rate) else "message"})

    def _render(self, page: Page) -> bytes:
        """Return what a page is to show now."""
        tick, view, form = self._last if self._playing is None else self._look()
        header: dict[str, Any] = {
            "type": "seat",
            "state": self.state.value,
            "tick": tick,
            "asked": self._machine.asked,
            "seconds": self._seconds_left(),
        }
        if page.greeting is not None:
            header["welcome"], page.greeting = page.greeting, None
        if tick is not None and page.new_form(form):
            header["form"] = form
        if self._over is not None:
            header["over"] = self._over
        return page_message({**header, "parts": view.parts}, view.blobs)

    def _seconds_left(self) -> float | None:
        return None if self._deadline == math.inf else max(self._deadline - trio.current_time(), 0.0)

    def _without_large(self, view: View) -> None:
        for index, (_, content) in enumerate(view.blobs):
            if len(content) > self._config.max_blob_bytes:
                view.blobs[index] = ("text/plain", f"{len(content)} bytes, too large to be shown".encode())

    # --- what the machine wants ---

    def _perform_one(self, effect: SeatEffect) -> None:
        _PERFORM[type(effect)](self, effect)

    def _arm(self, effect: machine.Arm) -> None:
        self._timers[effect.timer].cancel()
        if self._nursery is not None:
            scope = self._timers[effect.timer] = trio.CancelScope()
            if effect.timer is Timer.ACTION:
                self._deadline = trio.current_time() + effect.seconds
            self._nursery.start_soon(self._sleep, scope, effect)

    async def _sleep(self, scope: trio.CancelScope, effect: machine.Arm) -> None:
        with scope:
            await trio.sleep(effect.seconds)
            if effect.timer is Timer.ACTION:
                self._deadline = math.inf
            self._perform(self._machine.fire(effect.timer, effect.number))

    def _disarm(self, effect: machine.Disarm) -> None:
        self._timers[effect.timer].cancel()
        if effect.timer is Timer.ACTION:
            self._deadline = math.inf

    def _greet(self, effect: machine.Greet) -> None:
        page = effect.page
        assert isinstance(page, Page)
        page.new_form(None)
        page.welcome(
            {
                "trial": self.trial_id,
                "actor": self.actor,
                "title": self._settings.title,
                "receivers": list(self._settings.receivers),
                "renderer": self._settings.renderer,
                "again": self._settings.again,
                "total": self._total,
                "grace": self._settings.rules.grace_seconds,
                "history": list(self._history),
            }
        )
        page.refresh(self._render)

    def _show(self, effect: machine.Show) -> None:
        assert isinstance(effect.page, Page)
        effect.page.refresh(self._render)

    def _dismiss(self, effect: machine.Dismiss) -> None:
        assert isinstance(effect.page, Page)
        effect.page.notify({"type": "dismissed", "reason": effect.reason, "failure": self.failure})
        effect.page.close()

    def _too_late(self, effect: machine.TooLate) -> None:
        assert isinstance(effect.page, Page)
        effect.page.notify({"type": "late", "tick": effect.tick_id})

    def _send_action(self, effect: machine.Send) -> None:
        self._send(effect.action)
        if isinstance(self._machine.page, Page):
            self._machine.page.refresh(self._render)

    def _send(self, action: Payload) -> None:
        if self._session is not None and not self._session.is_over:
            self._session.do_action_nowait(action)

    def _ask_stand_in(self, effect: machine.AskStandIn) -> None:
        settings = self._settings
        if settings.rules.outcome is not Outcome.BOT:
            self._stand_in_acts(effect.tick_id, settings.default, StandIn.DEFAULT)
            return
        assert self._observed is not None
        if self._bot is None and settings.bot is not None and self._nursery is not None and self._session is not None:
            self._bot = settings.bot(self.trial_id, part_of(self._session), self._on_bot)
            self._bot_scope, self._bot_gone = trio.CancelScope(), trio.Event()
            self._nursery.start_soon(self._run_bot, self._bot, self._bot_scope, self._bot_gone)
        payload = self._codec.for_newcomer(self._observed.payload)
        content = payload if isinstance(payload, bytes) else payload.SerializeToString()
        if self._bot is not None:
            self._bot.ask(Asked(effect.tick_id, self._observed.timestamp, content))

    def _on_bot(self, tick_id: int, content: bytes) -> None:
        self._stand_in_acts(tick_id, content, StandIn.BOT)

    def _stand_in_acts(self, tick_id: int, action: Any, stand_in: StandIn) -> None:
        effects = self._machine.stand_in_acts(tick_id, action)
        if effects and self._session is not None and not self._session.is_over:
            self._session.send_message_nowait(stand_in_note(stand_in), self.actor)
        self._perform(effects)

    async def _run_bot(self, bot: Bot, scope: trio.CancelScope, gone: trio.Event) -> None:
        with scope:
            try:
                await bot.run()
            except CogmentError as error:
                _log.warning("trial %r, actor %r: %s", self.trial_id, self.actor, error)
                if self._bot is bot:
                    self._bot = None
                    self._perform(self._machine.stand_in_fails())
        gone.set()

    def _dismiss_bot(self) -> bool:
        """Tell the bot, if there is one, that it is over, which may take a moment; return whether there was one."""
        bot, self._bot = self._bot, None
        if bot is not None:
            bot.dismiss()
            self._bot_scope.deadline = trio.current_time() + _GOODBYE_SECONDS
        return bot is not None

    def _drop_stand_in(self, _effect: machine.DropStandIn) -> None:
        self._dismiss_bot()

    def _leave(self, _effect: machine.Leave) -> None:
        self._scope.cancel()

    def _changed(self, effect: machine.Changed) -> None:
        said = _SAID.get(effect.state)
        if said:
            _log.info("trial %r, actor %r: %s", self.trial_id, self.actor, said)
        self.on_change()


_PERFORM: dict[type[Any], Callable[[Seat, Any], None]] = {
    machine.Arm: Seat._arm,
    machine.Disarm: Seat._disarm,
    machine.Greet: Seat._greet,
    machine.Show: Seat._show,
    machine.Dismiss: Seat._dismiss,
    machine.TooLate: Seat._too_late,
    machine.Send: Seat._send_action,
    machine.AskStandIn: Seat._ask_stand_in,
    machine.DropStandIn: Seat._drop_stand_in,
    machine.Leave: Seat._leave,
    machine.Changed: Seat._changed,
}
