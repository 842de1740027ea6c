"""The examples, and the programs in the documents, run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import trio

from tests.cli.process import PATIENCE_SECONDS, server
from tests.ports import free_port
from trio_cogment.outcome import EndCause
from trio_cogment.rpc import Channel
from trio_cogment.sdk import Controller

ROOT = Path(__file__).resolve().parent.parent


def programs(document: str, language: str = "python") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / document).read_text(), re.DOTALL | re.MULTILINE)


def output_of(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_first_trial() -> None:
    output = output_of(str(ROOT / "examples" / "first_trial.py"))
    assert sorted(output.splitlines()) == ["ann scored 5", "bob scored 5"]


def test_readme_has_its_two_commands() -> None:
    lines = (ROOT / "README.md").read_text().split("```")[0].splitlines()
    first, second = (line.strip() for line in lines if line.startswith("    "))
    assert first.endswith("trio-cogment demo")
    assert second.endswith("nox")
    assert "nox" not in first


def test_ends() -> None:
    """The program of the page prints what the page says, and the log has the traceback, once."""
    (program,) = programs("docs/ends.md")
    (expected,) = programs("docs/ends.md", "text")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, expected)
    assert done.stderr.count("in careless") == 1


def test_ends_has_every_cause() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "ends.md").read_text(), re.MULTILINE)
    assert rows == [cause.label for cause in EndCause if cause is not EndCause.UNKNOWN]


async def test_getting_started(tmp_path: Path) -> None:
    """The walk over gRPC, with two free ports in place of the document's."""
    orchestrator_port, participants_port = str(free_port()), str(free_port())

    def here(text: str) -> str:
        return text.replace("9000", orchestrator_port).replace("9001", participants_port)

    types, participants, control = map(here, programs("docs/getting-started.md"))
    output_of("-c", types)
    (params,) = map(here, programs("docs/getting-started.md", "yaml"))
    path = trio.Path(tmp_path / "params.yaml")
    await path.write_text(params)
    async with server("serve", f"--port={orchestrator_port}", f"--params={path}"), trio.open_nursery() as nursery:
        serving = partial(trio.run_process, [sys.executable, "-c", participants], check=False)
        process = await nursery.start(serving)
        with trio.fail_after(PATIENCE_SECONDS):
            await wait_listening(int(participants_port))
            done = await trio.run_process([sys.executable, "-c", control], capture_stdout=True)
            assert done.stdout.decode().splitlines() == [f"I see {tick}" for tick in range(5)]
            async with Channel("127.0.0.1", int(orchestrator_port)) as channel:
                assert await Controller(channel).start_trial() != ""
        process.kill()


async def wait_listening(port: int) -> None:
    """Wait until somebody else's program accepts connections; it says so nowhere."""
    while True:
        try:
            await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
        except OSError:
            await trio.sleep(0.05)
        else:
            return


def test_relative_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
