"""The code blocks of a page, and what is to be done with each.

A fence is told apart by its language, and by comments directly before it, which readers of the page do not see:

| block | what it is |
|---|---|
| `python` | a program of its own; it has to end without an error, and without a word on stderr |
| `python`, `yaml`, `proto`, ... with `# a/name.py` or `// name` as its first line | a file in the folder of the page |
| `console` | commands after `$ `, each with the output that it has to have, if any is shown |
| `text`, directly after a program | what the program has to print |
| `mermaid`, directives | nothing that runs |

| comment | meaning |
|---|---|
| `<!-- continues -->` | goes on with the program of the Python block before |
| `<!-- file: name -->` | a file that cannot have a comment in its first line |
| `<!-- serves -->` | the command runs until the end of the page; its output begins with what is shown |
| `<!-- fails -->` | the commands, or the program, exit with an error; their output includes stderr |
| `<!-- logs -->` | the program may write to stderr |
| `<!-- tested by: tests/... -->` | another test runs it, because it needs more than a page can say |
| `<!-- shown: why -->` | nobody runs it, and why |
| `<!-- python:`, code, `-->` | a block that readers do not see; with `console:`, or another language, too |
| `<!-- stop: trio-cogment serve -->` | the commands that serve and have this text are stopped, as by Control-C |
| `<!-- python tested by: tests/... -->`, `<!-- python continues -->` | the same for all later blocks of a language |

A line `...` in an output stands for any lines, `...` within a line for any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from markdown_it import MarkdownIt

#: Comments that are about the next block.
_MARKS = ("continues", "file", "serves", "fails", "logs", "tested by", "shown")
_COMMENT = re.compile(r"<!--\s*(.*?)\s*-->", re.DOTALL)
_HIDDEN = re.compile(r"([a-z]+):\n(.*)", re.DOTALL)
_WHOLE_PAGE = re.compile(r"([a-z]+) (continues|tested by|logs)(?::\s*(.*))?")
_FILE = re.compile(r"(?:#|//) ([\w/.-]+\.\w+)(?:$|:)", re.MULTILINE)
_NOT_CODE = re.compile(r"mermaid$|\{.*\}$")
#: Numbers that stand for ports in the pages; a test takes free ones.
PORT = re.compile(r"\b(?:9[0-4]\d\d|5005\d)\b")
#: Commands that serve, with the port that they have by default and the variables that give them another one.
_SERVERS = {
    "serve": ("9000", []),
    "play": ("9000", []),
    "services orchestrator": ("9000", ["COGMENT_LIFECYCLE_PORT", "COGMENT_ACTOR_PORT"]),
    "participants": ("9001", ["COGMENT_PARTICIPANTS_PORT"]),
    "services model_registry": ("9002", ["COGMENT_MODEL_REGISTRY_PORT"]),
    "services trial_datastore": ("9003", ["COGMENT_TRIAL_DATASTORE_PORT"]),
    "services directory": ("9005", ["COGMENT_DIRECTORY_PORT"]),
}
_SERVE = re.compile(r"^trio-cogment (?:serve|play)\b")
_SUGGESTED = re.compile(r"^(try +trio-cogment .*)$", re.MULTILINE)


class PageError(Exception):
    """A page has a block that nobody runs, or a comment that says nothing."""


@dataclass(frozen=True, slots=True)
class Block:
    """A code block, with the comments before it."""

    page: str
    line: int
    language: str
    text: str
    marks: Mapping[str, str] = field(default_factory=dict)

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str | None:
        """The name of the file that it is."""
        named = _FILE.match(self.text)
        if self.language != "console" and named:
            return named[1]
        return self.marks.get("file")


@dataclass(frozen=True, slots=True)
class File:
    """Write a file."""

    place: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Program:
    """Run a Python program; without an expected output it may print anything."""

    place: str
    text: str
    expected: str | None = None
    fails: bool = False
    logs: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """Run a command; without an expected output it may print anything."""

    place: str
    text: str
    expected: str | None = None
    fails: bool = False
    serves: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the commands that serve and have a text."""

    place: str
    text: str


Step = File | Program | Command | Stop


def blocks_of(page: str, text: str) -> Iterator[Block]:
    """Yield the code blocks of a page, hidden ones included.

    Raises:
        PageError: code is indented instead of fenced, or a comment is about no block.
    """
    marks: dict[str, str] = {}
    always: dict[str, dict[str, str]] = {}
    for token in MarkdownIt("commonmark").parse(text):
        line = (token.map or [0])[0] + 1
        if token.type == "html_block":
            for comment in _COMMENT.findall(token.content):
                name = comment.partition(":")[0]
                if hidden := _HIDDEN.fullmatch(comment):
                    yield Block(page, line, hidden[1], hidden[2].rstrip() + "\n", marks)
                    marks = {}
                elif name == "stop":
                    yield Block(page, line, name, comment.partition(":")[2].strip())
                elif whole := _WHOLE_PAGE.fullmatch(comment):
                    always.setdefault(whole[1], {})[whole[2]] = whole[3] or ""
                elif name in _MARKS:
                    marks[name] = comment.partition(":")[2].strip()
        elif token.type == "fence":
            language = token.info.strip()
            yield Block(page, line, language, token.content, always.get(language, {}) | marks)
            marks = {}
        elif token.type == "code_block" and not page.endswith("README.md"):
            raise PageError(f"{page}:{line}: code has to be in a fence")
        elif token.content and marks:
            raise PageError(f"{page}:{line}: the comment {next(iter(marks))!r} before it is about no block")


