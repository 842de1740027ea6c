"""Refusals of peers, counted by kind, and in the log once a second at most for each kind.

Whoever is refused can try again as fast as the server answers. Without this each attempt would be a line of the log.
"""

from __future__ import annotations

import logging
from collections import Counter

import trio

from trio_cogment.base.errors import StatusCode

#: Between two lines of one kind.
LOG_SECONDS = 1.0


class Refusals:
    """The refusals of one run of Trio.

    Attributes:
        counts: how many there have been, by kind.
        tokens: how many calls have had no valid token, by the service that was called.
    """

    def __init__(self) -> None:
        self.counts = Counter[str]()
        self.tokens = Counter[str]()
        self._quiet: set[str] = set()
        self._unsaid = Counter[str]()
        self._last: dict[str, tuple[logging.Logger, str]] = {}

    def add(self, kind: str, logger: logging.Logger, text: str, *arguments: object) -> None:
        """Count a refusal, and log it now or with others of its kind.

        Args:
            kind: of a few words, none of them a peer's.
            logger: where to.
            text: what has happened, with places for the arguments.
            arguments: see above.
        """
        self.counts[kind] += 1
        if kind not in self._quiet:
            logger.info(text, *arguments)
            self._quiet.add(kind)
            trio.lowlevel.spawn_system_task(self._sum_up, kind, name=f"refusals: {kind}")
        elif logger.isEnabledFor(logging.INFO):
            self._unsaid[kind] += 1
            self._last[kind] = logger, text % arguments

    async def _sum_up(self, kind: str) -> None:
        while True:
            await trio.sleep(LOG_SECONDS)
            count = self._unsaid.pop(kind, 0)
            if not count:
                self._quiet.discard(kind)
                return
            logger, text = self._last.pop(kind)
            logger.info("%s: %d more within %g s; the last: %s", kind, count, LOG_SECONDS, text)


_REFUSALS = trio.lowlevel.RunVar[Refusals]("trio_cogment.refusals")


#: The kinds of calls that were refused before their handlers began, by their status.
CALL_KINDS = {
    StatusCode.UNAUTHENTICATED: "unauthenticated calls",
    StatusCode.PERMISSION_DENIED: "calls without the right",
    StatusCode.RESOURCE_EXHAUSTED: "calls beyond limits",
}


def note_refused_call(logger: logging.Logger, account: str, code: StatusCode, message: str, *, service: str) -> None:
    """Count a call that was not let in.

    Args:
        logger: where to.
        account: of the caller, as far as its connection says who it is.
        code: of the refusal.
        message: of the refusal.
        service: what was called: one of a few, none of them a peer's word.
    """
    if code is StatusCode.UNAUTHENTICATED:
        refusals().tokens[service] += 1
    refusals().add(CALL_KINDS.get(code, "refused calls"), logger, "call from %s refused: %s", account, message)


def refusals() -> Refusals:
    """Return the refusals of this run of Trio."""
    try:
        return _REFUSALS.get()
    except LookupError:
        found = Refusals()
        _REFUSALS.set(found)
        return found
