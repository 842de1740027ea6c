"""Payloads as pages have them: observations as views, actions as forms and answers."""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from google.protobuf.message import Message
from typing_extensions import override

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.play.forms import message_form, message_of
from trio_cogment.play.views import View, message_view
from trio_cogment.sdk.spec import ActorClass, Payload


class Codec(ABC):
    """The payloads of one actor in one trial."""

    @abstractmethod
    def observe(self, payload: Any) -> bool:
        """Take an observation; return whether it asks for an action.

        Raises:
            CogmentError: it makes no sense.
        """

    @abstractmethod
    def view(self) -> View:
        """Return what is shown of the observation that was taken last."""

    @abstractmethod
    def form(self) -> dict[str, Any]:
        """Return how an action is made, once an observation has been taken."""

    @abstractmethod
    def action(self, answer: Any) -> Payload:
        """Return the action that an answer of a page is.

        Raises:
            CogmentError: it is none; the text is for the person.
        """

    def idle(self) -> Payload:
        """Return what is answered to an observation that does not ask."""
        raise NotImplementedError

    def for_newcomer(self, payload: Any) -> Any:
        """Return the observation that was taken last for somebody who has not seen those before.

        Args:
            payload: the observation; it is not changed.
        """
        return payload


class MessageCodec(Codec):
    """Payloads that are messages of a project.

    Args:
        actor_class: with the type of actions.
        labels: of actions; see `forms.message_form`.
    """

    def __init__(self, actor_class: ActorClass, labels: Sequence[str] = ()) -> None:
        assert actor_class.action is not None
        self._action = actor_class.action
        described: Any = actor_class.action.DESCRIPTOR  # protobuf has two types for it
        self._form = message_form(described, labels)
        self._seen: Any = b""

    def observe(self, payload: Any) -> bool:
        """See `Codec.observe`: whoever observes acts."""
        self._seen = payload
        return True

    @override
    def view(self) -> View:
        if isinstance(self._seen, Message):
            return message_view(self._seen)
        view = View()
        view.add_bytes("observation", self._seen)
        return view

    @override
    def form(self) -> dict[str, Any]:
        return self._form

    @override
    def action(self, answer: Any) -> Payload:
        return message_of(answer, self._action)


class BytesCodec(MessageCodec):
    """Payloads of unknown types: actions are bytes, which people write as base64."""

    def __init__(self) -> None:
        form = {"kind": "text", "least": 0, "most": 65536, "characters": None, "bytes": True}
        self._form = {"kind": "object", "fields": [{"name": "base64", "form": form, "optional": False}]}
        self._seen = b""

    @override
    def action(self, answer: Any) -> Payload:
        text = answer.get("base64") if isinstance(answer, dict) else None
        if not isinstance(text, str):
            raise InvalidArgumentError("action: expected base64, a text")
        try:
            return base64.b64decode(text, validate=True)
        except ValueError:
            raise InvalidArgumentError("action: expected base64") from None
