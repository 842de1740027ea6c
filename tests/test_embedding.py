"""The programs of the guide to embedding run as they stand, the notebook in a real kernel."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from tests.cli.process import server
from tests.test_examples import ROOT, output_of
from trio_cogment.platform import open_platform
from trio_cogment.sdk import actor_params, trial_params

PATIENCE_SECONDS = 60


def programs(heading: str) -> list[str]:
    """Return the programs in a section of the guide."""
    page = (ROOT / "docs" / "embedding.md").read_text(encoding="utf-8")
    _, found, rest = page.partition(f"\n## {heading}\n")
    assert found, heading
    return re.findall(r"^```python\n(.*?)^```", rest.partition("\n## ")[0], re.DOTALL | re.MULTILINE)


def test_in_a_trio_program() -> None:
    (program,) = programs("In a Trio program")
    assert output_of("-c", program).splitlines() == [f"ann reads {text}" for text in ("0", "1", "2", "the end")]


def test_others_may_connect() -> None:
    (program,) = programs("Others may connect")
    assert output_of("-c", program).splitlines() == ["ann reads hello", "ann reads goodbye"]


def test_two_platforms() -> None:
    """One is cancelled, which its log may mention; the other has all of its ticks, and nothing to mention."""
    (program,) = programs("Two platforms")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    assert done.stdout.splitlines() == ["first was cancelled", "second has ended"]
    assert all(line.startswith("trial first: ") for line in done.stderr.splitlines())


def test_in_a_script() -> None:
    (program,) = programs("In a script")
    assert output_of("-c", program).splitlines() == ["0 0", "1 1", "2 2", "3 the end"]


def test_beside_asyncio() -> None:
    (program,) = programs("Beside asyncio")
    assert output_of("-c", program) == "the trial has ended\n"


def test_in_an_asyncio_program() -> None:
    (program,) = programs("In an asyncio program")
    assert output_of("-c", program).splitlines() == ["hello", "goodbye"]


@pytest.mark.parametrize("module", ["trio_cogment", "game"])
async def test_a_program_that_serves_participants(module: str, tmp_path: Path) -> None:
    """As a command and as a program; a trial with both participants."""
    (program, _) = programs("A program that serves participants")
    await trio.Path(tmp_path / "game.py").write_text(program)
    arguments = ["participants", "game"] if module == "trio_cogment" else []
    variables = {"COGMENT_PARTICIPANTS_PORT": "0"}
    async with server(*arguments, module=module, variables=variables, folder=tmp_path) as process:
        served = f"grpc://127.0.0.1:{process.port}"
        async with open_platform() as platform:
            ann = actor_params("ann", "person", implementation="talker", endpoint=served)
            params = trial_params([ann], environment="world", environment_endpoint=served)
            trial_id = await platform.controller.start_trial(params)
            await platform.controller.wait_trial(trial_id)
            (info,) = await platform.controller.trial_infos([trial_id])
            assert info.tick_id == 1
        assert await process.stop() == 0
        assert process.err.count("Traceback") == 0


def test_participants_served_within_a_program() -> None:
    game, program = programs("A program that serves participants")
    game = game.partition("if __name__")[0]
    assert output_of("-c", f"{game}\n{program}") == "ended by the environment\n"


class Kernel:
    """A notebook's kernel, a process of its own whose main thread runs asyncio."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager = manager
        self._client = client

    def start(self, cell: str) -> str:
        # By default a kernel aborts what comes soon after an error, and one cell has to be interrupted.
        request: str = self._client.execute(cell, stop_on_error=False)
        return request

    def wait(self, request: str) -> dict[str, Any]:
        """Return what the kernel says when a cell has ended."""
        while True:
            reply = self._client.get_shell_msg(timeout=PATIENCE_SECONDS)
            if reply["parent_header"]["msg_id"] == request:
                content: dict[str, Any] = reply["content"]
                return content

    def run(self, cell: str) -> None:
        content = self.wait(self.start(cell))
        assert content["status"] == "ok", content

    def end(self) -> int:
        """Ask it to end, and return its exit code."""
        self._client.shutdown()
        provisioner = self.manager.provisioner
        assert isinstance(provisioner, LocalProvisioner)
        assert provisioner.process is not None
        code: int = provisioner.process.wait(PATIENCE_SECONDS)
        return code

    def wait_for_output(self, request: str, text: str) -> None:
        while True:
            message = self._client.get_iopub_msg(timeout=PATIENCE_SECONDS)
            if message["parent_header"].get("msg_id") == request and message["content"].get("text") == text:
                return


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel()
    client = manager.blocking_client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=PATIENCE_SECONDS)
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


# What Jupyter's client and its transport warn of is not about the platform.
@pytest.mark.filterwarnings("default:::jupyter_client", "default:::zmq", "default::DeprecationWarning")
@pytest.mark.filterwarnings("default::ResourceWarning", "default::pytest.PytestUnraisableExceptionWarning")
def test_in_a_notebook(kernel: Kernel) -> None:
    """Cell after cell; the third waits for a trial that does not end, until the kernel is interrupted."""
    opening, participants, waiting, closing = programs("In a notebook")
    kernel.run("import asyncio; asyncio.get_running_loop()")
    kernel.run(opening)
    kernel.run(participants)
    request = kernel.start(f"print('waiting', flush=True)\n{waiting}")
    kernel.wait_for_output(request, "waiting\n")
    kernel.manager.interrupt_kernel()
    content = kernel.wait(request)
    assert (content["status"], content.get("ename")) == ("error", "KeyboardInterrupt")
    kernel.run("assert platform.controller.trial_infos([trial])[0].tick_id >= 0")
    kernel.run(closing)
    kernel.run("assert platform.closed")
    # Nobody closes this one, and the kernel ends nevertheless.
    kernel.run(opening)
    kernel.run(participants)
    assert kernel.end() == 0
