"""The engine as a server: any bytes are events or set `fault`; nothing is raised."""

from __future__ import annotations

from tests.fuzz import _run

with _run.instrumented_imports():
    from tests.fuzz import _script


def check(data: bytes) -> None:
    _script.play(data, client_side=False)


if __name__ == "__main__":
    _run.run(check)
