"""The examples, and the programs in the documents, run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import trio

from trio_cogment.base.outcome import EndCause

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
        text = re.sub(r"`[^`\n]+`", "", page.read_text(encoding="utf-8"))  # code only shows how a link is written
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
