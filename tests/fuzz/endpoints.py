"""The endpoint grammar: any text is an endpoint or an `EndpointError`."""

from __future__ import annotations

from tests.fuzz import _run

with _run.instrumented_imports():
    from trio_cogment.base.endpoints import parse_endpoint
    from trio_cogment.base.errors import EndpointError


def check(data: bytes) -> None:
    try:
        parse_endpoint(data.decode("utf-8", errors="surrogateescape"))
    except EndpointError:
        pass


if __name__ == "__main__":
    _run.run(check)
