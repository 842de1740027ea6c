"""Texts that others have chosen, on a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.client.test_directory import directory
from tests.cli.client.test_model_registry import asked, client, registry
from tests.cli.process import run_here
from trio_cogment.api.directory_pb2 import ServiceEndpoint, ServiceType
from trio_cogment.api.orchestrator_pb2 import TrialInfo
from trio_cogment.cli.text import columns, fields_of, printable
from trio_cogment.servers.directory import Service

EVIL = "a\nb\x1b]0;title\x07\t\x9b2J\u2028\u202e"
ESCAPED = r"a\nb\x1b]0;title\x07\t\x9b2J\u2028\u202e"


@pytest.mark.parametrize(
    ("text", "shown"), [("", ""), ("wörld 💡 \\n", "wörld 💡 \\n"), (EVIL, ESCAPED), ("\0", r"\x00")]
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_zeros_and_empty_lists_are_fields_too() -> None:
    fields = fields_of(TrialInfo(trial_id="one"))
    assert (fields["trialId"], fields["tickId"], fields["actorsInTrial"]) == ("one", "0", [])


def test_a_row_is_a_line() -> None:
    assert columns([("NAME", "X"), (EVIL, "1")]).splitlines()[1] == f"{ESCAPED}  1"


async def test_names_of_models_and_user_data(tmp_path: Path) -> None:
    async with registry(tmp_path) as endpoint:
        said = await asked("put", endpoint, EVIL, f"--user_data=k={EVIL}", data=b"x")
        assert said == f"version 1 of {ESCAPED}: 1 bytes, archived\n"
        assert (await asked("list", endpoint)).splitlines()[1:] == [ESCAPED]
        name, _, row = (await asked("show", endpoint, EVIL)).splitlines()
        assert (name, row.endswith(f"k={ESCAPED}")) == (ESCAPED, True)
        output = await client("get", endpoint, EVIL + "!")
        assert (output.err.count("\n"), output.err.isascii(), "\x1b" in output.err) == (1, True, False)
        for number in (2**31, -(2**31) - 1):
            output = await client("get", endpoint, EVIL, f"--version={number}")
            assert (output.code, output.err.count("\n")) == (1, 1)
            assert output.err.startswith("trio-cogment: --version: ")


async def test_properties_in_a_directory() -> None:
    async with directory() as (server, where):
        service = Service(
            kind=ServiceType.OTHER_SERVICE, protocol=ServiceEndpoint.GRPC, host="h", port=1, properties={EVIL: EVIL}
        )
        await server.register(service, permanent=True)
        output = await run_here("client", "directory", "inquire", where)
        assert output.out.splitlines()[-1] == f"\t[{ESCAPED}] = [{ESCAPED}]"
        output = await run_here("status", where, "-vvvv")
        assert f" -- {ESCAPED} = {ESCAPED}] ::: " in output.out
        assert len(output.out.splitlines()) == 2
