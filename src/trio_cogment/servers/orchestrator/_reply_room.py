"""Room for replies that describe trials: of each one, and of all together that one peer has not been sent yet."""

from __future__ import annotations

from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import ResourceExhaustedError
from trio_cogment.budget.quotas import Ledger

#: So much of a reply is free: who asks for a little is not refused because somebody at its address asks for a lot.
FREE_BYTES = 16 * 1024


def replies_ledger() -> Ledger:
    """Return what all `ReplyRoom` of a service share."""
    return Ledger("bytes (max_peer_replies_bytes) for replies that are being sent")


class ReplyRoom:
    """The room of one reply while it is built and sent; used as a context manager.

    Args:
        ledger: of all replies.
        account: whose it is; empty: of this process, for which nothing is limited.
        config: the limits.
    """

    def __init__(self, ledger: Ledger, account: str, config: OrchestratorConfig) -> None:
        self._ledger = ledger
        self._account = account
        self._limit = config.max_info_reply_bytes
        self._limit_of_peer = config.max_peer_replies_bytes
        self._size = 0
        self._parts = 0
        self._counted = 0

    def take(self, size: int) -> None:
        """Count a part of the reply.

        Raises:
            ResourceExhaustedError: the reply becomes too large, but for its first part; or there is no room for it.
        """
        if not self._account:
            return
        self._size += size
        self._parts += 1
        if self._parts > 1 and self._size > self._limit:
            raise ResourceExhaustedError(
                f"the trials asked for make a reply of more than {self._limit} bytes (max_info_reply_bytes), the first "
                f"{self._parts - 1} of them fit; name fewer in the metadata trial-id, or ask for less"
            )
        wanted = max(0, self._size - FREE_BYTES)
        if wanted > self._counted:
            self._ledger.take(self._account, wanted - self._counted, self._limit_of_peer)
            self._counted = wanted

    def __enter__(self) -> ReplyRoom:
        return self

    def __exit__(self, *_: object) -> None:
        if self._counted:
            self._ledger.give_back(self._account, self._counted)
