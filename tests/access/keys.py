"""Keys, tokens and a control with a clock of its own, for tests."""

from __future__ import annotations

from trio_cogment.access import AccessControl, Grant, Keys, Quotas, Role, Rules, Token

KEYS = Keys((bytes(range(32)),))
FOREIGN = Keys((bytes(range(1, 33)),))
#: Seconds since the epoch.
NOW = 1_700_000_000


def grant(*roles: Role, name: str = "alice", trials: tuple[str, ...] = (), quotas: Quotas | None = None) -> Grant:
    actors: tuple[str, ...] = ()
    if Role.SEAT in roles:  # it has to name them
        trials, actors = trials or ("trial",), ("actor",)
    return Grant(name=name, roles=frozenset(roles), trials=trials, actors=actors, quotas=quotas or Quotas())


def token_text(held: Grant, *, keys: Keys = KEYS, token_id: str = "t1", expires_at: int = NOW + 3600) -> str:
    return keys.sign(Token(token_id=token_id, grant=held, expires_at=expires_at))


class Clock:
    """A wall clock that is set by hand."""

    def __init__(self) -> None:
        self.seconds: float = NOW

    def __call__(self) -> int:
        return int(self.seconds * 1_000_000_000)


def control(rules: Rules | None = None, clock: Clock | None = None) -> AccessControl:
    return AccessControl(rules or Rules(keys=KEYS), wall_clock=clock or Clock(), new_id=lambda: "11-22")
