"""Each service is called where it is."""

from __future__ import annotations

from typing import Any

import pytest

from trio_cogment.rpc import CallOpener, Method
from trio_cogment.rpc._by_service import ByService
from trio_cogment.testing.conformance.channel import ECHO


class Noting(CallOpener):
    """Notes how it is called."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def call(self, method: Method, **options: Any) -> Any:
        self.calls.append({"method": method, **options})
        return self

    def call_nowait(self, method: Method, **options: Any) -> Any:
        self.calls.append({"nowait": method, **options})
        return self


async def test_a_service_is_called_by_its_own_opener() -> None:
    here, there = Noting(), Noting()
    method = Method("/some.Other/Method", ECHO.cardinality, ECHO.request_type, ECHO.response_type)
    openers = {ECHO.path.split("/")[1]: here, "some.Other": there}
    both: Any = ByService(openers)
    openers.clear()
    options: dict[str, Any] = {"metadata": {"a": "b"}, "timeout": 4, "wait_for_ready": True, "compression": "gzip"}
    assert both.call(ECHO, **options) is here
    assert both.call(method) is there
    first = ECHO.request_type()
    assert both.call_nowait(method, metadata={"c": "d"}, first=first) is there
    assert here.calls == [{"method": ECHO, **options}]
    assert there.calls == [
        {"method": method, "metadata": (), "timeout": None, "wait_for_ready": False, "compression": None},
        {"nowait": method, "metadata": {"c": "d"}, "first": first},
    ]
    with pytest.raises(KeyError):
        both.call(Method("/some.Unknown/Method", ECHO.cardinality, ECHO.request_type, ECHO.response_type))
