"""`trio-cogment conformance`, against a server of everything and against others."""

from __future__ import annotations

import json
from pathlib import Path

import trio

from tests.cli.process import PATIENCE_SECONDS, listening, run_here, server
from trio_cogment.api.common_pb2 import VersionInfo, VersionRequest
from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.conformance import cases_of
from trio_cogment.rpc import HealthService, ServerCall, bind

FILES = ("--storage=sqlite:trials.db", "--archive_dir=models", "--persistence_file=registrations")


class Empty:
    """A directory that only tells its versions, of which it has none."""

    async def Version(self, _request: VersionRequest, _call: ServerCall) -> VersionInfo:
        return VersionInfo()


async def test_a_server_of_everything_is_as_it_should_be(tmp_path: Path) -> None:
    with trio.fail_after(3 * PATIENCE_SECONDS):
        async with server("serve", "--host=127.0.0.1", "--port=0", *FILES, folder=tmp_path) as running:
            where = f"--endpoint=grpc://127.0.0.1:{running.port}"
            done = await run_here("conformance", where, "--json")
            assert done.code == 0, done.out
            said = json.loads(done.out)
            assert "different" not in said["counts"]
            assert len(said["cases"]) == len(cases_of())
            done = await run_here("conformance", where, "--services=directory", "--case=secrets", "--case=versions")
            assert done.code == 0
            assert done.out == (
                "as documented  directory/secrets   DeregisterRequest.secret  FAILED, OK, FAILED; left: 0\n"
                "as documented  directory/versions  VersionInfo               cogment-api, grpc\n\n2 as documented\n"
            )
            await running.stop()


async def test_differences_are_shown_with_what_was_expected() -> None:
    directory = bind(SERVICES[ServiceKind.DIRECTORY].descriptor(), Empty())
    async with listening(directory) as endpoint:
        done = await run_here("conformance", f"--endpoint={endpoint}", "--case=secrets", "--case=versions")
    assert done.code == 1
    lines = done.out.split("\n")
    assert lines[0] == "different        directory/secrets   DeregisterRequest.secret  UNIMPLEMENTED"
    assert "      documents:     FAILED, OK, FAILED; left: 0" in lines
    assert "as Cogment 2.22  directory/versions  VersionInfo               none" in lines
    assert lines[-2] == "1 different, 1 as Cogment 2.22"


async def test_a_server_without_these_services() -> None:
    async with listening(HealthService().service()) as endpoint:
        done = await run_here("conformance", f"--endpoint={endpoint}")
    assert done.code == 1
    assert done.err.startswith(f"trio-cogment: {endpoint}: none of orchestrator, trial_datastore")


async def test_what_is_listed_and_what_is_no_case() -> None:
    done = await run_here("conformance", "--list", "--services=model_registry", "--careful")
    assert done.code == 0
    assert done.out.startswith("model_registry/updated_model\n  rule:          A model that is updated")
    assert "model_of_nothing" not in done.out
    assert "orchestrator/" not in done.out
    done = await run_here("conformance", "--case=bogus")
    assert (done.code, done.err) == (1, "trio-cogment: --case: there is no case 'bogus'; --list shows them\n")
    done = await run_here("conformance", "--services=orchestra")
    assert done.code == 1
    assert "expected some of orchestrator, trial_datastore" in done.err
