"""Failures of a run, and who is told of them."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from trio_cogment.testing import World, simulate
from trio_cogment.testing.sim.failures import OnFailure, is_failure, noting


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        (ValueError(), True),
        (BaseExceptionGroup("", [ValueError(), GeneratorExit()]), True),
        (BaseExceptionGroup("", [ValueError(), BaseExceptionGroup("", [KeyboardInterrupt()])]), False),
        (BaseExceptionGroup("", [GeneratorExit()]), False),
        (GeneratorExit(), False),
    ],
)
def test_what_a_failure_is(error: BaseException, failed: bool) -> None:
    assert is_failure(error) == failed


def test_to_be_cancelled_is_no_failure() -> None:
    async def scenario(_world: World) -> bool:
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled as error:
                cancelled = error
                raise
        return is_failure(cancelled)

    assert not simulate(1, scenario).value


def test_who_is_told_of_a_failure_may_end_it() -> None:
    told: list[BaseException] = []

    def tell(error: BaseException) -> bool:
        told.append(error)
        return isinstance(error, ValueError)

    with OnFailure(tell):
        raise ValueError
    with pytest.raises(KeyError), OnFailure(tell):
        raise KeyError
    with pytest.raises(SystemExit), OnFailure(tell):
        raise SystemExit
    with OnFailure(tell):
        pass
    assert [type(error) for error in told] == [ValueError, KeyError]


def test_a_note_is_added_to_a_failure_alone() -> None:
    with pytest.raises(ValueError, match="bad") as caught, noting("see there"):
        raise ValueError("bad")
    assert caught.value.__notes__ == ["see there"]
    with pytest.raises(KeyboardInterrupt) as ended, noting("see there"):
        raise KeyboardInterrupt
    assert not hasattr(ended.value, "__notes__")
