"""The folders of `examples`: their READMEs say what to run, and what it prints."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
#: Learning takes its time.
PATIENCE_SECONDS = 100


@dataclass
class Example:
    """A folder, copied to where it may write.

    Attributes:
        folder: the copy.
        python: runs its programs.
        changes: of the README's texts: ports that a test cannot have.
    """

    folder: Path
    python: str = sys.executable
    changes: Mapping[str, str] = field(default_factory=dict)

    def _block(self, language: str) -> str:
        text = (self.folder / "README.md").read_text(encoding="utf-8")
        (block,) = re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        for old, new in self.changes.items():
            block = block.replace(old, new)
        found: str = block
        return found

    @property
    def printed(self) -> list[str]:
        """The lines that its README shows."""
        return self._block("text").splitlines()

    def run(self, *more: str) -> list[str]:
        """Run the commands, the last one with more arguments; return what they have printed."""
        commands = self._block("sh").splitlines()
        path = os.pathsep.join([str(Path(self.python).parent), os.environ["PATH"]])
        output = ""
        for number, command in enumerate(commands):
            arguments = [*self._arguments(command), *(more if number == len(commands) - 1 else ())]
            done = subprocess.run(
                arguments,
                cwd=self.folder,
                env={**os.environ, "PATH": path},
                capture_output=True,
                text=True,
                timeout=PATIENCE_SECONDS,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert "Traceback" not in done.stderr, done.stderr
            output += done.stdout
        return output.splitlines()

    def _arguments(self, command: str) -> Sequence[str]:
        program, *rest = shlex.split(command)
        ours = {"python": [self.python], "trio-cogment": [self.python, "-m", "trio_cogment"]}
        return [*ours[program], *rest]


def example(name: str, folder: Path, **changes: str) -> Example:
    """Copy an example to a folder."""
    copy = folder / name
    shutil.copytree(EXAMPLES / name, copy, ignore=shutil.ignore_patterns("__pycache__", ".pytest_cache"))
    return Example(copy, changes=changes)