def steps_of(blocks: Sequence[Block]) -> list[Step]:
    """Say what has to be done to run blocks, those of one page or of pages that belong together.

    Raises:
        PageError: nobody runs a block.
    """
    steps: list[Step] = []
    printed: Step | None = None
    for block in blocks:
        if _NOT_CODE.match(block.language) or block.marks.keys() & {"tested by", "shown"}:
            continue
        before = steps[-1] if steps else None
        if block.language == "stop":
            steps.append(Stop(block.place, block.text))
        elif block.file is not None:
            steps.append(File(block.place, block.file, block.text))
        elif block.language == "python" and "continues" in block.marks:
            if not isinstance(before, Program):
                raise PageError(f"{block.place}: there is no program before it to continue")
            steps[-1] = _program(block, f"{before.text}\n\n{block.text}", before)
        elif block.language == "python":
            steps.append(_program(block, block.text))
        elif block.language == "text" and isinstance(before, Program) and printed is not before:
            steps[-1] = printed = replace(before, expected=(before.expected or "") + block.text)
        elif block.language == "console":
            steps += _commands(block)
        else:
            raise PageError(f"{block.place}: nobody runs this block ({block.language or 'no language'})")
    _check_files_are_used(steps)
    return steps


def with_ports(steps: Sequence[Step], ports: Mapping[str, str]) -> list[Step]:
    """Put other ports in place of those of the page, in what is run and in what is expected."""

    def changed(text: str) -> str:
        return PORT.sub(lambda found: ports.get(found[0], found[0]), text)

    result: list[Step] = []
    for step in steps:
        if isinstance(step, File):
            result.append(replace(step, text=changed(step.text)))
            continue
        if isinstance(step, Stop):
            result.append(step)
            continue
        expected = None if step.expected is None else changed(step.expected)
        text = changed(step.text)
        if isinstance(step, Command) and "9000" in ports and "--port" not in text:
            text = _SERVE.sub(lambda found: f"{found[0]} --port={ports['9000']}", text)
            if expected is not None and text != step.text:
                # What it suggests names a port that is not the default one.
                expected = _SUGGESTED.sub(rf"\1 --endpoint=grpc://127.0.0.1:{ports['9000']}", expected)
        result.append(replace(step, text=text, expected=expected))
    return result


def variables_for(steps: Sequence[Step], ports: Mapping[str, str]) -> dict[str, str]:
    """Return variables for ports that commands do not name: those of servers, and where clients look."""
    found: dict[str, str] = {}
    for step in steps:
        for command, (number, names) in _SERVERS.items():
            if isinstance(step, Command) and re.search(rf"\btrio-cogment {command}\b", step.text):
                found |= dict.fromkeys(names, ports[number])
                if command != "participants":
                    found.setdefault("COGMENT_ENDPOINT", f"grpc://localhost:{ports[number]}")
    return found


def ports_of(steps: Sequence[Step]) -> list[str]:
    """Return the ports that the page has, or that its commands have by default, each once."""
    named = {number for step in steps for number in PORT.findall(step.text)}
    return sorted(named | {number for number, _ in _SERVERS.values()})


def pattern_of(expected: str) -> str:
    """Return a regular expression for an expected output."""
    parts = []
    for line in expected.rstrip("\n").split("\n"):
        if line == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(r".*?".join(map(re.escape, line.rstrip().split("..."))) + r"[ \t]*\n")
    return "".join(parts)


def _program(block: Block, text: str, before: Program | None = None) -> Program:
    """Make a program, or one that goes on with the one before and prints also what that prints."""
    expected, logs = (before.expected, before.logs) if before else (None, False)
    return Program(block.place, text, expected, "fails" in block.marks, logs or "logs" in block.marks)


def _commands(block: Block) -> Iterator[Command]:
    command, expected, going_on = "", list[str](), False
    fails, serves = "fails" in block.marks, "serves" in block.marks
    for line in [*block.text.splitlines(), "$ "]:
        if going_on:
            command += f"\n{line.removeprefix('> ')}"
        elif line.startswith("$ "):
            if command:
                text = "".join(f"{each}\n" for each in expected)
                yield Command(block.place, command, text or None, fails, serves)
            command, expected = line.removeprefix("$ "), []
        elif command:
            expected.append(line)
        else:
            raise PageError(f"{block.place}: a console block begins with a command after '$ '")
        going_on = command.endswith("\\") and not expected


def _check_files_are_used(steps: Sequence[Step]) -> None:
    """A file that nothing mentions is not run by anything."""
    for step in steps:
        if isinstance(step, File):
            others = [other.text for other in steps if other is not step]
            stem = step.name.rpartition("/")[2].rpartition(".")[0]
            if not any(re.search(rf"\b{re.escape(stem)}\b", text) for text in others):
                raise PageError(f"{step.place}: nothing on the page uses {step.name}")
