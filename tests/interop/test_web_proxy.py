"""The published SDK's environment and actor in trials that are started and played by HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.interop.scenes import HERE_ALONE, Scene
from tests.ports import free_port

pytestmark = pytest.mark.interop

SECRET = "nobody-can-guess-this"
MAX_STEPS = 4


class Caller:
    """Sends requests as a user of the reference's proxy does."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}"
        self.token = ""

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        fields = {"Content-Type": "application/json"}
        if self.token:
            fields["Cogment-Actor-Trial-Token"] = self.token
        request = Request(self._address + path, data, fields, method=method)
        try:
            with urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except HTTPError as error:
            return error.code, json.load(error)


def test_a_trial_of_the_published_sdk(scene: Scene, project: Path) -> None:
    directory = scene.everything()
    scene.participants("cast", f"--directory={directory.endpoint}")
    web_port = free_port()
    scene.ours(
        "proxy",
        *("services", "web_proxy", *HERE_ALONE, f"--web_port={web_port}", f"--secret={SECRET}"),
        f"--directory_endpoint={directory.endpoint}",
        f"--spec_file={project / 'cogment.yaml'}",
        ports=2,
    )
    scene.until("everybody is registered", lambda: len(directory.entries("ACTOR_SERVICE")) >= 5)
    caller = Caller(web_port)
    script = json.dumps({})
    status, started = caller.ask(
        "POST",
        "/controller/trials",
        {
            "trial_id": "by-http",
            "max_steps": MAX_STEPS,
            "environment": {"name": "field", "implementation": "scripted_field", "config": {"script": script}},
            "actors": [
                {"name": "ann", "actor_class": "player", "implementation": "web", "config": {"bonus": 3}},
                {"name": "bob", "actor_class": "player", "implementation": "scripted", "config": {"script": script}},
            ],
        },
    )
    assert (status, started["trial_id"]) == (202, "by-http")
    status, told = caller.ask("POST", "/actor/ann/by-http")
    assert status == 200
    assert (told["actor_class"], told["actor_config"]["bonus"], told["tick_id"]) == ("player", 3, "0")
    caller.token = told["token"]
    seen = []
    while "observation" in told:
        seen.append((told["tick_id"], told["observation"]["step"]))
        status, told = caller.ask("POST", f"/actor/ann/by-http/{told['tick_id']}", {"action": {"number": 5}})
        assert status == 200, told
    assert seen == [(str(tick), tick) for tick in range(MAX_STEPS + 2)]
    assert told["ended"] is True
    assert "details" not in told
    record = scene.record("by-http.bob")
    assert [event["observation"]["tick"] for event in record["events"] if "observation" in event] == [
        *range(MAX_STEPS + 2)
    ]
