"""The trial of `cartpole.py` that the published SDK plays over sockets, with an orchestrator of ours."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import trio
from _cartpole_trials import run_apart

import trio_cogment

_SPEC = """
import:
  proto:
    - data.proto
actor_classes:
  - name: player
    action:
      space: data.Action
    observation:
      space: data.Observation
"""
_PROTO = """
syntax = "proto3";
package data;
message Observation { repeated float values = 1; }
message Action { int32 number = 1; }
"""
_SCRIPT = Path(__file__).with_name("_cartpole_sdk.py")
_PATIENCE_SECONDS = 60.0


class SdkTrial:
    """An environment and an actor in a process each, and an orchestrator.

    Args:
        stack: ends the processes.
        python: of an environment in which the published SDK is installed.
    """

    def __init__(self, stack: ExitStack, python: str) -> None:
        self._stack = stack
        self._folder = folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "cogment.yaml").write_text(_SPEC)
        (folder / "data.proto").write_text(_PROTO)
        shutil.copy(_SCRIPT, folder)
        generate = [python, "-m", "cogment.generate", "--spec", "cogment.yaml", "--output", "cog_settings.py"]
        subprocess.run(generate, cwd=folder, check=True, capture_output=True)
        self._environment, environment_port = self._serve(python, "environment")
        _, actor_port = self._serve(python, "actor")
        self._params = trio_cogment.trial_params(
            [
                trio_cogment.actor_params(
                    "player_0", "player", implementation="policy", endpoint=f"grpc://127.0.0.1:{actor_port}"
                )
            ],
            environment="cartpole",
            environment_endpoint=f"grpc://127.0.0.1:{environment_port}",
        )
        self._port = self._orchestrator()

    def _serve(self, python: str, role: str) -> tuple[subprocess.Popen[str], str]:
        process = self._start([python, _SCRIPT.name, role])
        return process, _line(process)

    def _start(self, command: list[str]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command, cwd=self._folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._stack.callback(process.wait, 10)
        self._stack.callback(process.kill)
        return process

    def _orchestrator(self) -> int:
        ports = ["--lifecycle_port=0", "--actor_port=0"]
        process = self._start([sys.executable, "-m", "trio_cogment", "services", "orchestrator", *ports])
        # It listens from here on; what comes before it is ready waits.
        listening = re.search(r"listening on \S+:(\d+)", _line(process))
        assert listening is not None
        return int(listening[1])

    def steps_per_s(self) -> float:
        """Play a trial, and return how many steps of it were made in a second once it ran."""

        async def play() -> None:
            with trio.fail_after(_PATIENCE_SECONDS):
                async with trio_cogment.connect(f"grpc://127.0.0.1:{self._port}") as client:
                    controller = await client.controller()
                    await controller.wait_trial(await controller.start_trial(self._params))

        run_apart(play)
        return 1 / float(_line(self._environment))


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"a helper process ended with {process.wait(10)}")
    return line.strip()
