"""Shared parts of a client's commands: their flags, their limit in time, and how their failures are told."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click
import pytest
import trio
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.process import environment_variables
from tests.cli.test_configuration import rows
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.endpoints import GrpcEndpoint
from trio_cogment.base.errors import NotFoundError, RpcError, StatusCode
from trio_cogment.cli import main
from trio_cogment.cli.client import client
from trio_cogment.cli.client.common import ClientSettings, channel_to, client_options, client_settings, run_client, show
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import Group, parse_duration
from trio_cogment.cli.tls import TlsFiles


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("1m30s", 90),
        ("500ms", 0.5),
        ("1.5h", 5400),
        (".5s", 0.5),
        ("1.s", 1),
        ("+2h45m", 9900),
        ("0", 0),
        ("3us", 3e-6),
        ("3µs", 3e-6),
        ("3μs", 3e-6),
        ("3ns", 3e-9),
        ("1s1s", 2),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert math.isclose(parse_duration(text), seconds)


@pytest.mark.parametrize(
    "text", ["", "3", "s", ".s", "3 s", "-1s", "1d", "1s ", "1m3", "٣s", "1e3s", "nan", "9" * 400 + "h"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        parse_duration(text)


@given(st.integers(0, 2000), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_durations_add_up(hours: int, minutes: int, seconds: int, milliseconds: int) -> None:
    text = f"{hours}h{minutes}m{seconds}s{milliseconds}ms"
    assert math.isclose(parse_duration(text), hours * 3600 + minutes * 60 + seconds + milliseconds / 1000)


@given(st.text())
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    try:
        assert 0 <= parse_duration(text) < math.inf
    except ValueError:
        pass


def settings_of(*arguments: str, **variables: str) -> ClientSettings | str:
    """Return what a command two groups down gets, or the complaint."""

    @click.group(cls=Group)
    @client_options
    def top(**_options: Any) -> None:
        pass

    @top.group(cls=Group)
    @client_options
    def store(**_options: Any) -> None:
        pass

    @store.command("list")
    @client_options
    @click.pass_context
    def leaf(ctx: click.Context, /, **_options: Any) -> None:
        found.append(client_settings(ctx))

    found: list[ClientSettings] = []
    result = CliRunner(env=environment_variables(**variables)).invoke(top, arguments)
    return found[0] if found else result.output.splitlines()[-1]


LEAF = ("store", "list")


@pytest.mark.parametrize(
    ("arguments", "variables", "output", "seconds"),
    [
        (LEAF, {}, "text", 30),
        (LEAF, {"COGMENT_CLIENT_TIMEOUT": "1m", "COGMENT_CLIENT_CONSOLE_OUTPUT": "json"}, "json", 60),
        (LEAF, {"COGMENT_CLIENT_TIMEOUT": "", "COGMENT_CLIENT_CONSOLE_OUTPUT": ""}, "text", 30),
        (("--timeout=2s", *LEAF), {"COGMENT_CLIENT_TIMEOUT": "1m"}, "text", 2),
        (("store", "--timeout=3s", "list", "--console_output", "json"), {}, "json", 3),
        (("--timeout=2s", "store", "--timeout=3s", "list", "--timeout=250ms"), {}, "text", 0.25),
        (("--console_output=json", "store", "list", "--console_output=text"), {}, "text", 30),
    ],
)
def test_flags_stand_anywhere(
    arguments: tuple[str, ...], variables: dict[str, str], output: str, seconds: float
) -> None:
    assert settings_of(*arguments, **variables) == ClientSettings(output=output, timeout_seconds=seconds)


def test_the_files_of_tls_may_be_given_here_and_there() -> None:
    found = settings_of("--private_key=k", "store", "--root_cert=r", "list", COGMENT_TRUST_CHAIN_FILE="t")
    assert found == ClientSettings(tls=TlsFiles(private_key=Path("k"), root_cert=Path("r"), trust_chain=Path("t")))
    assert "missing: --trust_chain" in str(settings_of("--private_key=k", *LEAF))


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--timeout=30", "expected a duration such as 30s, 1m30s or 500ms, got '30'"),
        ("--timeout=0", "expected more than 0, got '0'"),
        ("--timeout=0s", "expected more than 0, got '0s'"),
        ("--console_output=xml", "'xml' is not one of 'text', 'json'"),
    ],
)
def test_bad_values(flag: str, said: str) -> None:
    for arguments in ((flag, *LEAF), (*LEAF, flag)):
        assert said in str(settings_of(*arguments))


def test_the_document_has_every_flag_with_its_variable() -> None:
    options = [option for option in client.params if isinstance(option, click.Option)]
    documented = {name: row[0].strip("`") for name, row in rows("Client").items()}
    assert documented == {option.opts[0]: option.envvar or "" for option in options}


def test_second_names_are_not_in_the_help() -> None:
    group = Group("group")
    group.add_command(click.Command("trial_datastore", callback=lambda: 7), aliases=("datastore",))
    listed = CliRunner().invoke(group, [])
    assert (listed.exit_code, listed.output.count("datastore")) == (0, 1)
    for name in ("datastore", "trial_datastore"):
        assert group.main([name], standalone_mode=False) == 7
    assert "No such command" in CliRunner().invoke(group, ["data"]).output


# Running


async def returned(value: int) -> int:
    await trio.lowlevel.checkpoint()
    return value


async def raised(error: BaseException, nurseries: int) -> None:
    if not nurseries:
        raise error
    async with trio.open_nursery():
        await raised(error, nurseries - 1)


def test_what_it_returns() -> None:
    assert run_client(returned, 3) == 3


@pytest.mark.parametrize("nurseries", [0, 2])
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NotFoundError("no trial t"), "no trial t"),
        (RpcError(StatusCode.UNAVAILABLE, "nobody there"), "UNAVAILABLE: nobody there"),
        (Failure("as it is"), "as it is"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_goes_wrong_is_one_line(error: Exception, said: str, nurseries: int) -> None:
    with pytest.raises(Failure) as caught:
        run_client(raised, error, nurseries)
    assert caught.value.message == said


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        run_client(raised, ZeroDivisionError(), 0)


@pytest.mark.parametrize("nurseries", [0, 2])
def test_a_pipe_that_nobody_reads_is_one(nurseries: int) -> None:
    with pytest.raises(BrokenPipeError):
        run_client(raised, BrokenPipeError(), nurseries)


@pytest.mark.parametrize("nurseries", [0, 2])
def test_an_interruption_is_one(nurseries: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_client(raised, KeyboardInterrupt(), nurseries)


@pytest.mark.parametrize("endpoint", ["localhost:1", "", "cogment://discover", "cogment://client", "grpc://h"])
def test_where_there_can_be_no_service(endpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (("model_registry", "list"), ("datastore", "list"), ("directory", "inquire")):
        with pytest.raises(SystemExit):
            main(("client", *command, f"--endpoint={endpoint}"))
        assert f"--endpoint: {endpoint!r}: expected grpc://host:port" in capsys.readouterr().err


def test_where_nobody_listens() -> None:
    async def ask() -> None:
        at_once = RpcConfig(await_server_seconds=0)
        async with channel_to(ClientSettings(), GrpcEndpoint("127.0.0.1", 1), config=at_once) as channel:
            await channel.connection()

    with pytest.raises(Failure, match=r"UNAVAILABLE: cannot connect to 127\.0\.0\.1:1: Connection refused"):
        run_client(ask)


def test_both_forms_of_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    for output in ("text", "json"):
        show(ClientSettings(output=output), "two: a, é", {"names": ["a", "é"]})
    assert capsys.readouterr().out == 'two: a, é\n{"names": ["a", "é"]}\n'
