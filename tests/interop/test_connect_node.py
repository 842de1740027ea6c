"""@connectrpc/connect-node's gRPC-Web, in Node.js: the same calls over HTTP/2 and over HTTP/1.1."""

from __future__ import annotations

import pytest

from tests.interop.browser.programs import HERE, installed, lines, running
from trio_cogment.base.errors import UNEXPECTED_FAILURE

pytestmark = pytest.mark.javascript

PATIENCE_SECONDS = 60


def test_its_calls() -> None:
    with running("check_server") as server:
        program = ["node", str(HERE / "connect_node.mjs"), str(installed()), server.port]
        [seen] = lines(*program, seconds=PATIENCE_SECONDS)
    assert sorted(seen) == ["1.1", "2", "compressed"]
    for found in seen.values():
        missing = found.pop("missing")
        assert missing["code"] == "Unimplemented"
        assert "not implemented" in missing["message"]
        assert found.pop("late")["code"] == "DeadlineExceeded"
        assert found == {
            "unary": [7, 300_000, "1", "done"],
            "known": {"code": "NotFound", "message": "no such thing: ä%\n", "trailing": "asked"},
            "bug": {"code": "Unknown", "message": UNEXPECTED_FAILURE, "trailing": "asked"},
            "stream": {"count": 300},
            "cut": {"count": 3, "code": "Aborted", "message": "cut off", "trailing": "asked"},
            "sum": 45,
            "echo": {"count": 10},
        }
