"""Parts of a seat: its settings, the actor that it plays, and what it reads of messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import wrappers_pb2
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError

from trio_cogment.api.common_pb2 import ActorInitialInput
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.play.bots import BotFor
from trio_cogment.sdk import ActorSession
from trio_cogment.sdk.spec import Payload
from trio_cogment.seats.presence import Outcome, SeatRules


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatSettings:
    """How a seat is held, and what its pages show.

    Attributes:
        rules: how long it is kept, and what comes then.
        default: the action that is taken where the outcome is `Outcome.DEFAULT`.
        bot: makes what acts where it is `Outcome.BOT`.
        title: of the page.
        labels: of actions; see `forms.message_form`.
        receivers: of rewards and messages: the other participants.
        again: after the trial comes the next one.
        goes_on: the trial goes on at the next server when this one stops.
        renderer: the project has its own page that shows observations.

    Raises:
        InvalidArgumentError: the outcome needs what is not there.
    """

    rules: SeatRules = field(default_factory=SeatRules)
    default: Payload | None = None
    bot: BotFor | None = None
    title: str = ""
    labels: Sequence[str] = ()
    receivers: Sequence[str] = ()
    again: bool = False
    goes_on: bool = False
    renderer: bool = False

    def __post_init__(self) -> None:
        if self.rules.outcome is Outcome.DEFAULT and self.default is None:
            raise InvalidArgumentError("default: expected the action that is taken for somebody who is away, got none")
        if self.rules.outcome is Outcome.BOT and self.bot is None:
            raise InvalidArgumentError("bot: expected what acts for somebody who is away, got none")


def part_of(session: ActorSession[Any, Any, Any]) -> ActorInitialInput:
    """Return what a bot is told about the part that it takes."""
    init = ActorInitialInput(
        actor_name=session.name,
        actor_class=session.actor_class,
        impl_name=session.implementation,
        env_name=session.environment_name,
    )
    if session.config is not None:
        config = session.config
        init.config.content = config if isinstance(config, bytes) else config.SerializeToString()
    return init


def text_of(payload: AnyMessage) -> str:
    """Return what a message from another participant says: a text, or else its type and size."""
    text = wrappers_pb2.StringValue()
    try:
        if payload.Unpack(text):
            return text.value
    except DecodeError:
        pass
    return f"({payload.TypeName()}, {len(payload.value)} bytes)"
