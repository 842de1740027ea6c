"""A seat that a server holds for a person: the Trio shell around `seats.presence`, and pages that come and go.

The actor of the trial is a `seats.seat.Seat`: what is asked, and which action answers it, is in its mailbox. Whoever
brings an input (the trial, a page, a timer, a bot) has it handled in its own task, and nothing of that waits, so
nothing needs a lock.

Rule: an action is sent last. In process the trial may go on, ask again, or end, before the sending returns.
"""

from __future__ import annotations

import enum
import logging
import math
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import trio
from google.protobuf import wrappers_pb2
from google.protobuf.message import Message

from trio_cogment.base.config import PlayConfig
from trio_cogment.base.errors import CogmentError, FailedPreconditionError, InvalidArgumentError
from trio_cogment.base.outcome import EndCause
from trio_cogment.base.stand_ins import StandIn, stand_in_note
from trio_cogment.play.bots import Asked, Bot
from trio_cogment.play.codec_choice import codec_for
from trio_cogment.play.codecs import Codec
from trio_cogment.play.page import Page, PageSocket
from trio_cogment.play.page_messages import Act, Hello, PageMessage, Rate, Resign, Say
from trio_cogment.play.seat_parts import SeatSettings, part_of, text_of
from trio_cogment.play.views import View, page_message
from trio_cogment.sdk import ActorSession, Event, Reward
from trio_cogment.sdk.spec import ActorClass, Payload, decode, encode
from trio_cogment.seats.mailbox import MailboxState
from trio_cogment.seats.presence import Outcome, Presence, PresenceState, Then
from trio_cogment.seats.seat import Seat
from trio_cogment.web.json_text import shortest_mean

_log = logging.getLogger(__name__)

#: For so long a bot may be at its last answer when it is not needed any more.
_GOODBYE_SECONDS = 2.0
#: People see and act for about so long: at a rate whose ticks are shorter they steer, and do not answer single ticks.
_REACTION_SECONDS = 1.0
#: What is to be seen before the first observation.
_NOTHING: tuple[int | None, View, Any] = (None, View(), None)
#: What the log says of a person: why a trial waits, and who acts.
_SAID = {
    PresenceState.HELD: "the person is here",
    PresenceState.AWAY: "the page is gone; the trial waits for it",
    PresenceState.ABSENT: "the person stays away; a bot or the default action acts",
    PresenceState.LEFT: "the person stays away; the seat is lost",
}


def _ignore_change() -> None:
    pass


def _ignore_event(what: str, detail: dict[str, Any]) -> None:
    pass


class _Timer(enum.Enum):
    #: For somebody to come, or to come back.
    GRACE = enum.auto()
    #: For an action.
    ACTION = enum.auto()


