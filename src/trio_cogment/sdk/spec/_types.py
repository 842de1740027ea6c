"""Actor classes and payload types: protobuf messages where a type is declared, raw bytes where none is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError, Message

from trio_cogment.base.errors import InvalidArgumentError, RemoteProtocolError
from trio_cogment.base.records import record
from trio_cogment.base.suggestions import suggestion
from trio_cogment.sdk.spec._messages import well_known_file

# Finding a message by the name that somebody wrote.


def resolve(names: Mapping[str, object], wanted: str) -> str | None:
    """Return the full name of the message that a name means, None if there is none.

    The published generator knows no dotted packages: in its files, such a message is named without its package.
    """
    if wanted in names:
        return wanted
    if "." in wanted:
        return None
    found = [name for name in names if name.rpartition(".")[2] == wanted]
    return found[0] if len(found) == 1 else None


def advice(names: Mapping[str, object], wanted: str) -> str:
    """Return what to try instead of a name that no message has."""
    file = well_known_file(wanted)
    if file is not None:
        return f"add {file!r} to import.proto"
    last = wanted.rpartition(".")[2]
    known = [name for name in names if not name.startswith("google.")]
    same = [name for name in known if name.rpartition(".")[2] == last]
    if same:
        return f"did you mean {' or '.join(map(repr, same[:3]))}?"
    if not known:
        return "import.proto names no file with a message"
    listed = ", ".join(known[:5]) + (", ..." if len(known) > 5 else "")
    return suggestion(wanted, known, f"expected the full name of a message: {listed}")


Payload: TypeAlias = Message | bytes


@record()
class ActorClass:
    """A class of actors. Without a type, such payloads are raw bytes.

    Attributes:
        name: the name in the trial parameters.
        observation: the type of observations.
        action: the type of actions.
        config: the type of actor configurations.
    """

    name: str
    observation: type[Message] | None = None
    action: type[Message] | None = None
    config: type[Message] | None = None


@record()
class Spec:
    """The types of a project, as `cogment.yaml` declares them.

    Attributes:
        actor_classes: the classes of actors.
        environment_config: the type of environment configurations.
        trial_config: the type of trial configurations.
        messages: all message types of the project by full name, if it was loaded from files.
    """

    actor_classes: tuple[ActorClass, ...] = ()
    environment_config: type[Message] | None = None
    trial_config: type[Message] | None = None
    messages: Mapping[str, type[Message]] = field(repr=False, compare=False, default_factory=dict)
    _by_name: dict[str, ActorClass] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._by_name.update({actor_class.name: actor_class for actor_class in self.actor_classes})

    @classmethod
    def of(cls, *actor_classes: ActorClass, environment_config: type[Message] | None = None) -> Spec:
        """Return a spec with these actor classes."""
        return cls(tuple(actor_classes), environment_config)

    def actor_class(self, name: str) -> ActorClass:
        """Return a class by name; one that is not declared has raw bytes everywhere."""
        return self._by_name.get(name) or ActorClass(name)

    def message(self, name: str) -> type[Any]:
        """Return a message type by its full name, such as `package.Message` or `package.Outer.Inner`.

        Raises:
            InvalidArgumentError: the project has no such message.
        """
        if not self.messages:
            raise InvalidArgumentError(f"there is no message {name!r}: this spec was not loaded from a project file")
        if name not in self.messages:
            raise InvalidArgumentError(f"there is no message {name!r}; {advice(self.messages, name)}")
        return self.messages[name]

    def names(self) -> Iterable[str]:
        """Return the declared class names."""
        return self._by_name.keys()


def encode(payload: Payload, expected: type[Message] | None, what: str) -> bytes:
    """Return a payload's bytes.

    Raises:
        InvalidArgumentError: the payload is neither bytes nor a message of the declared type.
    """
    if expected is not None and type(payload) is expected:
        return payload.SerializeToString()
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, Message) and (
        # The same message has another class in each pool: that of a generated module, that of a loaded spec.
        expected is None or payload.DESCRIPTOR.full_name == expected.DESCRIPTOR.full_name
    ):
        return payload.SerializeToString()
    wanted = "bytes or a message" if expected is None else expected.__name__
    raise InvalidArgumentError(f"{what}: expected {wanted}, got {type(payload).__name__}")


def decode(content: bytes, expected: type[Message] | None, what: str) -> Any:
    """Return a message of the declared type, or the bytes where none is declared.

    Raises:
        RemoteProtocolError: the bytes cannot be parsed as such a message.
    """
    if expected is None:
        return content
    try:
        return expected.FromString(content)
    except DecodeError:
        raise RemoteProtocolError(f"{what}: {len(content)} bytes, not a valid {expected.__name__}") from None
