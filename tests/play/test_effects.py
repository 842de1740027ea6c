from __future__ import annotations

import pytest

from trio_cogment.play.effects import EffectQueue


def test_what_an_effect_adds_comes_last() -> None:
    done: list[int] = []

    def perform(effect: int) -> None:
        if effect == 1:
            queue([3, 4])
        done.append(effect)

    queue = EffectQueue(perform)
    queue([1, 2])
    assert done == [1, 2, 3, 4]


def test_after_an_error_the_rest_is_done_next_time() -> None:
    done: list[int] = []

    def perform(effect: int) -> None:
        if effect == 1:
            raise ZeroDivisionError
        done.append(effect)

    queue = EffectQueue(perform)
    with pytest.raises(ZeroDivisionError):
        queue([1, 2])
    queue([3])
    assert done == [2, 3]
