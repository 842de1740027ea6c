"""An experiment that is going on: the Trio shell around `machine`, with the pages of its participants.

Whoever brings an input (a page, a trial, the time, a researcher) has it handled in its own task, and nothing of that
waits, so nothing needs a lock. What has changed is written to the file behind that, in the same order; a participant's
page may be ahead of the file by as long as a commit takes.
"""

from __future__ import annotations

import base64
import enum
import hashlib
import hmac
import json
import logging
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

import trio

from trio_cogment.access import Sources
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.config import PlayConfig
from trio_cogment.base.errors import (
    CogmentError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
)
from trio_cogment.base.host import Host
from trio_cogment.base.outcome import EndCause
from trio_cogment.base.taking_up import RESUME_ATTEMPT, RESUME_TICK
from trio_cogment.experiment import machine as machines
from trio_cogment.experiment.definition import PLACEHOLDER, Experiment, PagePlan, Question
from trio_cogment.experiment.machine import Effect, ExperimentMachine, Group, Participant
from trio_cogment.experiment.messages import Enter, GoOn, Leave, Message, Turn, WayOut, kept_parameters, parse
from trio_cogment.experiment.participant_table import Step
from trio_cogment.experiment.store import Batch, Event, ExperimentStore, StoredParticipant
from trio_cogment.experiment.tables import played_trials, tables_of, zipped
from trio_cogment.experiment.texts import Texts
from trio_cogment.experiment.trials import ExperimentTrials, GroupTrial
from trio_cogment.platform import Platform
from trio_cogment.play.effects import EffectQueue
from trio_cogment.play.page import Page, PageSocket
from trio_cogment.play.seat import PageSeat
from trio_cogment.play.server import PlayServer, WatchedTrial
from trio_cogment.play.views import page_message
from trio_cogment.seats.presence import PresenceState

_log = logging.getLogger(__name__)

_TICKET_BYTES = 24
_KEY_BYTES = 18
_ID_BYTES = 7
_MAX_WRONG_CODES = 5
_MAX_ID_CHARACTERS = 128
#: Notes of researchers that a page which is loaded again shows.
_MAX_NOTES = 20
_MAX_NOTE_CHARACTERS = 2000
#: So many events may wait for the disk; then nothing more is taken.
_MAX_WAITING_EVENTS = 50_000
_RETRY_SECONDS = 1.0
_LAST_WRITE_SECONDS = 5.0
_ABSENT = frozenset([PresenceState.ABSENT, PresenceState.LEFT])


class _End(enum.Enum):
    """How a trial of a group has come to its end."""

    ORDERLY = enum.auto()
    #: For another reason than that somebody has gone.
    FAILED = enum.auto()
    #: It was to go on, and could not: its environment, say, could not be brought to where it was.
    NOT_RESUMED = enum.auto()
    #: The server stops: whoever starts next goes on with it.
    STOPPED = enum.auto()


class _RunningTrial:
    """A trial of a group.

    Attributes:
        trial: which one, from 0.
        watched: None while it is being started.
        seats: of the people, by the participant's id.
        wizards: the seats of researchers, by the agent's name.
        links: to the seats, as the pages have got them.
        absent: the ids of those who were not there when they were last heard of.
        resigned: the ids of those who have left, or in whose places others act.
        states: where each is, and since when.
        ended: the machine has ended it.
    """

    def __init__(self, trial: int) -> None:
        self.trial = trial
        self.watched: WatchedTrial | None = None
        self.seats: dict[str, PageSeat] = {}
        self.wizards: dict[str, PageSeat] = {}
        self.links: dict[str, str] = {}
        self.absent: set[str] = set()
        self.resigned: set[str] = set()
        self.states: dict[str, tuple[PresenceState, float]] = {}
        self.ended = False


class _Visitor:
    """Who sits at a page: nobody, until the server knows it."""

    def __init__(self) -> None:
        self.id = ""
        self.wrong_codes = 0


