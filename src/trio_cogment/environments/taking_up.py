"""Episodes that go on at a tick of a stored trial: an environment that saves itself, or one that is played again.

An environment that saves itself has `save() -> bytes` and `load(bytes)`, or `get_state()` and `set_state(state)`, where
the state is made of what a message can carry: numbers, arrays, texts, bytes, lists and dicts. Nothing is pickled: a
stored trial may have been written by anybody. The counters of known wrappers are saved with it; an environment in other
wrappers, which may have a state of their own, is played again.

One that is played again is given the seed, the options and the actions of the stored trial, and each of its
observations is compared bit for bit with the stored one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.message import DecodeError

from trio_cogment.api import spaces_pb2 as pb
from trio_cogment.environments.base import Environment
from trio_cogment.environments.errors import TakingUpError
from trio_cogment.spaces import Observation, SpaceError
from trio_cogment.spaces.values import decode_fields, serialized_fields

#: Wrappers that change nothing of an episode but, some of them, count its steps.
_WRAPPERS = frozenset(
    (
        *("gymnasium.TimeLimit", "gymnasium.OrderEnforcing", "gymnasium.PassiveEnvChecker"),
        *("trio_cogment.TypeMemory", "pettingzoo.OrderEnforcingWrapper", "pettingzoo.AssertOutOfBoundsWrapper"),
    )
)
_COUNTERS = ("_elapsed_steps", "_has_reset", "_has_updated", "_has_rendered")
#: `env` of a wrapper might lead back to itself.
_LONGEST_CHAIN = 64
#: They differ with who watches, and with the tick at which a trial begins.
NOT_COMPARED = ("rendered_frame", "frame_media_type", "observation_space", "action_space")


class Saver:
    """Saves and loads an environment that can be; `of` makes it."""

    def __init__(self, environment: Environment, inner: Any, wrappers: Sequence[Any], *, plain: bool) -> None:
        self._environment = environment
        self._inner = inner
        self._plain = plain
        #: Where the counters of the wrappers are, by what they are called in what is saved. Wrappers without any are
        #: not counted: an environment elsewhere may have others of these.
        self._counters: dict[str, tuple[dict[str, Any], str]] = {}
        for wrapper in wrappers:
            for name in _COUNTERS:
                if name in vars(wrapper):
                    called = f"{_kind(wrapper)}.{name}"
                    again = sum(each.startswith(called) for each in self._counters)
                    self._counters[f"{called} {again + 1}" if again else called] = vars(wrapper), name

    @classmethod
    def of(cls, environment: Environment) -> Saver | None:
        """Return what saves an environment; None: it does not save itself."""
        inner: Any = environment
        wrappers: list[Any] = []
        for _ in range(_LONGEST_CHAIN):
            if callable(getattr(type(inner), "save", None)) and callable(getattr(type(inner), "load", None)):
                return cls(environment, inner, wrappers, plain=True)
            if callable(getattr(type(inner), "get_state", None)) and callable(getattr(type(inner), "set_state", None)):
                return cls(environment, inner, wrappers, plain=False)
            if inner is not environment:
                if _kind(inner) not in _WRAPPERS:
                    return None
                wrappers.append(inner)
            inner = vars(inner).get("env")
            if inner is None:
                return None
        return None

    def save(self) -> bytes:
        """Return the state of the environment.

        Raises:
            SpaceError: its state is made of what no message can carry.
            Exception: whatever the environment raised.
        """
        state = self._inner.save() if self._plain else self._inner.get_state()
        counters = {called: counters[name] for called, (counters, name) in self._counters.items()}
        fields: dict[str, Any] = {"state": state, "counters": counters}
        ended = getattr(self._environment, "_ended", None)
        if ended:
            fields["ended"] = sorted(ended)
        return serialized_fields(fields)

    def load(self, content: bytes, observations: Mapping[str, Observation]) -> None:
        """Give the environment a state that was saved.

        Args:
            content: of the state.
            observations: with which it was saved.

        Raises:
            ValueError: it is none.
            Exception: whatever the environment raised.
        """
        try:
            fields = decode_fields(pb.Value.Fields.FromString(content), copy=True)
            state, counters = fields["state"], fields["counters"]
        except (DecodeError, SpaceError, LookupError) as error:
            raise ValueError(f"expected a state that was saved, got something else: {error}") from None
        if not isinstance(counters, dict) or counters.keys() != self._counters.keys():
            raise ValueError(
                f"expected the counters of the wrappers around the environment, {', '.join(self._counters) or 'none'}; "
                f"got {', '.join(counters) if isinstance(counters, dict) and counters else 'none'}"
            )
        (self._inner.load if self._plain else self._inner.set_state)(state)
        for called, (into, name) in self._counters.items():
            into[name] = counters[called]
        loaded = getattr(self._environment, "loaded", None)
        if loaded is not None:
            loaded(observations, frozenset(fields.get("ended", ())))


def _kind(wrapper: Any) -> str:
    kind = type(wrapper)
    return f"{kind.__module__.partition('.')[0]}.{kind.__name__}"


def is_same(expected: bytes, got: bytes) -> bool:
    """Whether an observation is the stored one, but for frames and spaces."""
    return expected == got or _serialized(_compared(expected)) == _serialized(_compared(got))


def _compared(content: bytes) -> pb.Observation:
    message = pb.Observation.FromString(content)
    for name in NOT_COMPARED:
        message.ClearField(name)
    return message


def check_same(environment: str, actor: str, tick: int, expected: bytes, got: bytes, hint: str = "") -> None:
    """Check that an observation is the stored one, but for frames and spaces.

    Args:
        environment: its name.
        actor: whose observation it is.
        tick: of the stored trial.
        expected: the stored one.
        got: the other one.
        hint: what is said behind a difference.

    Raises:
        TakingUpError: it is another one; the text names the first field that differs.
    """
    if is_same(expected, got):
        return
    before, now = _compared(expected), _compared(got)
    for field in pb.Observation.DESCRIPTOR.fields:
        first, second = _only(before, field.name), _only(now, field.name)
        # Serialized: numbers that compare equal need not be the same, and others that are need not compare equal.
        if _serialized(first) != _serialized(second):
            name = _FIELDS.get(field.name, field.name)
            text = f"{name}: expected that of the stored trial, {_shown(first)}; got {_shown(second)}{hint}"
            raise TakingUpError(environment, actor, tick, text)


def _serialized(message: pb.Observation) -> bytes:
    found: bytes = message.SerializeToString(deterministic=True)
    return found


def _only(message: pb.Observation, name: str) -> pb.Observation:
    found = pb.Observation()
    found.CopyFrom(message)
    for field in pb.Observation.DESCRIPTOR.fields:
        if field.name != name:
            found.ClearField(field.name)
    return found


#: What users call them.
_FIELDS: Mapping[str, str] = {"value": "observation", "nested": "observation"}


def _shown(message: pb.Observation) -> str:
    text = " ".join(str(message).split()) or "none"
    return text if len(text) <= 80 else f"{text[:77]}..."
