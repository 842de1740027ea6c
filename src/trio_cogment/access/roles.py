"""Roles, and what a token or a certificate grants."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import fields

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.records import record

#: The longest name of a token's holder.
MAX_NAME_CHARACTERS = 128
#: The longest name of an account: what kind of one it is, and the holder's name.
MAX_ACCOUNT_CHARACTERS = 2 * MAX_NAME_CHARACTERS
#: The longest name of what a token is for: a trial's id, with the mark before it.
MAX_PATTERN_CHARACTERS = 513
#: How many trials, classes and actors a token may name, each.
MAX_NAMES = 64
#: Ends a name that stands for all that begin with what is before it.
WILDCARD = "*"
#: Begins a name that stands for itself, whatever it ends with: that of a trial was chosen by somebody else.
EXACTLY = "="


class Role(enum.Enum):
    """What somebody is to the platform; `rights` says what that allows."""

    ADMIN = "admin"
    OPERATOR = "operator"
    PARTICIPANT = "participant"
    SEAT = "seat"
    OBSERVER = "observer"
    DIRECTORY = "directory"
    ORCHESTRATOR = "orchestrator"
    WORKER = "worker"


#: Who plays where a token says.
PLAYERS = frozenset([Role.PARTICIPANT, Role.SEAT])

#: In one sentence each, for help texts and docs.
ROLE_TEXTS: dict[Role, str] = {
    Role.ADMIN: "may do everything",
    Role.OPERATOR: "starts trials, stores trials and models, and reads, ends and deletes those of its own",
    Role.PARTICIPANT: "plays in the trials, as the classes and actors, that its token names",
    Role.SEAT: "plays as the one actor of the one trial that its token names, and reads nothing else",
    Role.OBSERVER: "reads everything and changes nothing",
    Role.DIRECTORY: "registers services with a directory, and removes its own",
    Role.ORCHESTRATOR: "calls participants and hooks, and writes the data logs of the trials it runs",
    Role.WORKER: "reports the progress of the trainer's runs that its token names",
}


@record(kw_only=True)
class Quotas:
    """How much one account may have at a time; None: as much as the server allows anybody.

    Attributes:
        trials: trials that have not ended.
        stored_bytes: samples and versions of models that a server stores.
        models: models in a registry.
    """

    trials: int | None = None
    stored_bytes: int | None = None
    models: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not (type(value) is int and 0 <= value < 2**63):
                raise InvalidArgumentError(f"quota {field.name}: expected a whole number from 0 on, got {value!r}")

    def text(self) -> str:
        """Return them as text."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return " ".join(f"{name}={value}" for name, value in values.items() if value is not None)

    @classmethod
    def parse(cls, text: str) -> Quotas:
        """Read what `text` returns.

        Raises:
            InvalidArgumentError: it is something else.
        """
        try:
            return cls(**{name: int(value) for name, value in (part.split("=") for part in text.split())})
        except (ValueError, TypeError):
            raise InvalidArgumentError(f"quotas: expected such as 'trials=2', got {text[:64]!r}") from None


@record(kw_only=True)
class Grant:
    """What its holder may do.

    Attributes:
        name: of the holder. Tokens with the same name are one account: they share what they own, and their quotas.
        roles: see `Role`. Without any, the holder may ask servers how they are and no more.
        trials: where the holder may play, which trials an orchestrator's token is for, or which runs a worker's; an id,
            the beginning of ids with `*` behind it, or an id with `=` before it. Empty: any.
        classes: as which actor classes the holder may play; as `trials`.
        actors: as which actors, by their names; as `trials`.
        quotas: see there.
        owner: the account for which an orchestrator runs the trial that its token is for, and whose quotas these are
            then; empty: it does not say.
    """

    name: str
    roles: frozenset[Role] = frozenset()
    trials: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    actors: tuple[str, ...] = ()
    quotas: Quotas = Quotas()
    owner: str = ""

    def __post_init__(self) -> None:
        _check_name("name", self.name)
        if self.owner:
            _check_name("owner", self.owner, MAX_ACCOUNT_CHARACTERS)
        if "#" in self.name or self.name != self.name.strip():
            raise InvalidArgumentError(f"name: expected no '#' and no blanks at the ends, got {self.name!r}")
        for what in ("trials", "classes", "actors"):
            names = getattr(self, what)
            if len(names) > MAX_NAMES:
                raise InvalidArgumentError(f"{what}: expected {MAX_NAMES} at most, got {len(names)}")
            for name in names:
                _check_name(what, name, MAX_PATTERN_CHARACTERS)
        if Role.SEAT in self.roles and not (_is_one(self.trials) and _is_one(self.actors)):
            raise InvalidArgumentError("role seat: expected one trial and one actor, each without a wildcard")

    def names_trial(self, trial_id: str) -> bool:
        """Tell whether it is for this trial."""
        return _names(self.trials, trial_id)

    @property
    def one_trial(self) -> str:
        """The one that it is for; empty: it is for several, or for any."""
        return self.trials[0].removeprefix(EXACTLY) if _is_one(self.trials) else ""

    def names_actor(self, trial_id: str, actor_class: str, actor_name: str) -> bool:
        """Tell whether it is for this actor of this trial."""
        return _names(self.trials, trial_id) and _names(self.classes, actor_class) and _names(self.actors, actor_name)


def _is_one(patterns: tuple[str, ...]) -> bool:
    return len(patterns) == 1 and (patterns[0].startswith(EXACTLY) or not patterns[0].endswith(WILDCARD))


def _names(patterns: tuple[str, ...], name: str) -> bool:
    return not patterns or any(_stands_for(pattern, name) for pattern in patterns)


def _stands_for(pattern: str, name: str) -> bool:
    if pattern.startswith(EXACTLY):
        return name == pattern[1:]
    return name.startswith(pattern[:-1]) if pattern.endswith(WILDCARD) else name == pattern


def _check_name(what: str, name: str, most: int = MAX_NAME_CHARACTERS) -> None:
    if not (name and len(name) <= most and name.isprintable()):
        raise InvalidArgumentError(f"{what}: expected 1 to {most} printable characters, got {name[:most]!r}")


def roles_of(names: Iterable[str]) -> frozenset[Role]:
    """Return the roles with these names.

    Raises:
        InvalidArgumentError: there is no such role.
    """
    try:
        return frozenset(map(Role, names))
    except ValueError as error:
        known = ", ".join(role.value for role in Role)
        raise InvalidArgumentError(f"role: {error.args[0].split(' is not')[0]}: expected one of {known}") from None
