"""The frame handler: that its table is the RFC's. What each frame does is tested with the whole engine."""

from __future__ import annotations

from trio_cogment.rpc._frame_handler import _HANDLERS
from trio_cogment.rpc._frames import CONTINUATION, DATA


def test_every_type_of_frame_has_a_handler() -> None:
    assert sorted(_HANDLERS) == [kind for kind in range(CONTINUATION + 1) if kind != DATA]
