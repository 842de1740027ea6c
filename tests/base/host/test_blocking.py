"""Blocking functions, when the interpreter starts no threads any more."""

from __future__ import annotations

import threading

import pytest

from trio_cogment.base.host.blocking import ThreadRunner


async def test_no_thread_at_the_end_of_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a platform that nobody has closed writes its last samples; the function runs once."""
    called: list[int] = []
    run = ThreadRunner(1)

    def end(*_arguments: object, **_keywords: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    with monkeypatch.context() as patched:
        patched.setattr("trio._threads.start_thread_soon", end)
        await run(lambda: called.append(threading.get_ident()))
    assert called == [threading.get_ident()]
    await run(called.clear)


async def test_errors_of_the_function_are_its_own() -> None:
    def fail() -> None:
        raise RuntimeError("its own")

    with pytest.raises(RuntimeError, match="its own"):
        await ThreadRunner(1)(fail)
