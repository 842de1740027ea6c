"""The experiment file: pages, the waiting room, conditions, trials and ends, as records; pure.

`experiment_file` reads it from YAML. What is here is checked when it is made, so the machine and the server may rely on
it. Questions know how an answer is checked: the page in the browser helps people, and the server decides.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.suggestions import suggestion
from trio_cogment.experiment.texts import Picture

#: Part of links, of the ids of trials and of file names.
NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")
#: Longer answers to `long` questions are refused.
MAX_ANSWER_CHARACTERS = 10_000
#: What kinds of questions there are.
QUESTION_KINDS = ("text", "long", "number", "scale", "choice", "choices", "yes_no")
#: Parts of the generated page of a trial: who is in the group, the form for an action, and messages in and out.
PARTS = ("members", "roles", "observation", "actions", "messages", "feedback")
PAGE_KINDS = ("text", "consent", "questions")
#: Each way out of an experiment, with the sentence that people see if the file has no text for it.
ENDS: Mapping[str, str] = {
    "complete": "Thank you for taking part.",
    "partial": "The game ended early because somebody has left. Thank you for taking part: this counts in full.",
    "declined": "You have not agreed, so you do not take part. Nothing more is recorded.",
    "screened": "Thank you. Your answers do not fit what this study needs, so it ends here for you.",
    "idle": "You did not go on for too long, so the study has ended for you.",
    "unmatched": "Not enough people came in time. Thank you for waiting.",
    "full": "All places of this study are taken. Thank you for your interest.",
    "gone": "You were away for too long, so the study went on without you.",
    "left": "You have left the study.",
    "removed": "Those who run this study have ended it for you.",
    "refused": "This study is not open to you, or you have taken part before.",
}

#: Columns of participants.csv and what they mean; questions have columns of their own beside them.
PARTICIPANT_COLUMNS: Mapping[str, str] = {
    "participant": "id of the participant",
    "number": "the first who came is 1",
    "step": "where the participant was last: reading, waiting, preparing, ready, playing, finishing, out",
    "end": f"how it ended: {', '.join(ENDS)}",
    "condition": "of the participant's group",
    "group": "number of the group",
    "place": "in the group, from 1",
    "trials_played": "number of trials that have ended for the participant",
    "came_ns": "when the participant came; nanoseconds since the epoch",
    "out_ns": "when it ended for the participant",
    "pages_opened": "number of times that a page was opened, or loaded again, in whichever tab",
    "tab_changes": "number of times that another tab or window took over",
    "reconnections": "number of times that a page has lost its connection, and was there again",
    "actions": "number of actions",
}
#: What columns of parameters of the link begin with.
PARAMETER_COLUMN = "link_"
#: What a redirect has in place of a parameter of the link.
PLACEHOLDER = re.compile(r"\{([^{}]{1,64})\}")


def check_name(value: str, what: str) -> None:
    """Refuse what cannot be a name.

    Raises:
        InvalidArgumentError: it is empty, longer than 64 characters, or has other characters.
    """
    if not value or len(value) > 64 or not NAME_CHARACTERS.issuperset(value):
        raise InvalidArgumentError(f"{what}: expected letters a to z, digits, - and _; got {value!r}")


def _check_seconds(value: float, what: str) -> None:
    if not value > 0:
        raise InvalidArgumentError(f"{what}: expected seconds, more than 0; got {value:g}")


def _check_one_of(value: str, known: Sequence[str], what: str) -> None:
    if value not in known:
        raise InvalidArgumentError(f"{what}: unknown {value!r}; {suggestion(value, known)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question of a page.

    Attributes:
        name: of the column in the data.
        ask: what people read.
        kind: one of `QUESTION_KINDS`.
        options: of `choice` and `choices`.
        low, high: of `number` (None: no limit) and `scale`.
        labels: of the two ends of a `scale`.
        integer: a `number` is a whole one.
        required: it has to be answered.
        correct: the right answer of an attention or comprehension check; None: any answer will do.
    """

    name: str
    ask: str
    kind: str = "text"
    options: Sequence[str] = ()
    low: float | None = None
    high: float | None = None
    labels: Sequence[str] = ()
    integer: bool = False
    required: bool = True
    correct: Any = None

    def __post_init__(self) -> None:
        check_name(self.name, "name")
        where = f"question {self.name!r}"
        if self.name in PARTICIPANT_COLUMNS:
            raise InvalidArgumentError(
                f"{where}: name: expected another one; participants.csv has a column of this name"
            )
        if self.name.startswith(PARAMETER_COLUMN):
            raise InvalidArgumentError(f"{where}: name: columns that begin with {PARAMETER_COLUMN} are of the links")
        if not self.ask:
            raise InvalidArgumentError(f"{where}: ask: expected a text")
        _check_one_of(self.kind, QUESTION_KINDS, f"{where}: kind")
        choosing = self.kind in ("choice", "choices")
        if choosing and (len(self.options) < 2 or len(set(self.options)) < len(self.options)):
            raise InvalidArgumentError(f"{where}: options: expected two or more different ones")
        if not choosing and self.options:
            raise InvalidArgumentError(f"{where}: options: expected none for the kind {self.kind!r}")
        if self.kind == "scale":
            if self.low is None or self.high is None or not 1 <= self.high - self.low <= 20:
                raise InvalidArgumentError(f"{where}: low, high: expected whole numbers, with 20 steps or fewer")
            if not (float(self.low).is_integer() and float(self.high).is_integer()):
                raise InvalidArgumentError(f"{where}: low, high: expected whole numbers")
        elif self.low is not None and self.high is not None and self.low > self.high:
            raise InvalidArgumentError(f"{where}: low, high: expected them in this order")
        if len(self.labels) not in (0, 2):
            raise InvalidArgumentError(f"{where}: labels: expected two, for the ends of the scale")
        if self.correct is not None:
            try:
                self.checked(self.correct)
            except InvalidArgumentError as error:
                raise InvalidArgumentError(f"{where}: correct: {error}") from None

    def checked(self, answer: Any) -> Any:
        """Return an answer as it is stored; None: not answered.

        Raises:
            InvalidArgumentError: it is not an answer to this question; the text says what was expected.
        """
        if answer is None or answer == "" or answer == []:
            if self.required:
                raise InvalidArgumentError("expected an answer")
            return None
        if self.kind in ("text", "long"):
            most = 500 if self.kind == "text" else MAX_ANSWER_CHARACTERS
            if not isinstance(answer, str) or len(answer) > most:
                raise InvalidArgumentError(f"expected a text of {most} characters at most")
            if "\0" in answer or not _is_text(answer):
                raise InvalidArgumentError("expected a text")
            return answer
        if self.kind in ("number", "scale"):
            return self._number(answer)
        if self.kind == "yes_no":
            if not isinstance(answer, bool):
                raise InvalidArgumentError("expected yes or no")
            return answer
        if self.kind == "choice":
            if answer not in self.options:
                raise InvalidArgumentError("expected one of the options")
            return answer
        if not isinstance(answer, list) or any(each not in self.options for each in answer):
            raise InvalidArgumentError("expected some of the options")
        return [option for option in self.options if option in answer]

    def _number(self, answer: Any) -> float | int:
        if isinstance(answer, bool) or not isinstance(answer, int | float) or not abs(answer) <= 1e15:
            raise InvalidArgumentError("expected a number")
        whole = self.integer or self.kind == "scale"
        if whole and not float(answer).is_integer():
            raise InvalidArgumentError("expected a whole number")
        if (self.low is not None and answer < self.low) or (self.high is not None and answer > self.high):
            low, high = (("-" if limit is None else f"{limit:g}") for limit in (self.low, self.high))
            raise InvalidArgumentError(f"expected a number from {low} to {high}")
        return int(answer) if whole else answer

    def is_right(self, answer: Any) -> bool:
        """Return whether a checked answer is the right one; of texts, capital letters and blanks do not count."""
        if self.correct is None:
            return True
        if self.kind in ("text", "long") and answer is not None:
            return typed_alike(answer, self.correct)
        return bool(answer == self.checked(self.correct))


