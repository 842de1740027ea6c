"""The runner of the pages finds mistakes in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import (
    Command,
    File,
    PageError,
    Program,
    Step,
    blocks_of,
    pattern_of,
    ports_of,
    steps_of,
    variables_for,
    with_ports,
)
from tests.docs.running import DifferentError, Runner


def page(*blocks: str) -> str:
    return "\n\n".join(blocks)


def fence(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


def steps(*blocks: str) -> list[Step]:
    return steps_of(list(blocks_of("page.md", page(*blocks))))


async def run(folder: Path, *blocks: str) -> None:
    await Runner(folder).run(steps(*blocks))


def test_programs_and_their_output() -> None:
    (program,) = steps(
        fence("python", "x = 1"), "<!-- continues -->\n" + fence("python", "print(x)"), "It prints:", fence("text", "1")
    )
    assert program == Program("page.md:6", "x = 1\n\n\nprint(x)\n", "1\n")


def test_ports_that_a_command_does_not_name() -> None:
    found = steps(fence("console", "$ trio-cogment serve --storage=memory:\n$ trio-cogment services directory"))
    ports = {"9000": "1", "9005": "5"}
    assert with_ports(found, ports)[0].text == "trio-cogment serve --port=1 --storage=memory:"
    assert variables_for(found, ports) == {"COGMENT_ENDPOINT": "grpc://localhost:1", "COGMENT_DIRECTORY_PORT": "5"}


def test_a_comment_for_all_blocks_of_a_language() -> None:
    other = fence("console", "$ x")
    (command,) = steps("<!-- python tested by: tests/x.py -->", fence("python", "1"), fence("python", "2"), other)
    assert command.place == "page.md:11"


def test_files_and_commands() -> None:
    file, first, second = steps(
        fence("yaml", "# a/params.yaml\nx: 1"), fence("console", "$ one params.yaml \\\n> --more\nout\n...\n$ two")
    )
    assert file == File("page.md:1", "a/params.yaml", "# a/params.yaml\nx: 1\n")
    assert first == Command("page.md:6", "one params.yaml \\\n--more", "out\n...\n")
    assert second == Command("page.md:6", "two", None)


def test_hidden_blocks() -> None:
    (program,) = steps("<!-- python:\nx = 1\n\ny = 2\n-->", "<!-- continues -->", fence("python", "print(x)"))
    assert isinstance(program, Program)
    assert program.text == "x = 1\n\ny = 2\n\n\nprint(x)\n"


def test_ports() -> None:
    found = steps(fence("console", "$ serve --port=9000\non 127.0.0.1:9000 at 19000"))
    assert ports_of(found) == ["9000", "9001", "9002", "9003", "9005"]
    assert with_ports(found, {"9000": "1"}) == [Command("page.md:1", "serve --port=1", "on 127.0.0.1:1 at 19000\n")]


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([fence("yaml", "x: 1")], r"page.md:1: nobody runs this block \(yaml\)"),
        ([fence("", "x")], "no language"),
        ([fence("text", "x")], "nobody runs"),
        ([fence("python", "# a.py\nx = 1")], "nothing on the page uses a.py"),
        (["<!-- continues -->\n" + fence("python", "x")], "no program before it"),
        ([fence("console", "out")], r"begins with a command"),
        (["text\n\n    code"], "has to be in a fence"),
        (["<!-- serves -->", "text", fence("console", "$ x")], "'serves' before it is about no block"),
    ],
)
def test_a_page_with_a_block_that_nobody_runs(blocks: list[str], message: str) -> None:
    with pytest.raises(PageError, match=message):
        steps(*blocks)


def test_blocks_that_others_run() -> None:
    assert steps("<!-- tested by: tests/x.py -->\n" + fence("yaml", "x: 1")) == []
    assert steps("<!-- shown: needs another machine -->\n" + fence("console", "$ ssh")) == []


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("a\n", "a\n", True),
        ("a\n", "b\n", False),
        ("a\n", "a\nb\n", False),
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("a\n...\n", "a\n", True),
        ("at ... s\n", "at 1.5 s\n", True),
        ("at ... s\n", "at 1.5\n s\n", False),
        ("a.b\n", "axb\n", False),
        ("a\n", "a  \n", True),
    ],
)
def test_outputs(expected: str, printed: str, same: bool) -> None:
    assert bool(re.fullmatch(pattern_of(expected), printed)) is same


async def test_a_page_that_tells_the_truth(tmp_path: Path) -> None:
    await run(
        tmp_path,
        fence("python", "# one.py\nimport sys\nprint('one', *sys.argv[1:])"),
        fence("console", "$ python one.py two\none two"),
        fence("python", "import trio\n\nawait trio.sleep(0)\nprint('here')"),
        fence("text", "here"),
        "<!-- fails -->\n" + fence("console", "$ exit 3"),
    )


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([fence("python", "print(1)"), fence("text", "2")], "something else than the page says"),
        ([fence("python", "raise SystemExit(1)")], "exit code was 1"),
        ([fence("python", "import sys\nprint(1, file=sys.stderr)")], "wrote to stderr"),
        ([fence("python", "import warnings\nwarnings.warn('x')")], "exit code was 1"),
        ([fence("console", "$ echo one\ntwo")], "something else"),
        ([fence("console", "$ false")], "exit code was 1"),
        (["<!-- fails -->\n" + fence("console", "$ true")], "exit code was 0"),
        (["<!-- serves -->\n" + fence("console", "$ echo no\nready")], "has not begun to serve"),
    ],
)
async def test_a_page_that_lies(tmp_path: Path, blocks: list[str], message: str) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        await run(tmp_path, *blocks)
    assert caught.group_contains(DifferentError, match=message)


SERVER = """# server.py
import sys
import trio

try:
    print("ready", flush=True)
    trio.run(trio.sleep_forever)
except KeyboardInterrupt:
    sys.exit(int(sys.argv[1]))"""


async def test_what_serves_is_stopped_at_the_end(tmp_path: Path) -> None:
    def serving(code: int) -> list[str]:
        command = fence("console", f"$ python -c 'import server' {code}\nready")
        return [fence("python", SERVER), f"<!-- serves -->\n{command}"]

    await run(tmp_path, *serving(0))
    with pytest.raises(ExceptionGroup) as caught:
        await run(tmp_path, *serving(4))
    assert caught.group_contains(DifferentError, match="after Control-C its exit code was 4")


async def test_what_serves_is_stopped_where_the_page_says_so(tmp_path: Path) -> None:
    served = fence("python", SERVER.replace("    sys.exit", "    open('gone', 'w').close()\n    sys.exit"))
    command = "<!-- serves -->\n" + fence("console", "$ python -c 'import server' 0\nready")
    looks = fence("console", "$ ls gone\ngone")
    with pytest.raises(ExceptionGroup) as caught:
        await run(tmp_path, served, command, "<!-- stop: something else -->", looks)
    assert caught.group_contains(DifferentError, match="exit code was 2")
    await run(tmp_path, served, command, "<!-- stop: import server -->", looks)
