"""Check of module docstrings: a title names the thing, then what it does.

A title that begins with a question word ("What a page may say") is a riddle to whoever looks for a module by its name.
`nox -s lint` runs this.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "tests", "tools", "benchmarks", "examples", "docs")
QUESTIONS = frozenset(("What", "Who", "Whom", "Whose", "Whether", "How", "When", "Where", "Which", "Why"))
GENERATED = ("_pb2.py", "_pb2_grpc.py")


def is_riddle(title: str) -> bool:
    """Return whether a title begins with a question word."""
    words = title.split(maxsplit=1)
    return bool(words) and words[0].strip(",:`") in QUESTIONS


def title_of(path: Path) -> str:
    """Return the first line of a module's docstring; empty if it has none."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    return docstring.split("\n", 1)[0] if docstring else ""


def main() -> int:
    """Print the modules whose titles are riddles; return 1 if there are any."""
    modules = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    riddles = [path for path in modules if not path.name.endswith(GENERATED) and is_riddle(title_of(path))]
    for path in riddles:
        print(f"{path.relative_to(ROOT)}: {title_of(path)}")
    if riddles:
        print("A title names the thing, then what it does; it does not begin with a question word.")
    return 1 if riddles else 0


if __name__ == "__main__":
    sys.exit(main())