def typed_alike(one: str, other: str) -> bool:
    """Return whether texts are the same but for capital letters and blanks, which keyboards of phones add."""
    return _plain(one) == _plain(other)


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a character
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePlan:
    """One page to read, to agree to or to fill in.

    Attributes:
        name: in the data; unique in the experiment.
        kind: one of `PAGE_KINDS`.
        title: of the page.
        text: Markdown.
        questions: of a page of kind `questions`.
        seconds: how long somebody may stay on it; None: the experiment's `page_seconds`.
        attempts: how often the checks may be answered wrongly before `failed` counts.
        failed: `out` (the study ends with `screened`), or `on` (it is noted, and the study goes on).
        conditions: only people in one of these see it; empty: all.
    """

    name: str
    kind: str = "text"
    title: str = ""
    text: str = ""
    questions: Sequence[Question] = ()
    seconds: float | None = None
    attempts: int = 1
    failed: str = "out"
    conditions: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_name(self.name, "name")
        where = f"page {self.name!r}"
        _check_one_of(self.kind, PAGE_KINDS, f"{where}: kind")
        if (self.kind == "questions") != bool(self.questions):
            raise InvalidArgumentError(f"{where}: expected questions on pages of the kind 'questions', and on no other")
        if self.kind != "questions" and not self.text:
            raise InvalidArgumentError(f"{where}: expected a text")
        if self.seconds is not None:
            _check_seconds(self.seconds, f"{where}: seconds")
        if self.attempts < 1:
            raise InvalidArgumentError(f"{where}: attempts: expected 1 or more; got {self.attempts}")
        _check_one_of(self.failed, ("out", "on"), f"{where}: failed")
        _check_unique([each.name for each in self.questions], f"{where}: questions")

    def checked(self, answers: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answers of a page as they are stored.

        Raises:
            InvalidArgumentError: one is missing, wrong in kind, or of no question; the text names the question.
        """
        known = {each.name: each for each in self.questions}
        for name in answers:
            if name not in known:
                raise InvalidArgumentError(f"answers: there is no question {name[:64]!r} on this page")
        found = {}
        for name, question in known.items():
            try:
                found[name] = question.checked(answers.get(name))
            except InvalidArgumentError as error:
                raise InvalidArgumentError(f"{question.ask}: {error}") from None
        return found

    def wrong(self, answers: Mapping[str, Any]) -> list[str]:
        """Return the names of the checks that checked answers fail."""
        return [each.name for each in self.questions if not each.is_right(answers[each.name])]


def _check_unique(names: Sequence[str], what: str, of: Sequence[object] = ()) -> None:
    """See that no name is there twice; `of`: what has them, for who wants to know where that is."""
    for number, name in enumerate(names):
        if name in names[:number]:
            with _about(of[number] if of else None):
                raise InvalidArgumentError(f"{what}: {name!r} is there twice")


class PartError(InvalidArgumentError):
    """A part of an experiment does not fit the others.

    Attributes:
        part: which one, as it was given; None: the whole.
    """

    def __init__(self, text: str, part: object = None) -> None:
        super().__init__(text)
        self.part = part


@contextmanager
def _about(part: object) -> Iterator[None]:
    try:
        yield
    except InvalidArgumentError as error:
        raise PartError(str(error), part) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The waiting room.

    Attributes:
        size: how many people a group has.
        seconds: how long anybody waits at most.
        way_out_seconds: after which the page offers a way out, with the code of `unmatched`.
        shortage: when somebody's time is over: `bots` take the places that are left, or people are `let_go`.
        groups: how many there may be; then the study is full. None: no limit.
    """

    size: int = 1
    seconds: float = 300.0
    way_out_seconds: float = 60.0
    shortage: str = "let_go"
    groups: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.size <= 100:
            raise InvalidArgumentError(f"waiting: size: expected a number from 1 to 100; got {self.size}")
        _check_seconds(self.seconds, "waiting: seconds")
        if not self.way_out_seconds >= 0:
            raise InvalidArgumentError("waiting: way_out_seconds: expected seconds, 0 or more")
        _check_one_of(self.shortage, ("bots", "let_go"), "waiting: shortage")
        if self.groups is not None and self.groups < 1:
            raise InvalidArgumentError(f"waiting: groups: expected 1 or more; got {self.groups}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropout:
    """When somebody of a group goes.

    Attributes:
        then: a `bot` takes the place, the `default` action is taken, `fewer` go on, or the group has an `end`, which is
            `partial` for the others.
        grace_seconds: how long the trial waits for somebody whose page has gone; the others see it run down.
        tell: the others are told that a bot, or the default action, acts.
        default: the action of `default`, as JSON has it.
        bot: who acts for people who have gone, and has places that are left: `random`, or MODULE:NAME.
        least: with so many people at least the group goes on, where `then` is `fewer`.
        meanwhile: of the trial that somebody has left, where `then` is `fewer`: it is played `again` without them, from
            its beginning, or goes on to its end with the `bot` or the `default` action in their place.
    """

    then: str = "end"
    grace_seconds: float = 30.0
    tell: bool = True
    default: Any = None
    bot: str = "random"
    least: int = 1
    meanwhile: str = "again"

    def __post_init__(self) -> None:
        _check_one_of(self.then, ("bot", "default", "end", "fewer"), "dropout: then")
        if self.least < 1:
            raise InvalidArgumentError(f"dropout: least: expected 1 or more; got {self.least}")
        _check_seconds(self.grace_seconds, "dropout: grace_seconds")
        _check_one_of(self.meanwhile, ("again", "bot", "default"), "dropout: meanwhile")
        if self.meanwhile != "again" and self.then != "fewer":
            raise InvalidArgumentError("dropout: meanwhile: expected it only where then is 'fewer'")
        if (self.in_the_trial == "default") != (self.default is not None):
            raise InvalidArgumentError(
                "dropout: default: expected an action if, and only if, then is 'default', or meanwhile is"
            )

    @property
    def in_the_trial(self) -> str:
        """What happens in the trial that somebody has left: `bot`, `default`, or `end`, where it cannot go on."""
        if self.then != "fewer":
            return self.then
        return "end" if self.meanwhile == "again" else self.meanwhile


#: Ticks a second, and ticks to an observation, as trials take them.
MAX_TICK_HZ, MAX_OBSERVE_EVERY = 1000.0, 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPlan:
    """One of the trials that a group plays in a row.

    Attributes:
        name: in the data; unique in the experiment.
        environment: what `trio-cogment play` takes: an id, or MODULE:FUNCTION.
        arguments: of the function that makes it.
        people: the agents that people play, one for each place of a group; empty: the first ones.
        bots: who plays the others: `random`, `wizard` (a researcher), or MODULE:NAME of a function or a seat.
        agents_argument: the argument of the environment's function that gets the names of the agents who play; empty:
            it has none. Where fewer go on, those who have gone are not among them.
        roles: `keep`: each person has the same place as in the file; `swap`: places move on by one with each trial.
        pages: that each member sees before it; the group waits for all.
        title, text, labels: as of `trio-cogment play`.
        action_seconds: how long a person has for an action; infinite: no limit.
        tick_hz: ticks end by the clock, so many a second, and a person who has not acted by then takes part with the
            default action (`dropout.default`); 0: the trial waits for people.
        observe_every: people are shown every n-th tick, and act once for all up to the next one; 0: every tick.
        hold_action: a person's last action is taken again until the next one.
        renderer: an HTML page of one's own that shows observations; empty: there is none.
        show: which parts of the generated page are there, of `PARTS`.
        talk: people may send messages and rewards to the other participants, also from a page of one's own; None: if
            `feedback` is shown.
        end_seconds: for so long people see how the trial has ended, if they do not go on before; 0: not at all.
    """

    name: str
    environment: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    people: Sequence[str] = ()
    bots: Mapping[str, str] = field(default_factory=dict)
    roles: str = "keep"
    pages: Sequence[PagePlan] = ()
    title: str = ""
    text: str = ""
    labels: Sequence[str] = ()
    action_seconds: float = math.inf
    tick_hz: float = 0.0
    observe_every: int = 0
    hold_action: bool = False
    renderer: bytes = b""
    show: Sequence[str] = ("members", "observation", "actions", "messages")
    talk: bool | None = None
    agents_argument: str = ""
    end_seconds: float = 10.0

    def __post_init__(self) -> None:
        check_name(self.name, "name")
        where = f"trial {self.name!r}"
        for part in self.show:
            _check_one_of(part, PARTS, f"{where}: show")
        if not self.environment:
            raise InvalidArgumentError(f"{where}: environment: expected an id, or MODULE:FUNCTION")
        _check_one_of(self.roles, ("keep", "swap"), f"{where}: roles")
        _check_seconds(self.action_seconds, f"{where}: action_seconds")
        if not 0 <= self.end_seconds < math.inf:
            raise InvalidArgumentError(f"{where}: end_seconds: expected seconds, 0 or more; got {self.end_seconds:g}")
        if not 0 <= self.tick_hz <= MAX_TICK_HZ:
            raise InvalidArgumentError(f"{where}: tick_hz: expected 0 to {MAX_TICK_HZ:g}, got {self.tick_hz:g}")
        if not 0 <= self.observe_every <= MAX_OBSERVE_EVERY:
            raise InvalidArgumentError(
                f"{where}: observe_every: expected 0 to {MAX_OBSERVE_EVERY}, got {self.observe_every}"
            )
        _check_unique(list(self.people), f"{where}: people")


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What is different in trials.

    Attributes:
        arguments: of the environment, over those of the trial.
        bots: of agents, over those of the trial.
    """

    arguments: Mapping[str, Any] = field(default_factory=dict)
    bots: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What is different for some of the groups.

    Attributes:
        name: in the data.
        arguments: of environments, over those of each trial.
        bots: of agents, over those of each trial.
        trials: what is different in one of the trials, by its name; over those for all.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    bots: Mapping[str, str] = field(default_factory=dict)
    trials: Mapping[str, Changes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name(self.name, "condition")

    def changes(self, trial: str) -> Changes:
        """Return what is different in a trial."""
        own = self.trials.get(trial, Changes())
        return Changes(arguments={**self.arguments, **own.arguments}, bots={**self.bots, **own.bots})


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """What people see who are at an end.

    Attributes:
        text: Markdown; empty: the sentence of `ENDS`.
        code: to be copied, for a platform that recruits people.
        redirect: an address that a button leads to; `{PROLIFIC_PID}` stands for that parameter of the person's link,
            which has to be kept, or to be the id.
    """

    text: str = ""
    code: str = ""
    redirect: str = ""

    def __post_init__(self) -> None:
        if self.redirect and not self.redirect.startswith(("https://", "http://")):
            raise InvalidArgumentError(f"redirect: expected an address (https://...); got {self.redirect!r}")
        if set("{}") & set(PLACEHOLDER.sub("", self.redirect)):
            raise InvalidArgumentError(f"redirect: expected {{NAME}} for a parameter; got {self.redirect!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """Who takes part, and by which id.

    Attributes:
        id: `drawn` (by the server), `query:NAME` (the link's parameter), `code` (typed by the person) or `link` (each
            has a link of their own; see `allow`).
        allow: the ids of those who may come; empty: all. `code` and `link` need it.
        keep_out: the ids of those who may not, because they have taken part before.
        parameters: which parameters of the link are kept with the person; None: all.
    """

    id: str = "drawn"
    allow: frozenset[str] = frozenset()
    keep_out: frozenset[str] = frozenset()
    parameters: frozenset[str] | None = None

    def __post_init__(self) -> None:
        kind, _, name = self.id.partition(":")
        if kind not in ("drawn", "query", "code", "link") or bool(name) != (kind == "query"):
            raise InvalidArgumentError(
                f"participants: id: expected drawn, code, link or query:NAME (a parameter of links); got {self.id!r}"
            )
        if kind in ("code", "link") and not self.allow:
            raise InvalidArgumentError(f"participants: allow: expected the ids of those who may come, with id: {kind}")
        if kind == "drawn" and (self.allow or self.keep_out):
            raise InvalidArgumentError("participants: allow, keep_out: with id: drawn nobody has an id before")

    @property
    def parameter_of_id(self) -> str:
        """The parameter of links that is the id; empty: none is."""
        kind, _, name = self.id.partition(":")
        return {"query": name, "link": "participant"}.get(kind, "")

    def id_of_code(self, typed: str) -> str | None:
        """Return whose code somebody has typed; None: it is nobody's.

        Capital letters and blanks do not count, unless codes differ in nothing else.
        """
        if typed in self.allow:
            return typed
        alike = [code for code in self.allow if typed_alike(code, typed)]
        return alike[0] if len(alike) == 1 else None

    def keeps(self, parameter: str) -> bool:
        """Return whether a parameter of links is kept."""
        signs = self.id == "link" and parameter == "signature"
        return not signs and (self.parameters is None or parameter in self.parameters)

    def knows(self, parameter: str) -> bool:
        """Return whether a parameter is known of somebody whose link has it."""
        return self.keeps(parameter) or parameter == self.parameter_of_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """An experiment file.

    Attributes:
        name: of the experiment, in links and file names.
        title: for people.
        participants: who takes part.
        before: pages before the waiting room.
        waiting: the waiting room.
        conditions: between groups; there is at least one.
        assignment: `balanced`: in the order of the file; `seeded`: in an order that the seed draws. In both, the
            numbers of groups in two conditions never differ by more than one.
        seed: of what is drawn.
        dropout: when somebody of a group goes.
        trials: that each group plays, one after the other.
        after: pages after the trials.
        ends: by the names of `ENDS`.
        page_seconds: how long somebody may stay on a page.
        after_restart: of the server in the middle of a trial: `go_on` where it was, or play it `again`.
        pictures: by their addresses in the texts.
        places: where each trial, by its name, and `dropout`, by an empty one, is in a file, as errors begin.
    """

    name: str
    title: str
    participants: People = field(default_factory=People)
    before: Sequence[PagePlan] = ()
    waiting: Waiting = field(default_factory=Waiting)
    conditions: Sequence[Condition] = (Condition(name="all"),)
    assignment: str = "balanced"
    seed: int = 0
    dropout: Dropout = field(default_factory=Dropout)
    trials: Sequence[TrialPlan] = ()
    after: Sequence[PagePlan] = ()
    ends: Mapping[str, End] = field(default_factory=dict)
    page_seconds: float = 600.0
    after_restart: str = "go_on"
    pictures: Mapping[str, Picture] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        check_name(self.name, "name")
        if not self.trials:
            raise InvalidArgumentError("trials: expected one or more")
        if not self.conditions:
            raise InvalidArgumentError("conditions: expected one or more")
        _check_one_of(self.assignment, ("balanced", "seeded"), "assignment")
        _check_one_of(self.after_restart, ("go_on", "again"), "after_restart")
        _check_seconds(self.page_seconds, "page_seconds")
        pages = [*self.before, *(page for trial in self.trials for page in trial.pages), *self.after]
        _check_unique([each.name for each in pages], "pages", pages)
        questions = [question for page in pages for question in page.questions]
        _check_unique([each.name for each in questions], "questions", questions)
        _check_unique([each.name for each in self.trials], "trials", self.trials)
        names = [each.name for each in self.conditions]
        _check_unique(names, "conditions", self.conditions)
        for condition in self.conditions:
            for name in condition.trials:
                with _about(condition):
                    _check_one_of(name, [each.name for each in self.trials], f"conditions: {condition.name}: trials")
        for page in self.before:
            with _about(page):
                if page.conditions:
                    raise InvalidArgumentError(
                        f"page {page.name!r}: conditions: groups have none before the waiting room; expected none here"
                    )
        for page in pages:
            for name in page.conditions:
                with _about(page):
                    _check_one_of(name, names, f"page {page.name!r}: conditions")
        for name, end in self.ends.items():
            with _about(end):
                _check_one_of(name, tuple(ENDS), "ends")
                for parameter in PLACEHOLDER.findall(end.redirect):
                    if not self.participants.knows(parameter):
                        raise InvalidArgumentError(
                            f"ends: {name}: redirect: {{{parameter}}} is not known of anybody; "
                            "expected it in participants: parameters, or as the parameter of the id"
                        )
        fewer = self.dropout.then == "fewer"
        with _about(self.dropout):
            if fewer and self.dropout.least > self.waiting.size:
                raise InvalidArgumentError(
                    f"dropout: least: expected {self.waiting.size} at most, as many as a group has; "
                    f"got {self.dropout.least}"
                )
        for trial in self.trials:
            with _about(trial):
                self._check_trial(trial, fewer)

    def _check_trial(self, trial: TrialPlan, fewer: bool) -> None:
        if fewer and not trial.agents_argument:
            raise InvalidArgumentError(
                f"trial {trial.name!r}: agents_argument: expected the argument of the environment that gets the "
                "names of the agents who play, because with dropout: fewer there may be fewer of them"
            )
        if trial.people and len(trial.people) != self.waiting.size:
            raise InvalidArgumentError(
                f"trial {trial.name!r}: people: expected {self.waiting.size}, as many as a group has "
                f"(waiting: size); got {len(trial.people)}"
            )

    def end(self, name: str) -> End:
        """Return what people see at an end; without a text in the file, the sentence of `ENDS`."""
        found = self.ends.get(name, End())
        return found if found.text else End(text=ENDS[name], code=found.code, redirect=found.redirect)

    def outline(self) -> dict[str, Any]:
        """Return what has to stay the same for who is on the way, as JSON has it: names, and how many there are."""
        return {
            "before": [page.name for page in self.before],
            "size": self.waiting.size,
            "conditions": sorted(condition.name for condition in self.conditions),
            "trials": [[trial.name, *(page.name for page in trial.pages)] for trial in self.trials],
            "after": [page.name for page in self.after],
        }

    def pages_of(self, trial: int, condition: str) -> list[PagePlan]:
        """Return the pages that somebody in a condition sees before a trial; behind the last one: after them."""
        pages = self.trials[trial].pages if trial < len(self.trials) else self.after
        return [page for page in pages if not page.conditions or condition in page.conditions]
