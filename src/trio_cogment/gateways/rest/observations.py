"""Observations as JSON. A large one is made once for all the actors that see it, and counts as memory that waits.

Three hundred actors may see the same 4 MiB, and their clients need not read the answers. A text for each answer would
be 1.6 GB, and making them would hold up everybody for ten seconds. Within the process all of them have the same bytes,
so the bytes tell that the text is the same. It is kept for as long as an answer with it is being sent.
"""

from __future__ import annotations

import weakref
from typing import Any, Final

import trio
from google.protobuf.message import Message

from trio_cogment.base.errors import RemoteProtocolError
from trio_cogment.budget.byte_pool import Loan
from trio_cogment.budget.memory import memory_of_run
from trio_cogment.budget.turn_order import Lane
from trio_cogment.budget.turns import turns_of_run
from trio_cogment.gateways.rest.messages import payload_to_json
from trio_cogment.sdk.spec import decode
from trio_cogment.web.json_text import json_text

#: Smaller ones are made for each answer, which is sent in one piece.
LARGE_BYTES: Final = 64 * 1024
#: Making a text takes a unit for this many bytes.
_BYTES_PER_UNIT: Final = 16 * 1024
#: What is held while a text is made: the message, its parts as base64, the text, and the text as bytes.
_COPIES: Final = 5


class UnreadableError(RemoteProtocolError):
    """An observation is none of its declared type."""


class LargeText:
    """An observation as JSON.

    Attributes:
        content: the observation as it came.
        text: the JSON; ASCII.
    """

    def __init__(self, content: bytes, text: bytes, loan: Loan) -> None:
        self.content = content  # so that no other bytes can have its identity meanwhile
        self.text = text
        weakref.finalize(self, loan.close)


class ObservationTexts:
    """Those of a web proxy."""

    def __init__(self) -> None:
        self._texts: weakref.WeakValueDictionary[tuple[int, type[Message] | None], LargeText] = (
            weakref.WeakValueDictionary()
        )
        self._making = trio.Lock()

    async def as_json(self, content: bytes, kind: type[Message] | None) -> Any:
        """Return an observation as JSON, a large one as `LargeText`, for which this may have to wait.

        Args:
            content: of the observation.
            kind: its declared type; None: it is bytes.

        Raises:
            UnreadableError: it is none of that type.
            RemoteProtocolError: it cannot be written as JSON.
        """
        if len(content) < LARGE_BYTES:
            return _json_of(content, kind)
        key = id(content), kind
        found = self._texts.get(key)
        if found is None:
            async with self._making:
                found = self._texts.get(key)
                if found is None:
                    self._texts[key] = found = await _make(content, kind)
        return found


async def _make(content: bytes, kind: type[Message] | None) -> LargeText:
    loan = memory_of_run().messages.loan()
    try:
        while not loan.hold(0, _COPIES * len(content)):
            changed = trio.Event()
            loan.wait(changed.set)
            await changed.wait()
        await turns_of_run().turn(Lane.OTHERS, len(content) // _BYTES_PER_UNIT)
        text = json_text(_json_of(content, kind), long_texts=True).encode()
    except BaseException:
        loan.close()
        raise
    loan.set(len(text))
    return LargeText(content, text, loan)


def _json_of(content: bytes, kind: type[Message] | None) -> Any:
    try:
        payload = decode(content, kind, "observation")
    except RemoteProtocolError as error:
        raise UnreadableError(str(error)) from None
    return payload_to_json(payload)
