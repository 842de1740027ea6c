"""The welcome of `serve`: which services there are, where data is kept, what to try, and how to stop it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from trio_cogment.base.records import record
from trio_cogment.base.services import SERVICES, ServiceKind

_HERE = ("127.0.0.1", "::1")
_ANYWHERE = ("0.0.0.0", "::")


@record(kw_only=True)
class Welcome:
    """Lines for whoever has started a server.

    Attributes:
        services: what there is.
    """

    services: str

    def lines(
        self,
        host: str,
        port: int,
        *,
        kept: Mapping[str, str] | None = None,
        notes: Mapping[str, str] | None = None,
        needs: Sequence[str] = (),
    ) -> list[str]:
        """Return the lines, with a label each.

        Args:
            host: where it listens.
            port: where it listens.
            kept: what is kept -> where.
            notes: further ones: a label, and a text.
            needs: flags without which clients are refused; their values are the client's own.
        """
        command = ["trio-cogment", "client", "trial", "watch"]
        if host not in _HERE + _ANYWHERE or port != SERVICES[ServiceKind.LIFECYCLE].default_port:
            command.append(f"--endpoint=grpc://{_reachable(host)}:{port}")
        entries = {
            "services": self.services,
            **(kept or {}),
            **(notes or {}),
            "try": " ".join((shlex.join(command), *(f"{flag}=..." for flag in needs))),
            "stop": "Control-C, or SIGTERM",
        }
        width = max(map(len, entries))
        return [f"{name.ljust(width)}  {text}" for name, text in entries.items()]


def _reachable(host: str) -> str:
    """Return an address under which a server on this machine is reached that listens on another one."""
    if host in _ANYWHERE:
        return "localhost"
    return f"[{host}]" if ":" in host else host
