"""Participants that are programs: they read every page, answer its questions, wait, and act at random.

`trio-cogment play --demo` has them try an experiment out, and tests have them fill it. They sit at pages as people do,
without the network: what a page is told, and what it may say, is the same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from random import Random
from typing import Any

import trio

from trio_cogment.experiment.definition import Experiment, Question
from trio_cogment.experiment.server import ExperimentServer

#: A page that is not read waits with so many messages; see `play.page`.
_BUFFER = 16


class MemorySocket:
    """Both ends of the WebSocket of a page, in one process."""

    def __init__(self) -> None:
        self._to_page, self._at_page = trio.open_memory_channel[bytes](_BUFFER)
        self._to_server, self._at_server = trio.open_memory_channel[bytes](_BUFFER)

    async def send(self, data: bytes) -> None:
        """Send to the page."""
        await self._to_page.send(data)

    async def receive(self) -> bytes:
        """Return what the page says."""
        return await self._at_server.receive()

    async def say(self, **message: Any) -> None:
        """Say something, as the page."""
        await self._to_server.send(json.dumps(message).encode())

    async def read(self) -> dict[str, Any]:
        """Return the next message to the page, without the bytes of pictures."""
        data = await self._at_page.receive()
        size = int.from_bytes(data[:4], "big")
        message: dict[str, Any] = json.loads(data[4 : 4 + size])
        return message


class AutomaticParticipant:
    """A participant that is a program.

    Args:
        server: of the experiment.
        random: draws answers and actions.
        parameters: of the link by which it comes.
        code: that it types where it is asked for one.
        pause_seconds: how long it takes over each page and action.

    Attributes:
        id: as the server has told it.
        ticket: by which it can come again.
        end: the name of the end that it has come to; empty before.
        pages: the names of the pages it has seen.
        refused: why what it has said was not taken; it leaves then.
    """

    def __init__(
        self,
        server: ExperimentServer,
        random: Random,
        *,
        parameters: Mapping[str, str] | None = None,
        code: str = "",
        pause_seconds: float = 0.1,
    ) -> None:
        self.id = self.ticket = self.end = ""
        self.pages: list[str] = []
        self.refused: list[str] = []
        self._server = server
        self._random = random
        self._parameters = dict(parameters or {})
        self._code = code
        self._pause_seconds = pause_seconds
        self._seat = ""  # the link of the seat that is taken

    async def run(self) -> str:
        """Take part until the end; return its name. After a cancellation it goes on, as a page that is loaded again."""
        socket = MemorySocket()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._server.serve_page, socket)
            self._seat = ""
            await socket.say(type="enter", ticket=self.ticket, parameters=self._parameters, width=1280, height=800)
            while not self.end:
                message = await socket.read()
                if message["type"] == "dismissed":
                    break
                if message["type"] == "experiment":
                    await self._take(message, socket, nursery)
                elif message["type"] == "refused":
                    # The same answer again would be refused again, until the time of the page is over.
                    self.refused.append(f"{self.pages[-1]}: {message['reason']}" if self.pages else message["reason"])
                    if not self.id:
                        break
                    await socket.say(type="leave")
            nursery.cancel_scope.cancel()
        return self.end

    async def _take(self, message: dict[str, Any], socket: MemorySocket, nursery: trio.Nursery) -> None:
        self.id = message.get("id", self.id)
        self.ticket = message.get("welcome", {}).get("ticket", self.ticket)
        page, seat = message.get("page"), message.get("seat")
        if page is not None and self.pages[-1:] != [page["name"]]:
            self.pages.append(page["name"])
            await trio.sleep(self._pause_seconds)
            answers = answers_to(self._server.experiment, page["name"], self._random)
            await socket.say(type="turn", page=page["name"], answers=answers, agrees=True)
        elif seat is not None and seat["link"] != self._seat:
            self._seat = seat["link"]
            nursery.start_soon(self._play)
        elif message["step"] == "code":
            await socket.say(type="enter", parameters=self._parameters, code=self._code)
        elif message["step"] == "out":
            self.end = message["end"]["name"]

    async def _play(self) -> None:
        """Take the seat of a trial, and act until it is over."""
        seat, socket = self._server.seat_of(self.id), MemorySocket()
        if seat is None:
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(seat.serve_page, socket)
            form: dict[str, Any] | None = None
            acted = None
            while True:
                message = await socket.read()
                if message["type"] == "dismissed":
                    break
                if message["type"] == "refused":
                    self.refused.append(f"{seat.actor}: {message['reason']}")
                if message["type"] != "seat":
                    continue
                form = message.get("form", form)
                if message["asked"] is not None and message["asked"] != acted and form is not None:
                    acted = message["asked"]
                    await trio.sleep(self._pause_seconds)
                    action = action_of(form, self._random)
                    await socket.say(type="act", tick=acted, action=action, at=1000 * self._server.now())
            nursery.cancel_scope.cancel()


def answers_to(experiment: Experiment, page: str, random: Random) -> dict[str, Any]:
    """Return answers to the questions of a page: the right ones where there are some, and else any."""
    pages = [*experiment.before, *(each for trial in experiment.trials for each in trial.pages), *experiment.after]
    [plan] = [each for each in pages if each.name == page]
    return {each.name: answer_to(each, random) for each in plan.questions}


def answer_to(question: Question, random: Random) -> Any:
    """Return an answer to a question."""
    if question.correct is not None:
        return question.correct
    if question.kind in ("text", "long"):
        return "an answer of a program"
    if question.kind == "yes_no":
        return random.random() < 0.5
    if question.kind == "choice":
        return random.choice(question.options)
    if question.kind == "choices":
        return [each for each in question.options if random.random() < 0.5] or [question.options[0]]
    low, high = question.low, question.high
    if low is None:
        low = 0 if high is None else min(0, high - 100)
    if high is None:
        high = low + 100
    least, most = math.ceil(low), math.floor(high)
    return random.randint(least, most) if least <= most else random.uniform(low, high)


def action_of(form: Mapping[str, Any], random: Random) -> Any:
    """Return an answer to the form of an action; `play.forms` and `play.space_codec` say which forms there are."""
    kind = form["kind"]
    if kind == "choice":
        allowed = [each for each in form["options"] if each.get("allowed", True)]
        return random.choice(allowed)["value"]
    if kind == "number":
        low = form["initial"] if form["low"] is None else form["low"]
        high = form["initial"] if form["high"] is None else form["high"]
        return random.randint(int(low), int(high)) if form["integer"] else random.uniform(float(low), float(high))
    if kind == "switch":
        return random.random() < 0.5
    if kind == "switches":
        drawn = [random.randint(0, 1) if each is None else each for each in form["fixed"]]
        return _nested(drawn, form["shape"])
    if kind in ("sliders", "choices"):
        return _nested([action_of(each, random) for each in form["forms"]], form["shape"])
    if kind == "list":
        return [action_of(each, random) for each in form["forms"]]
    if kind == "object":
        return {
            each["name"]: action_of(each["form"], random) for each in form["fields"] if not each.get("optional", False)
        }
    if kind == "one_of":
        which = random.randrange(len(form["forms"]))
        return [which, action_of(form["forms"][which], random)]
    if kind == "text":
        return str(form.get("characters") or "x")[:1] * int(form.get("least") or 0)
    return [] if kind == "sequence" else None


def _nested(flat: list[Any], shape: list[int]) -> Any:
    if not shape:
        return flat[0]
    if len(shape) == 1:
        return flat
    size = len(flat) // shape[0]
    return [_nested(flat[k * size : (k + 1) * size], shape[1:]) for k in range(shape[0])]


def people_of_demo(experiment: Experiment, groups: int) -> int:
    """Return how many programs are to take part: so many groups of them, or as many as there are ids for."""
    size, ids = experiment.waiting.size, _ids(experiment)
    return groups * size if ids is None else min(groups, len(ids) // size) * size or len(ids)


def _ids(experiment: Experiment) -> list[str] | None:
    """Return the ids of those who may come; None: everybody may."""
    people = experiment.participants
    return sorted(people.allow - people.keep_out) if people.allow else None


async def play_demo(
    server: ExperimentServer, people: int, random: Random, refused: list[str] | None = None
) -> dict[str, int]:
    """Have programs take part, all at once; return how many have come to each end.

    Args:
        server: of the experiment.
        people: how many; where only some ids may come, no more than these.
        random: draws answers and actions.
        refused: gets why something that they have said was not taken.
    """
    ends: dict[str, int] = {}
    ids = _ids(server.experiment)
    if ids is None:
        ids = [f"demo-{number + 1}" for number in range(people)]

    async def one(who: str) -> None:
        one_of_them = AutomaticParticipant(server, Random(random.random()), parameters=_link(server, who), code=who)
        end = await one_of_them.run()
        # Who is not let in comes to no end.
        ends[end or "kept out"] = ends.get(end or "kept out", 0) + 1
        if refused is not None:
            refused.extend(one_of_them.refused)

    async with trio.open_nursery() as nursery:
        for who in ids[:people]:
            nursery.start_soon(one, who)
    return ends


def _link(server: ExperimentServer, who: str) -> dict[str, str]:
    """Return the parameters by which a program comes."""
    kind, _, name = server.experiment.participants.id.partition(":")
    if kind == "query":
        return {name: who}
    return server.link_parameters(who) if kind == "link" else {}
