"""The platform of a new view: one of its own, or that of another view."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any, TypeAlias

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.platform import Platform
from trio_cogment.rl.views.options import PlatformOptions
from trio_cogment.rl.views.platforms import ViewPlatform
from trio_cogment.seats.base import Seat

#: Process and thread, whose numbers come again, and an id.
Token: TypeAlias = tuple[int, int, str]

#: The platforms of views, by their tokens.
_opened: weakref.WeakValueDictionary[Token, ViewPlatform] = weakref.WeakValueDictionary()


def token_of(platform: ViewPlatform) -> Token:
    """Return what stands for a platform where it cannot be itself, in a pickled view."""
    return next(token for token, each in _opened.items() if each is platform)


def platform_of(token: Token) -> ViewPlatform | None:
    """Return the platform of a token, if it is open, and was opened in this thread of this process."""
    found = _opened.get(token)
    return found if found is not None and found.users and token[:2] == _here() else None


def _here() -> tuple[int, int]:
    return os.getpid(), threading.get_ident()


def platform_for(
    environment: str, given: Any, options: PlatformOptions | None, *, remote: bool, seats: Sequence[Seat]
) -> ViewPlatform:
    """Return the platform of a view, which releases it in the end.

    Args:
        environment: the name of the view's environment, for errors.
        given: another view, or its platform; None for one of the view's own.
        options: of its own.
        remote: some participant is elsewhere.
        seats: of the view.

    Raises:
        InvalidArgumentError: what is given is not a view, or has not what this view needs.
        CogmentError: the platform cannot be opened.
    """
    if given is None:
        own = ViewPlatform(options or PlatformOptions(), remote=remote, seats=seats)
        _opened[(*_here(), own.new_trial_id())] = own
        return own
    shared = _platform_of(given)
    if options not in (None, PlatformOptions()):
        raise InvalidArgumentError(
            f"environment {environment!r}: platform: expected no store or other options with it, got {options}"
        )
    return shared.share(remote=remote, seats=seats)


def _platform_of(given: Any) -> ViewPlatform:
    if isinstance(given, ViewPlatform):
        return given
    views = getattr(given, "envs", None) or [given]
    found = getattr(getattr(views[0], "_match", None), "platform", None)
    if isinstance(found, ViewPlatform):
        return found
    got = type(given).__name__
    if isinstance(given, Platform):
        got += ", whose program a view cannot wait for: serve it, and use orchestrator='grpc://host:port'"
    raise InvalidArgumentError(f"platform: expected another view, such as make returns, got {got}")
