"""Observations as JSON. A large one is made once for all the actors that see it: see `trio_cogment.budget`."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.message import Message

from trio_cogment.base.errors import RemoteProtocolError
from trio_cogment.budget.made_once import LARGE_BYTES, MadeOnce
from trio_cogment.gateways.rest.messages import payload_to_json
from trio_cogment.sdk.spec import decode
from trio_cogment.web.json_text import json_text

#: What is held while a text is made: the message, its parts as base64, the text, and the text as bytes.
_COPIES: Final = 5


class UnreadableError(RemoteProtocolError):
    """An observation is none of its declared type."""


class ObservationTexts:
    """Those of a web proxy."""

    def __init__(self) -> None:
        self._texts = MadeOnce()

    async def as_json(self, content: bytes, kind: type[Message] | None) -> Any:
        """Return an observation as JSON; of a large one the text, as `Made`, for which this may have to wait.

        Args:
            content: of the observation.
            kind: its declared type; None: it is bytes.

        Raises:
            UnreadableError: it is none of that type.
            RemoteProtocolError: it cannot be written as JSON.
        """
        if len(content) < LARGE_BYTES:
            return _json_of(content, kind)

        def text() -> bytes:
            return json_text(_json_of(content, kind), long_texts=True).encode()

        return await self._texts.get(content, (kind,), _COPIES, text)


def _json_of(content: bytes, kind: type[Message] | None) -> Any:
    try:
        payload = decode(content, kind, "observation")
    except RemoteProtocolError as error:
        raise UnreadableError(str(error)) from None
    return payload_to_json(payload)
