"""Attributes of sessions, as those see them who write no coroutines."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from trio_cogment.sdk.session_views import ActorSessionView, EnvironmentSessionView


def test_a_checkpoint_is_the_sessions() -> None:
    kept: list[bytes] = []
    view: Any = EnvironmentSessionView.__new__(EnvironmentSessionView)
    view._target = SimpleNamespace(checkpoint=kept.append)
    view.checkpoint(b"state")
    assert kept == [b"state"]


@pytest.mark.parametrize("kind", [ActorSessionView, EnvironmentSessionView])
def test_a_view_has_what_its_session_has(kind: Any) -> None:
    names = [name for one in kind.__mro__ for name, value in vars(one).items() if isinstance(value, property)]
    assert "config" in names
    session = SimpleNamespace(**{name: f"its {name}" for name in names})
    view = kind.__new__(kind)
    view._target = session
    assert {name: getattr(view, name) for name in names} == vars(session)