class ExperimentServer:
    """One experiment; made by `open_experiment`.

    Args:
        experiment: the file.
        trials: its environments and agents.
        play: has the seats of people.
        platform: has the trials.
        store: is open.
        host: clock and secrets.
        config: limits of pages.

    Attributes:
        experiment: see above.
        machine: where everybody is; for reading.
        key: of the participants' link: who has it can take part.
        change: an event that is set when anything is other than before, and another one then.
        export_trials: returns files with trials, of the trials' ids, for `archive`; None: there are none in it.
    """

    def __init__(
        self,
        experiment: Experiment,
        trials: ExperimentTrials,
        play: PlayServer,
        platform: Platform,
        store: ExperimentStore,
        host: Host,
        config: PlayConfig,
    ) -> None:
        self.experiment = experiment
        self.machine = ExperimentMachine(experiment, max_participants=config.max_participants)
        self.key = ""
        self.export_trials: Callable[[Sequence[str]], Awaitable[dict[str, bytes]]] | None = None
        self._trials = trials
        self._play = play
        self._platform = platform
        self._store = store
        self._host = host
        self._config = config
        self._outline = json.dumps(experiment.outline())
        self._texts = Texts(experiment.pictures)
        self._perform = EffectQueue(self._perform_one)
        self._pages: dict[str, Page] = {}
        self._tabs: dict[str, str] = {}  # of those pages
        self._tickets: dict[str, str] = {}  # hash -> id
        self._stored: dict[str, StoredParticipant] = {}
        self._notes: dict[str, deque[str]] = {}
        self._seen_trials: dict[str, int] = {}
        self._running: dict[int, _RunningTrial] = {}
        self._going_on: dict[str, TrialParams] = {}  # trials that wait until everybody is back, by their ids
        self._batch = Batch()
        self._written: list[trio.Event] = []
        self._to_write = trio.Event()
        self._time_changed = trio.Event()
        self._run_in_thread = host.runner(1)
        self._clock_offset = 0.0
        self._nursery: trio.Nursery | None = None
        #: Set when anything is other than before; then there is another one.
        self.change = trio.Event()

    # --- the run ---

    def now(self) -> float:
        """Return the time of the machine: seconds since the epoch, which do not jump while the server runs."""
        return trio.current_time() + self._clock_offset

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Go on where the file says, until cancelled.

        Raises:
            FailedPreconditionError: somebody is on the way in it, and the experiment has other pages, say, than before.
            CogmentError: the file cannot be read.
        """
        self._clock_offset = self._host.wall_clock() / 1e9 - trio.current_time()
        seen_at = await self._run_in_thread(self._load)
        stopped_at = self.now() if seen_at is None else seen_at
        await self._claim()
        try:
            async with trio.open_nursery() as self._nursery:
                self._do(self.machine.resume(self.now(), stopped_at=stopped_at, going_on=self._going_on))
                self._nursery.start_soon(self._keep_time)
                self._nursery.start_soon(self._write_all)
                task_status.started()
        finally:
            # Behind the nursery: what its writer had in hand when it was cancelled is in the batch again.
            self._nursery = None
            self._happened("", "server stopped", None, {})
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _LAST_WRITE_SECONDS):
                await self._write()

    def _load(self) -> float | None:
        """Read the file; return when a server was heard of last, None: never. It runs in a thread."""
        meta = self._store.meta()
        self.key = meta.get("key") or base64.urlsafe_b64encode(self._host.secret_bytes(_KEY_BYTES)).decode()
        self.machine.closed = meta.get("closed") == "true"
        for each in self._store.participants():
            person = Participant.from_data(each.data)
            self.machine.add(person)
            self._stored[person.id] = each
            self._tickets[each.ticket] = person.id
        for event in self._store.events("told"):
            self._note(event.participant, event.detail["text"])
        for data in self._store.groups():
            group = Group.from_data(data)
            self.machine.groups[group.number] = group
        live = sum(each.step is not Step.OUT for each in self.machine.people.values())
        if live and meta.get("outline", self._outline) != self._outline:
            raise FailedPreconditionError(
                f"experiment {self.experiment.name!r}: the pages, trials, conditions or sizes of groups are others "
                f"than before, and of those who began with them {live} are on their way: have them finish with the "
                f"file as it was, or begin anew, with another file than {self._store.path} for the data"
            )
        return float(meta["seen_at"]) if "seen_at" in meta else None

    async def _claim(self) -> None:
        """Take over the trials that were going on, so that they can go on here once their people are back."""
        left = [group for group in self.machine.groups.values() if group.trial_id]
        for group in left if self.experiment.after_restart == "go_on" else ():
            why = "the server keeps no trials (--storage)"
            try:
                if self._platform.resuming is not None:
                    self._going_on[group.trial_id] = await self._platform.resuming.claim(group.trial_id)
                    continue
            except CogmentError as error:
                why = str(error)
            _log.warning(
                "experiment %r: group %d plays trial %r again, from its beginning: %s",
                *(self.experiment.name, group.number, group.trial_id, why),
            )

    async def _keep_time(self) -> None:
        while True:
            self._time_changed = trio.Event()
            with trio.move_on_at(self.machine.next_deadline() - self._clock_offset):
                await self._time_changed.wait()
            # What has changed may have changed many times: those who asked go first.
            await trio.lowlevel.checkpoint()
            self._do(self.machine.pass_time(self.now()))

    # --- storing ---

    def _happened(self, who: str, what: str, group: int | None, detail: Mapping[str, Any]) -> None:
        self._batch.events.append(Event(self._host.wall_clock(), who, what, group, dict(detail)))
        self._to_write.set()

    def _keep(self) -> None:
        """Have what has changed be written."""
        people, groups = self.machine.take_changes()
        for person in people:
            before = self._stored.get(person.id)
            assert before is not None
            kept = StoredParticipant(person.id, before.ticket, before.parameters, person.to_data())
            self._stored[person.id] = self._batch.participants[person.id] = kept
        for group in groups:
            self._batch.groups[group.number] = group.to_data()
        self._to_write.set()

    async def _write_all(self) -> None:
        while True:
            await self._to_write.wait()
            self._to_write = trio.Event()
            if not await self._write():
                await trio.sleep(_RETRY_SECONDS)
                self._to_write.set()

    async def _write(self) -> bool:
        """Write what there is; return whether that could be done."""
        batch, self._batch = self._batch, Batch()
        waiters, self._written = self._written, []
        batch.meta = {
            "name": self.experiment.name,
            "key": self.key,
            "closed": str(self.machine.closed).lower(),
            "seen_at": repr(self.now()),
            "outline": self._outline,
        }
        done = False
        try:
            await self._run_in_thread(self._store.write, batch)
            done = True
        except CogmentError as error:
            _log.error("experiment %r: nothing can be stored, trying again: %s", self.experiment.name, error)
        finally:
            if not done:
                later, self._batch = self._batch, batch
                batch.participants |= later.participants
                batch.groups |= later.groups
                batch.events += later.events
                batch.dropped += later.dropped
                self._written = waiters + self._written
        for waiter in waiters if done else ():
            waiter.set()
        return done

    def _check_disk(self) -> None:
        if len(self._batch.events) > _MAX_WAITING_EVENTS:
            raise ResourceExhaustedError("the server cannot store what you do; please tell those who run the study")

    # --- pages ---

    async def serve_page(self, socket: PageSocket) -> None:
        """Have the page of a participant until it is gone."""
        page, visitor = Page(self._config), _Visitor()
        try:
            await page.serve(socket, partial(self._on_page, page, visitor), parse)
        finally:
            # A page that was opened later has taken its place.
            if visitor.id and self._pages.get(visitor.id) is page:
                del self._pages[visitor.id], self._tabs[visitor.id]
                self._note_page(visitor.id, "page closed")
                if visitor.id in self.machine.people:
                    self._do(self.machine.detach(visitor.id, self.now()))
                    self._show_others(visitor.id)

    def _on_page(self, page: Page, visitor: _Visitor, message: Message) -> None:
        self._check_disk()
        if isinstance(message, Enter):
            if visitor.id:
                raise InvalidArgumentError("enter: expected it once")
            self._enter(page, visitor, message)
            return
        if not visitor.id:
            raise FailedPreconditionError("expected enter first")
        if self._pages.get(visitor.id) is not page:
            return  # it has been told
        if isinstance(message, Turn):
            latency = None if page.latency_seconds is None else 1000 * page.latency_seconds
            detail = {"page": message.page, "page_ms": message.at_ms, "latency_ms": latency}
            effects = self.machine.answer(visitor.id, message.page, message.answers, message.agrees, self.now())
            if effects:
                self._happened(visitor.id, "sent", None, detail)
            self._do(effects)
        elif isinstance(message, GoOn):
            self._go_on(page, visitor.id, message)
        elif isinstance(message, WayOut):
            self._do(self.machine.way_out(visitor.id, self.now()))
        elif isinstance(message, Leave):
            self._do(self.machine.leave(visitor.id, self.now()))
        else:
            raise InvalidArgumentError("expected what a page of an experiment says")

    def _go_on(self, page: Page, who: str, message: GoOn) -> None:
        """Take that somebody has seen how a trial has ended, once for each."""
        person = self.machine.participant(who)
        if self._seen_trials.get(who, 0) < person.trial:
            self._seen_trials[who] = person.trial
            latency = None if page.latency_seconds is None else 1000 * page.latency_seconds
            detail = {"trial": person.trial - 1, "page_ms": message.at_ms, "latency_ms": latency}
            self._happened(who, "went on", person.group, detail)

    def _enter(self, page: Page, visitor: _Visitor, message: Enter) -> None:
        known = self._tickets.get(_hashed(message.ticket)) if message.ticket else None
        who = self._id_of(message, known)
        if who is None:
            visitor.wrong_codes += bool(message.code)
            if visitor.wrong_codes >= _MAX_WRONG_CODES:
                page.notify({"type": "dismissed", "reason": "wrong codes"})
                page.close()
                return
            page.refresh(partial(self._render_question_of_code, bool(message.code)))
            return
        people = self.experiment.participants
        if (people.allow and who not in people.allow) or who in people.keep_out:
            page.refresh(partial(self._render_refused, message.parameters))
            return
        self._let_in(page, visitor, who, message, ticket=message.ticket if known == who else "")

    def _id_of(self, message: Enter, known: str | None) -> str | None:
        """Return the id of somebody who comes; None: the person has to type a code, another one if there was one.

        Raises:
            InvalidArgumentError: the link lacks what says who comes.
        """
        kind, _, name = self.experiment.participants.id.partition(":")
        if kind == "query":
            who = message.parameters.get(name, "").strip()
            if not who:
                raise InvalidArgumentError(f"this link is not complete: expected {name}=... in it")
            if len(who) > _MAX_ID_CHARACTERS or not who.isprintable():
                raise InvalidArgumentError(
                    f"this link has an id that cannot be used: {name}: expected 1 to {_MAX_ID_CHARACTERS} characters "
                    "that can be printed"
                )
            return who
        if kind == "link":
            who, signature = message.parameters.get("participant", ""), message.parameters.get("signature", "")
            if not hmac.compare_digest(self._signature(who).encode(), signature.encode()):
                raise InvalidArgumentError("this link is not complete, or not one of this study")
            return who
        if known is not None:
            return known
        if kind == "code":
            return self.experiment.participants.id_of_code(message.code)
        return base64.b32encode(self._host.secret_bytes(_ID_BYTES)).decode().rstrip("=").lower()

    def _signature(self, who: str) -> str:
        return hmac.new(self.key.encode(), b"participant " + who.encode(), "sha256").hexdigest()[:32]

    def links(self) -> dict[str, str]:
        """Return what is to be given to people: a path for all of them (by the empty name), or one for each id."""
        path = f"/experiment/{self.key}/"
        people = self.experiment.participants
        if people.id != "link":
            return {"": path}
        return {who: f"{path}?{urlencode(self.link_parameters(who))}" for who in sorted(people.allow - people.keep_out)}

    def link_parameters(self, who: str) -> dict[str, str]:
        """Return the parameters of the link that is somebody's own."""
        return {"participant": who, "signature": self._signature(who)}

    def _let_in(self, page: Page, visitor: _Visitor, who: str, message: Enter, ticket: str) -> None:
        """Have a page be somebody's: the newest one is, and the one before it is told."""
        ticket = ticket or self._host.secret_bytes(_TICKET_BYTES).hex()
        new = who not in self.machine.people
        parameters, left_out = kept_parameters(message.parameters, self.experiment.participants.keeps)
        before = self._stored.get(who)
        if before is not None:
            self._tickets.pop(before.ticket, None)
            parameters = before.parameters
        self._tickets[_hashed(ticket)] = who
        self._stored[who] = StoredParticipant(who, _hashed(ticket), parameters, {} if before is None else before.data)
        visitor.id = who
        open_before, tab_before = self._pages.get(who), self._tabs.get(who)
        self._pages[who], self._tabs[who] = page, message.tab
        if open_before is not None:
            open_before.notify({"type": "dismissed", "reason": "taken over"})
            open_before.close()
        page.greeting = {"title": self.experiment.title, "ticket": ticket, "notes": list(self._notes.get(who, ()))}
        if new:
            self._do(self.machine.come(who, self.now()))
        # The server may not have heard yet that a connection is gone, so that there is one does not tell tabs apart.
        if open_before is not None and (message.tab != tab_before or not message.tab):
            what = "tab changed"
        else:
            what = "reconnected" if message.again else "page opened"
        # Of later links nothing is kept, so nothing of them is left out.
        more = {"parameters_left_out": left_out} if left_out and before is None else {}
        self._note_page(who, what, width=message.width, height=message.height, **more)
        self._do(self.machine.attach(who, self.now()))
        self._show_others(who)

    def _note_page(self, who: str, what: str, **detail: Any) -> None:
        """Have what a page does be an event; who has declined was told that nothing more is recorded."""
        person = self.machine.people.get(who)
        if person is None or person.end != "declined":
            self._happened(who, what, None, detail)

    # --- what pages are shown ---

    def _render_question_of_code(self, wrong: bool, page: Page) -> bytes:
        return page_message({"type": "experiment", "step": "code", "title": self.experiment.title, "wrong": wrong})

    def _render_refused(self, parameters: Mapping[str, str], page: Page) -> bytes:
        end = self._end("refused", parameters)
        return page_message({"type": "experiment", "step": "out", "title": self.experiment.title, "end": end})

    def _render(self, who: str, page: Page) -> bytes:
        person, now = self.machine.people.get(who), self.now()
        if person is None:  # it was forgotten
            return page_message({"type": "experiment", "step": "out", "end": self._end("removed", {})})
        header: dict[str, Any] = {"type": "experiment", "id": who, "step": person.step.value}
        header["title"] = self.experiment.title
        if page.greeting is not None:
            header["welcome"], page.greeting = page.greeting, None
        header["seconds"] = None if person.deadline == float("inf") else max(person.deadline - now, 0.0)
        plan = self.machine.page_of(person)
        if plan is not None:
            header["page"] = {
                **page_data(plan, self._texts),
                "failed": person.failed,
                "number": person.page + 1,
                "of": len(self.machine.pages_of(person)),
            }
        elif person.step is Step.WAITING:
            waiting = self.experiment.waiting
            header["waiting"] = {
                "here": len(self.machine.waiting()),
                "size": waiting.size,
                "shortage": waiting.shortage,
                "way_out_in": max(person.since + waiting.way_out_seconds - now, 0.0),
            }
        elif person.step is Step.OUT:
            of_id = {self.experiment.participants.parameter_of_id: who}
            header["end"] = self._end(person.end, {**self._stored[who].parameters, **of_id})
        if person.group is not None and person.step is not Step.OUT:
            group = self.machine.groups[person.group]
            header |= {"group": self._group_view(group, person), "trials_done": person.trial}
            header["early"] = person.step is Step.FINISHING and person.end == "partial"
            header["interrupted"] = group.interrupted
            header["roles"] = "roles" in self.experiment.trials[min(person.trial, len(self.experiment.trials) - 1)].show
            running = self._running.get(group.number)
            if person.step is Step.PLAYING and running is not None and who in running.links:
                seat = running.seats[who]
                plan_of_trial = self.experiment.trials[running.trial]
                header["seat"] = {
                    "link": running.links[who],
                    "trial": seat.trial_id,
                    "actor": seat.actor,
                    "show": list(plan_of_trial.show),
                    "html": self._texts.html(plan_of_trial.text),
                    "number": running.trial + 1,
                    "of": len(self.experiment.trials),
                    "end_seconds": self._end_seconds(running.trial, group.condition),
                }
        return page_message(header)

    def _group_view(self, group: Group, me: Participant) -> list[dict[str, Any]]:
        """Return what a member may know of the group: who is there, by place."""
        running = self._running.get(group.number)
        return [
            {
                "place": place + 1,
                "role": self._role(group, place),
                "you": who == me.id,
                **self._member_view(group, running, place, who),
            }
            for place, who in enumerate(group.members)
        ]

    def _end_seconds(self, trial: int, condition: str) -> float:
        """Return for how long people see how a trial has ended: less, if the time of an action of the next one runs."""
        experiment = self.experiment
        most = experiment.trials[trial].end_seconds
        if trial + 1 == len(experiment.trials) or experiment.pages_of(trial + 1, condition):
            return most
        return min(most, experiment.trials[trial + 1].action_seconds / 2)

    def _role(self, group: Group, place: int) -> str:
        """Return the agent that a member plays, or has played last."""
        trial = min(group.trial, len(self.experiment.trials) - 1)
        return self._trials.role(trial, group.condition, self.machine.place_in_trial(trial, place))

    def _member_view(self, group: Group, running: _RunningTrial | None, place: int, who: str | None) -> dict[str, Any]:
        dropout = self.experiment.dropout
        person = None if who is None else self.machine.people.get(who)
        if group.interrupted and who in group.absent:
            return {"state": "bot" if dropout.tell else "here"}
        if who is None or person is None or person.step is Step.OUT:
            played = running is not None and who in running.seats and dropout.in_the_trial != "end"
            if place < group.people and dropout.then in ("fewer", "end") and not played:
                return {"state": "gone"}
            return {"state": "bot" if dropout.tell else "here"}
        state, since = (None, 0.0) if running is None else running.states.get(who, (None, 0.0))
        if person.step is Step.PLAYING and state in _ABSENT:
            return {"state": "bot" if dropout.tell else "here"}
        if not person.here or state is PresenceState.AWAY:
            over = since + dropout.grace_seconds if state is PresenceState.AWAY else person.deadline
            return {"state": "away", "seconds": None if math.isinf(over) else max(over - self.now(), 0.0)}
        return {"state": "reading" if person.step is Step.PREPARING else "here"}

    def _end(self, name: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        end = self.experiment.end(name)
        address = PLACEHOLDER.sub(lambda match: quote(parameters.get(match[1], ""), safe=""), end.redirect)
        return {"name": name, "html": self._texts.html(end.text), "code": end.code, "redirect": address}

    # --- what the machine wants ---

    def _do(self, effects: Iterable[Effect]) -> None:
        self._perform(effects)
        self._keep()
        self._time_changed.set()
        self._note_change()

    def _note_change(self) -> None:
        self.change.set()
        self.change = trio.Event()

    def _perform_one(self, effect: Effect) -> None:
        if isinstance(effect, machines.Show):
            self._show(effect.id)
        elif isinstance(effect, machines.Happened):
            self._happened(effect.id, effect.what, effect.group, effect.detail)
            if effect.id:
                self._show_others(effect.id)
        elif isinstance(effect, machines.StartTrial):
            running = self._running[effect.group] = _RunningTrial(effect.trial)
            if self._nursery is not None:
                self._nursery.start_soon(self._run_trial, effect, running)
        elif isinstance(effect, machines.EndTrial):
            self._end_trial(self._running.pop(effect.group, None))
        elif isinstance(effect, machines.GiveUpTrial):
            if self._nursery is not None and self._going_on.pop(effect.trial_id, None) is not None:
                self._nursery.start_soon(self._give_up_trial, effect.trial_id, "its people have not come back")
        elif isinstance(effect, machines.Forget):
            self._drop(effect.id)
            self._batch.dropped.append(effect.id)
        else:
            self._give_up(effect)

    def _show(self, who: str) -> None:
        page = self._pages.get(who)
        if page is not None:
            page.refresh(partial(self._render, who))

    def _show_others(self, who: str) -> None:
        """Show those who are with somebody what has become of that one."""
        person = self.machine.people.get(who)
        if person is not None and person.group is not None:
            for member in self.machine.groups[person.group].members:
                if member is not None:
                    self._show(member)
        for other in self.machine.waiting():
            self._show(other.id)

    def _end_trial(self, running: _RunningTrial | None) -> None:
        if running is not None:
            running.ended = True
            if running.watched is not None:
                running.watched.end()

    def _give_up(self, effect: machines.GiveUpSeat) -> None:
        running = self._running.get(effect.group)
        if running is not None:
            running.resigned.add(effect.id)
            seat = running.seats.get(effect.id)
            if seat is not None:
                seat.resign()

    async def _give_up_trial(self, trial_id: str, why: str) -> None:
        """End a trial that was to go on."""
        resuming = self._platform.resuming
        assert resuming is not None, "it was claimed"
        try:
            await resuming.give_up(trial_id, why)
        except CogmentError as error:
            _log.warning("experiment %r: trial %r could not be ended: %s", self.experiment.name, trial_id, error)

    async def _run_trial(self, effect: machines.StartTrial, running: _RunningTrial) -> None:
        """Start a trial, or go on with one, and wait for its end. What fails here harms nobody but its group."""
        end, why = _End.FAILED, ""
        try:
            end, why = await self._played(effect, running)
        except CogmentError as error:
            _log.warning("experiment %r: a trial was lost: %s", self.experiment.name, error)
        except Exception:  # noqa: BLE001  the boundary of a trial
            _log.exception("experiment %r: a trial was lost", self.experiment.name)
        if self._running.get(effect.group) is running:
            del self._running[effect.group]
        if end is _End.STOPPED or (end is not _End.ORDERLY and self._platform.is_stopping):
            return
        if end is _End.NOT_RESUMED:
            _log.warning("experiment %r: group %d plays its trial again: %s", self.experiment.name, effect.group, why)
            self._do(self.machine.trial_not_resumed(effect.group, effect.trial, why, self.now()))
            return
        failed = end is _End.FAILED
        lost = [] if failed and not running.absent else sorted(running.absent)
        self._do(self.machine.trial_over(effect.group, effect.trial, lost, self.now(), failed=failed))

    async def _played(self, effect: machines.StartTrial, running: _RunningTrial) -> tuple[_End, str]:
        """Play a trial to its end; return how it has ended, and why."""
        number = effect.group
        before = self._going_on.pop(effect.goes_on, None)
        try:
            prepared = await self._prepared(effect, before)
        except CogmentError as error:
            if before is None:
                raise
            await self._give_up_trial(effect.goes_on, str(error))
            return _End.NOT_RESUMED, str(error)
        if before is None:
            trial_id = f"{self.experiment.name}-{self._host.new_id()}"
            self.machine.trial_started(number, effect.trial, trial_id)
            self._do(())
            people = len(prepared.people) + len(prepared.wizards)
            watched = await self._play.start_watched(prepared.game, people, False, trial_id)
            started = {"trial": effect.trial, "trial_id": trial_id, "policies": dict(prepared.policies)}
            self._happened("", "trial started", number, started)
        else:
            try:
                watched = await self._play.go_on_watched(prepared.game, effect.goes_on)
            except CogmentError as error:
                return _End.NOT_RESUMED, str(error)
            await self._note_going_on(effect, watched)
            running.resigned.update(self._substituted(effect))
        for seat in watched.seats:
            if seat.actor in prepared.wizards:
                running.wizards[seat.actor] = seat
                seat.on_event = partial(self._on_wizard, running, number, seat)
                continue
            who = prepared.people[seat.actor]
            running.seats[who] = seat
            seat.on_event = partial(self._on_seat, running, number, who)
            if before is None:
                detail = {"trial": effect.trial, "trial_id": watched.trial_id, "actor": seat.actor}
                condition = self.machine.groups[number].condition
                self._happened(who, "seat", number, {**detail, "condition": condition})
        running.watched = watched
        if running.ended:
            watched.end()
        for who in running.resigned & running.seats.keys():
            running.seats[who].resign()
        for who, seat in running.seats.items():
            running.links[who] = self._play.link(seat)
            self._show(who)
        await watched.over()
        outcome = await self._platform.controller.wait_trial(watched.trial_id, check=False)
        if outcome.cause is EndCause.SERVER_STOPPED:
            return _End.STOPPED, ""
        if not outcome.failed or outcome.participant in prepared.people:
            return _End.ORDERLY, ""
        if before is not None and not any(seat.has_observed for seat in watched.seats):
            return _End.NOT_RESUMED, outcome.reason
        return _End.FAILED, outcome.reason

    async def _prepared(self, effect: machines.StartTrial, before: TrialParams | None) -> GroupTrial:
        """Return what a trial is started with; `before`: the parameters of one that goes on."""
        group = self.machine.groups[effect.group]
        places: list[str | None] = [None] * len(effect.places)
        for place, who in enumerate(effect.places):
            places[self.machine.place_in_trial(effect.trial, place)] = who
        gone = [self.machine.place_in_trial(effect.trial, place) for place in effect.gone]
        models = None if self._platform.model_registry is None else self._platform.model_registry_client()
        chosen = None if before is None else before.properties
        return await self._trials.prepare(effect.trial, group.condition, group.number, places, gone, models, chosen)

    def _substituted(self, effect: machines.StartTrial) -> set[str]:
        """Return those in whose places others act when a trial goes on: they stay away, or are out."""
        absent = self.machine.groups[effect.group].absent
        people = ((who, self.machine.people.get(who)) for who in effect.places if who is not None)
        return {who for who, person in people if who in absent or person is None or person.step is Step.OUT}

    async def _note_going_on(self, effect: machines.StartTrial, watched: WatchedTrial) -> None:
        """Have the file say with which tick a trial goes on, and how many that were answered are asked again."""
        tick_id = int(watched.properties[RESUME_TICK])
        await self.flush()
        answered = await self._run_in_thread(self._store.last_answered, watched.trial_id)
        detail = {
            "trial": effect.trial,
            "trial_id": watched.trial_id,
            "tick": tick_id,
            "attempt": int(watched.properties[RESUME_ATTEMPT]),
            "ticks_lost": max(answered - tick_id + 1, 0),
        }
        self._happened("", "trial goes on", effect.group, detail)
        _log.warning(
            "experiment %r: group %d goes on with trial %r at tick %d; answered before and asked again: %d",
            *(self.experiment.name, effect.group, watched.trial_id, tick_id, detail["ticks_lost"]),
        )

    def _on_wizard(
        self, running: _RunningTrial, group: int, seat: PageSeat, what: str, detail: Mapping[str, Any]
    ) -> None:
        """Take what happens at the seat of a researcher."""
        told = {"trial": running.trial, "trial_id": seat.trial_id, "actor": seat.actor, "did": what, **detail}
        self._happened("", "wizard", group, told)
        self._note_change()

    def _on_seat(self, running: _RunningTrial, group: int, who: str, what: str, detail: Mapping[str, Any]) -> None:
        """Take what happens at somebody's seat."""
        seat = running.seats[who]
        self._happened(who, what, group, {"trial": running.trial, "trial_id": seat.trial_id, **detail})
        if what == "presence":
            state = PresenceState(detail["state"])
            if state is not PresenceState.OVER:
                running.states[who] = state, self.now()
                (running.absent.add if state in _ABSENT else running.absent.discard)(who)
                self.machine.note_absent(group, running.trial, who, who in running.absent)
                self._keep()
                self._show_others(who)
            self._note_change()

    # --- what a researcher does ---

    def wizard_seats(self, group: int) -> dict[str, PresenceState]:
        """Return the agents of a group that wait for a researcher to play them, and whether one does."""
        running = self._running.get(group)
        return {} if running is None else {agent: seat.state for agent, seat in running.wizards.items()}

    def wizard_link(self, group: int, agent: str, sources: Sources = ()) -> str:
        """Return the link of the page on which a researcher plays an agent: a path.

        Args:
            group: the number of the group.
            agent: that it plays.
            sources: see `play.routes.seat_link`.

        Raises:
            NotFoundError: there is no such agent in a trial now.
        """
        return self._play.link(self.wizard_seat(group, agent), sources)

    def wizard_seat(self, group: int, agent: str) -> PageSeat:
        """Return the seat that a researcher has, or may take.

        Raises:
            NotFoundError: there is no such agent in a trial now.
        """
        running = self._running.get(group)
        if running is None or agent not in running.wizards:
            raise NotFoundError(f"group {group} has no agent {agent!r} to play now")
        return running.wizards[agent]

    def take_out(self, who: str) -> None:
        """Take somebody out: the page shows it at once.

        Raises:
            NotFoundError: there is nobody of this id.
        """
        self._do(self.machine.take_out(who, self.now()))

    def take_group_out(self, number: int) -> None:
        """End a group early.

        Raises:
            NotFoundError: there is no such group.
        """
        self._do(self.machine.take_group_out(number, self.now()))

    def close_waiting_room(self, closed: bool) -> None:
        """Close the waiting room, or open it again."""
        self._do(self.machine.close(self.now()) if closed else self.machine.reopen())

    def tell(self, text: str, who: str = "") -> None:
        """Show a message to somebody; without an id, to everybody who is not out.

        Raises:
            NotFoundError: there is nobody of this id.
            InvalidArgumentError: there is no text, or it is too long.
        """
        if not text.strip() or len(text) > _MAX_NOTE_CHARACTERS:
            raise InvalidArgumentError(f"text: expected 1 to {_MAX_NOTE_CHARACTERS} characters")
        if who:
            people = [self.machine.participant(who)]
        else:
            people = [each for each in self.machine.people.values() if each.step is not Step.OUT]
        for person in people:
            self._note(person.id, text)
            self._happened(person.id, "told", person.group, {"text": text})
            page = self._pages.get(person.id)
            if page is not None:
                page.notify({"type": "note", "text": text})

    def _drop(self, who: str) -> None:
        """Have nothing of somebody in memory."""
        self._tickets.pop(self._stored.pop(who).ticket, None)
        self._notes.pop(who, None)
        self._seen_trials.pop(who, None)
        self._batch.participants.pop(who, None)
        self._batch.events = [each for each in self._batch.events if each.participant != who]

    def _note(self, who: str, text: str) -> None:
        self._notes.setdefault(who, deque(maxlen=_MAX_NOTES)).append(text)

    async def flush(self) -> None:
        """Wait until everything that has happened is in the file."""
        written = trio.Event()
        self._written.append(written)
        self._to_write.set()
        await written.wait()

    async def archive(self) -> bytes:
        """Return the tables of all that has happened, and the trials, as a ZIP file; see `tables_of`."""
        await self.flush()
        files = await self._run_in_thread(tables_of, self.experiment, self._store)
        if self.export_trials is not None:
            files |= await self.export_trials(await self._run_in_thread(played_trials, self._store))
        return await self._run_in_thread(zipped, files)

    def parameters_of(self, who: str) -> Mapping[str, str]:
        """Return the parameters of somebody's link.

        Raises:
            NotFoundError: there is nobody of this id.
        """
        found = self._stored.get(who)
        if found is None:
            raise NotFoundError(f"there is no participant {who!r}")
        return found.parameters

    def seat_of(self, who: str) -> PageSeat | None:
        """Return the seat that somebody has in a trial; None: there is none."""
        person = self.machine.people.get(who)
        running = None if person is None or person.group is None else self._running.get(person.group)
        return None if running is None else running.seats.get(who)


def page_data(plan: PagePlan, texts: Texts) -> dict[str, Any]:
    """Return a page as a browser has it; the right answers of checks are not in it."""
    return {
        "name": plan.name,
        "kind": plan.kind,
        "title": plan.title,
        "html": texts.html(plan.text),
        "questions": [_question_data(each) for each in plan.questions],
    }


def _question_data(question: Question) -> dict[str, Any]:
    return {
        "name": question.name,
        "ask": question.ask,
        "kind": question.kind,
        "options": list(question.options),
        "low": question.low,
        "high": question.high,
        "labels": list(question.labels),
        "integer": question.integer,
        "required": question.required,
    }


def _hashed(ticket: str) -> str:
    return hashlib.sha256(ticket.encode()).hexdigest()


@asynccontextmanager
async def open_experiment(
    experiment: Experiment,
    trials: ExperimentTrials,
    play: PlayServer,
    platform: Platform,
    store: ExperimentStore,
    *,
    host: Host | None = None,
    config: PlayConfig | None = None,
) -> AsyncIterator[ExperimentServer]:
    """Have an experiment go on for the time of an `async with` block.

    Args:
        experiment: the file.
        trials: its environments and agents; the platform has their `participants`.
        play: has the seats of people.
        platform: has the trials.
        store: the file in which everything is kept; see `opened_store`.
        host: clock and secrets; by default that of the platform's participants.
        config: limits.

    Raises:
        CogmentError: the file cannot be read.
    """
    host = host or platform.participants.host
    server = ExperimentServer(experiment, trials, play, platform, store, host, config or PlayConfig())
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        yield server
        nursery.cancel_scope.cancel()