class PageSeat:
    """One seat in one trial, played through pages.

    Args:
        trial_id: of the trial.
        actor: the actor's name.
        actor_class: with the types of its payloads.
        settings: see there.
        config: limits.
        spawn: `start_soon` of a nursery that stays open until the seat's part is over.
        on_over: called when it is.

    Attributes:
        trial_id, actor: see above.
        seat: the actor; it joins the trial. None when its part is over, and only what was seen last is kept.
        kept_bytes: how much of it is kept for those who look again, once its part is over.
        on_change: called when the state is another one, until the seat's part is over.
        on_taken: called when the first page comes.
        on_event: called with what people and pages do, as an experiment stores it: the kind of event, and its details.
        failure: why the seat could not be taken, or was lost; empty if it was not.
    """

    def __init__(
        self,
        trial_id: str,
        actor: str,
        actor_class: ActorClass,
        settings: SeatSettings,
        config: PlayConfig,
        *,
        spawn: Callable[..., None],
        on_over: Callable[[PageSeat], None],
    ) -> None:
        self.trial_id = trial_id
        self.actor = actor
        self.failure = ""
        self.kept_bytes = 0
        self.on_change: Callable[[], None] = _ignore_change
        self.on_taken: Callable[[], None] = _ignore_change
        self.on_event: Callable[[str, dict[str, Any]], None] = _ignore_event
        self.seat: Seat | None = Seat(
            actor, self._on_news, on_begun=self._on_begun, on_over=self._on_seat_over, aside=self._on_aside
        )
        self._codec: Codec = codec_for(actor_class, settings.labels)
        self._actor_class = actor_class
        self._settings = settings
        self._config = config
        self._spawn = spawn
        self._on_over = on_over
        self._presence = Presence(settings.rules.outcome)
        self._has_observed = False
        self._total = 0.0
        self._notified = 0
        self._history: deque[dict[str, Any]] = deque(maxlen=config.max_notices)
        self._last = _NOTHING
        self._over: dict[str, Any] | None = None
        self._deadline = math.inf
        self._timers = dict.fromkeys(_Timer, trio.CancelScope())
        self._bot: Bot | None = None
        self._bot_scope = trio.CancelScope()

    @property
    def state(self) -> PresenceState:
        """Where the person is."""
        return self._presence.state

    @property
    def has_observed(self) -> bool:
        """Whether the trial has told it anything."""
        return self._has_observed

    @property
    def is_vacant(self) -> bool:
        """See `Presence.is_vacant`."""
        return self._presence.is_vacant

    @property
    def is_given_up(self) -> bool:
        """See `Presence.is_given_up`."""
        return self._presence.is_given_up

    @property
    def _page(self) -> Page | None:
        page = self._presence.page
        return page if isinstance(page, Page) else None

    @property
    def _asked(self) -> int | None:
        """The tick that is to be answered; None if there is none."""
        if self.seat is None or self.seat.mailbox.state is not MailboxState.TURN:
            return None
        return self.seat.mailbox.tick_id

    def give_up(self) -> None:
        """Have nobody come, if nobody has: the trial waits no more."""
        self._do(self._presence.nobody_comes)

    def resign(self) -> None:
        """Have the person give up the seat, whether or not a page has it."""
        page = self._page
        self._guarded(self._presence.grace_over if page is None else partial(self._presence.resign, page))

    def close(self) -> None:
        """Leave the trial, if it is not over: the server ends."""
        if self.seat is not None:
            self.seat.leave()

    # The trial

    def _on_begun(self, _session: ActorSession[Any, Any, Any]) -> None:
        if self.state is PresenceState.OPEN:
            self._arm(_Timer.GRACE, self._settings.rules.come_seconds)

    def _on_news(self) -> None:
        mailbox = None if self.seat is None else self.seat.mailbox
        if mailbox is None or mailbox.has_ended or mailbox.observation is None:
            return  # `_on_seat_over` takes the end
        asks = self._codec.observe(self._decoded(mailbox.observation.payload))
        self._has_observed = True
        if asks and not mailbox.final:
            self._do(self._presence.turn)
            return
        self._disarm(_Timer.ACTION)
        self._refresh()
        if not mailbox.final:
            self._send(self._codec.idle())

    def _decoded(self, payload: Any) -> Any:
        return decode(payload, self._actor_class.observation, "observation")

    def _on_aside(self, event: Event[Any, None]) -> bool:
        if event.reward is not None:
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
        return True

    def _on_seat_over(self) -> None:
        """Take the end of the actor's part: of the trial, or because it has left, or could not take part."""
        assert self.seat is not None
        error, outcome = self.seat.error, self.seat.outcome
        stopped = outcome is not None and outcome.cause is EndCause.SERVER_STOPPED
        if stopped and self._settings.goes_on:
            return  # nothing to tell: the page opens its socket again, at the server that goes on with the trial
        if error is not None:
            known = isinstance(error, CogmentError)
            self.failure = str(error) if known else "unexpected failure; the server's log has the details"
            self._over = {"cause": "failed", "reason": self.failure}
        elif self.state is not PresenceState.LEFT:
            self._over = {
                "cause": "unknown" if outcome is None else outcome.cause.name.lower().replace("_", " "),
                "reason": self.seat.details or ("" if outcome is None else outcome.reason),
            }
        if self._over is not None:
            self._do(self._presence.end)
        self._settle()
        self._on_over(self)

    def _settle(self) -> None:
        """Keep what was seen last, for those who look again, and nothing of what it was made of."""
        try:
            self._last = self._look() if self._presence.taken else _NOTHING
        except Exception:  # noqa: BLE001  an observation that cannot be shown ends no trial
            _log.exception("trial %r, actor %r: what was seen last is lost", self.trial_id, self.actor)
        if self.seat is not None:
            self.seat.mailbox.forget()
            self.seat = None
        del self._codec  # without the seat nobody asks it, and it remembers observations
        # Whoever is told knows the trial, with everything in it; there is nothing more to tell.
        self.on_change, self.on_event = _ignore_change, _ignore_event
        _, view, _ = self._last
        if view.parts:
            self.kept_bytes = sum(len(content) for _, content in view.blobs) + len(page_message({"parts": view.parts}))

    def _look(self) -> tuple[int | None, View, Any]:
        """Return the tick of the observation, what is shown of it, and the form for an action."""
        if self.seat is None or not self._has_observed:
            return self._last
        view = self._codec.view()
        self._without_large(view)
        return self.seat.mailbox.tick_id, view, self._codec.form()

    def _notify(self, notice: dict[str, Any]) -> None:
        self._notified += 1
        notice["number"] = self._notified  # by which a page that has lost its connection knows what it has seen
        self._history.append(notice)
        if self._page is not None:
            self._page.notify(notice)

    # Pages

    async def serve_page(self, socket: PageSocket) -> None:
        """Have a page at this seat until it is gone."""
        page = Page(self._config)
        first = not self._presence.taken
        self._do(partial(self._presence.attach, page), page)
        if first:
            self.on_taken()
        try:
            await page.serve(socket, partial(self._on_page, page))
        finally:
            self._do(partial(self._presence.detach, page))

    def _on_page(self, page: Page, message: PageMessage) -> None:
        if isinstance(message, Act):
            if page is not self._page:
                return  # it has been told
            detail = {"tick": message.tick_id, "action": message.answer, "page_ms": message.at_ms}
            detail["latency_ms"] = None if page.latency_seconds is None else 1000 * page.latency_seconds
            if message.tick_id != self._asked and not self._steers(message.tick_id):
                page.notify({"type": "late", "tick": message.tick_id})
                self.on_event("late", detail)
            else:
                tell = self.on_event  # the trial may be over before the sending returns
                self._send(self._codec.action(message.answer))
                tell("action", detail)
        elif isinstance(message, Rate | Say):
            self._pass_on(page, message)
        elif isinstance(message, Resign):
            self._do(partial(self._presence.resign, page))
        elif not isinstance(message, Hello):  # which pages of lobbies have to say
            raise InvalidArgumentError("expected what a page of a seat says")

    def _rate(self) -> dict[str, Any]:
        """Return what a page is told of the rate of ticks; nothing of a trial without one."""
        session = None if self.seat is None else self.seat.session
        if session is None or not session.tick_hz:
            return {}
        return {"tick_hz": session.tick_hz, "observe_every": session.observe_every}

    def _window_seconds(self) -> float:
        """Return how long the trial waits for an answer, if it has ticks at a rate; 0: it waits."""
        session = None if self.seat is None else self.seat.session
        return session.observe_every / session.tick_hz if session is not None and session.tick_hz else 0.0

    def _steers(self, tick_id: int) -> bool:
        """Whether an answer to what was shown a moment ago is one to what is asked now."""
        window, asked = self._window_seconds(), self._asked
        if asked is None or self.seat is None or self.seat.session is None or not 0 < window < _REACTION_SECONDS:
            return False
        return 0 <= tick_id <= asked and (asked - tick_id) / self.seat.session.tick_hz <= _REACTION_SECONDS

    def _pass_on(self, page: Page, message: Rate | Say) -> None:
        """Send what the person says to others."""
        if page is not self._page or self.seat is None or self.seat.session is None:
            raise FailedPreconditionError("you do not have this seat any more")
        if message.to not in self._settings.receivers:
            raise InvalidArgumentError(f"to: expected one of {', '.join(self._settings.receivers) or 'nobody'}")
        if not self._has_observed:
            raise FailedPreconditionError("the trial has not begun")
        if isinstance(message, Rate):
            self.seat.say([Reward(message.to, message.value, tick_id=self.seat.mailbox.tick_id)])
        else:
            self.seat.say(messages=[(wrappers_pb2.StringValue(value=message.text), message.to)])
        self._notify({"type": "sent", "to": message.to, "what": "reward" if isinstance(message, Rate) else "message"})

    def _refresh(self) -> None:
        if self._page is not None:
            self._page.refresh(self._render)

    def _render(self, page: Page) -> bytes:
        """Return what a page is to show now."""
        tick, view, form = self._look()
        header: dict[str, Any] = {
            "type": "seat",
            "state": self.state.value,
            "tick": tick,
            "asked": self._asked,
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

    # What follows from an input of the presence

    def _do(self, happen: Callable[[], Then], page: Page | None = None) -> None:
        """Have something happen to the presence, and do what follows.

        Args:
            happen: a method of the presence.
            page: the one that comes; otherwise what is done concerns the page that had the seat before.
        """
        before, holder = self.state, self._page
        then = happen()
        if self.state is not before:
            said = _SAID.get(self.state)
            if said:
                _log.info("trial %r, actor %r: %s", self.trial_id, self.actor, said)
            self.on_event("presence", {"state": self.state.value})
            self.on_change()
        if then is Then.NOTHING:
            return
        if then in (Then.WELCOME, Then.TAKE_OVER, Then.RELIEVE):
            assert page is not None
            if then is Then.RELIEVE:
                self._dismiss_bot()
            elif holder is not None:
                self._dismiss(holder, "taken over")
            self._welcome(page)
        elif then is Then.TURN_AWAY:
            assert page is not None
            if self.state is PresenceState.OVER:
                self._greet(page)  # the end of a trial is something to see
            self._dismiss(page, self.state.value)
        elif then is Then.WAIT:
            self._arm(_Timer.GRACE, self._settings.rules.grace_seconds)
        elif then is Then.SHOW:
            self._begin_answer()
            self._refresh()
        elif then is Then.SUBSTITUTE:
            if self.is_vacant:
                self._part_with(holder, "left")
            self._substitute()
        elif then is Then.FINISH:
            if holder is not None:
                self._greet(holder)
            self._part_with(holder, "over")
            self._dismiss_bot()
        else:
            self._part_with(holder, "left")
            self._dismiss_bot()
            if self.seat is not None:
                self.seat.leave(in_order=True)

    def _welcome(self, page: Page) -> None:
        self._disarm(_Timer.GRACE)
        self._greet(page)
        if self._asked is not None and self._deadline == math.inf:
            self._begin_answer()

    def _greet(self, page: Page) -> None:
        """Show a page everything that there is."""
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
                **self._rate(),
            }
        )
        page.refresh(self._render)

    def _part_with(self, page: Page | None, reason: str) -> None:
        """End both times, and tell the page that had the seat why it has it no more."""
        self._disarm(_Timer.GRACE)
        self._disarm(_Timer.ACTION)
        if page is not None:
            self._dismiss(page, reason)

    def _dismiss(self, page: Page, reason: str) -> None:
        page.notify({"type": "dismissed", "reason": reason, "failure": self.failure})
        page.close()

    # The two times

    def _arm(self, timer: _Timer, seconds: float) -> None:
        self._disarm(timer)
        if seconds == math.inf:
            return
        scope = self._timers[timer] = trio.CancelScope()
        if timer is _Timer.ACTION:
            self._deadline = trio.current_time() + seconds
        self._spawn(self._sleep, timer, scope, seconds, name=f"trial {self.trial_id}: time of {self.actor}")

    def _begin_answer(self) -> None:
        """Begin the time for an action: at a rate the trial's clock has it, and people see how much is left of it."""
        window = self._window_seconds()
        if not window:
            self._arm(_Timer.ACTION, self._settings.rules.action_seconds)
        elif window >= _REACTION_SECONDS:
            self._deadline = trio.current_time() + window

    def _disarm(self, timer: _Timer) -> None:
        self._timers[timer].cancel()
        if timer is _Timer.ACTION:
            self._deadline = math.inf

    async def _sleep(self, timer: _Timer, scope: trio.CancelScope, seconds: float) -> None:
        with scope:
            await trio.sleep(seconds)
        if scope.cancel_called:  # also in the very moment
            return
        if timer is _Timer.ACTION:
            self._deadline = math.inf
        self._guarded(self._presence.grace_over if timer is _Timer.GRACE else self._presence.time_up)

    def _guarded(self, happen: Callable[[], Then]) -> None:
        """Have something happen in a task of the server: a substitute's action that cannot be sent ends this seat."""
        seat = self.seat
        try:
            self._do(happen)
        except Exception as error:  # noqa: BLE001  the boundary of a seat
            if seat is not None:
                seat.on_over(error)
                seat.leave()

    # Actions

    def _send(self, action: Payload, tick_id: int | None = None, *notes: tuple[Message, str]) -> None:
        """Answer what is asked; an action that comes too late is not sent.

        Raises:
            CogmentError: it cannot be sent; it is asked as before.
        """
        if self.seat is None:
            return
        content = encode(action, self._actor_class.action, "action")
        if tick_id is None or tick_id == self._asked:
            self._disarm(_Timer.ACTION)
        try:
            self.seat.act(content, tick_id, messages=notes)
        except CogmentError:
            if self._asked is not None:
                self._begin_answer()
            raise
        self._refresh()

    def _substitute(self) -> None:
        """Ask the default action, or the bot, for what is asked."""
        tick_id, seat, settings, tell = self._asked, self.seat, self._settings, self.on_event
        if tick_id is None or seat is None or seat.session is None:
            return
        if settings.rules.outcome is not Outcome.BOT:
            assert settings.default is not None
            self._send(settings.default, tick_id, (stand_in_note(StandIn.DEFAULT), self.actor))
            tell("stand-in", {"tick": tick_id, "by": StandIn.DEFAULT.value})
            return
        if self._bot is None and settings.bot is not None:
            self._bot = settings.bot(self.trial_id, part_of(seat.session), self._on_bot)
            self._bot_scope = trio.CancelScope()
            self._spawn(self._run_bot, self._bot, self._bot_scope, name=f"trial {self.trial_id}: bot of {self.actor}")
        observation = seat.mailbox.observation
        assert observation is not None
        whole = self._codec.for_newcomer(self._decoded(observation.payload))
        content = encode(whole, self._actor_class.observation, "observation")
        if self._bot is not None:
            self._bot.ask(Asked(tick_id, observation.timestamp, content))

    def _on_bot(self, tick_id: int, content: bytes) -> None:
        tell = self.on_event
        self._send(content, tick_id, (stand_in_note(StandIn.BOT), self.actor))
        tell("stand-in", {"tick": tick_id, "by": StandIn.BOT.value})

    async def _run_bot(self, bot: Bot, scope: trio.CancelScope) -> None:
        with scope:
            try:
                await bot.run()
            except CogmentError as error:
                _log.warning("trial %r, actor %r: %s", self.trial_id, self.actor, error)
                if self._bot is bot:
                    self._bot = None
                    self._guarded(self._presence.substitute_fails)

    def _dismiss_bot(self) -> None:
        """Tell the bot, if there is one, that it is over, which may take a moment."""
        bot, self._bot = self._bot, None
        if bot is not None:
            bot.dismiss()
            self._bot_scope.deadline = trio.current_time() + _GOODBYE_SECONDS
