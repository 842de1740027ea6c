"""TLS with an authority of one's own, as an operator sets it up: servers, participants elsewhere, clients, `doctor`.

All are processes. Where one side speaks TLS and the other does not, each says what may be wrong.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trustme

from tests.cli.process import PATIENCE_SECONDS, Output, Server, run_here, server
from tests.cli.test_participants import MODULE
from tests.rpc.tls_files import Party, make_party
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.endpoints import CLIENT
from trio_cogment.sdk import ActorSession, connect

PARAMS = """\
trial_params:
  environment: {{implementation: world, endpoint: "{endpoint}"}}
  actors:
    - {{name: ann, actor_class: talker, implementation: echo, endpoint: "{endpoint}"}}
"""


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def party(tmp_path: Path, authority: trustme.CA) -> Party:
    return make_party(tmp_path, "party", "localhost", "127.0.0.1", authority=authority)


def certificate(party: Party) -> tuple[str, str]:
    return f"--private_key={party.key}", f"--trust_chain={party.chain}"


@asynccontextmanager
async def elsewhere(folder: Path, *flags: str) -> AsyncIterator[tuple[Server, Path]]:
    """Serve the participants of a module; gives their server, and the parameters of their trials."""
    (folder / "talkers.py").write_text(textwrap.dedent(MODULE))
    async with server("participants", "talkers", "--host=127.0.0.1", "--port=0", *flags, folder=folder) as running:
        params = folder / "params.yaml"
        params.write_text(PARAMS.format(endpoint=f"grpc://localhost:{running.port}"))
        yield running, params


async def start(running: Server, params: Path, *flags: str) -> Output:
    where = f"--endpoint=grpc://localhost:{running.port}"
    return await run_here("client", "trial", "start", f"--params={params}", where, *flags)


SERVE = ("serve", "--host=127.0.0.1", "--port=0")


@pytest.mark.parametrize("how", ["the flag", "its variable", "the variable of OpenSSL"])
async def test_participants_elsewhere_are_called_and_clients_asked_for_nothing(
    how: str, tmp_path: Path, party: Party
) -> None:
    flags = [f"--outgoing_root_cert={party.roots}"] if how == "the flag" else []
    name = {"its variable": "COGMENT_OUTGOING_ROOT_CERT_FILE", "the variable of OpenSSL": "SSL_CERT_FILE"}.get(how)
    variables = {name: str(party.roots)} if name else {}
    with trio.fail_after(PATIENCE_SECONDS):
        async with (
            elsewhere(tmp_path, *certificate(party)) as (_, params),
            server(*SERVE, *certificate(party), *flags, variables=variables) as running,
        ):
            trust = f"--root_cert={party.roots}"
            done = await start(running, params, "--wait", trust)
            assert done.code == 0, done.err
            assert done.out.splitlines()[1] == "ended after 4 ticks: environment"


async def test_only_calls_to_others_are_encrypted(tmp_path: Path, party: Party) -> None:
    """As behind a proxy that decrypts."""
    with trio.fail_after(PATIENCE_SECONDS):
        async with (
            elsewhere(tmp_path, *certificate(party)) as (_, params),
            server(*SERVE, f"--outgoing_root_cert={party.roots}") as running,
        ):
            done = await start(running, params, "--wait")
            assert done.code == 0, done.err


@pytest.mark.parametrize("wait", ["--wait", "--wait=running"])
async def test_a_start_that_waits_says_whose_certificate_is_not_trusted(
    wait: str, tmp_path: Path, party: Party
) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        async with (
            elsewhere(tmp_path, *certificate(party)) as (_, params),
            server(*SERVE, *certificate(party)) as running,
        ):
            done = await start(running, params, wait, f"--root_cert={party.roots}", "--json")
            assert done.code == 1
            assert json.loads(done.out)["cause"] == "participant_missing"
            for text in (json.loads(done.out)["reason"], done.err):
                assert re.search("TLS handshake failed: (self-signed certificate|unable to get local issuer)", text)
                assert "; its authority is not among the trusted roots" in text


async def test_a_start_waits_until_the_trial_runs(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        async with elsewhere(tmp_path) as (_, params), server(*SERVE) as running, trio.open_nursery() as nursery:
            text = params.read_text()
            params.write_text(re.sub(r'echo, endpoint: "[^"]*"', f'echo, endpoint: "{CLIENT}"', text))
            joined = False

            async def play(session: ActorSession) -> None:
                await trio.sleep_forever()

            async def join() -> None:
                nonlocal joined
                async with connect(f"grpc://localhost:{running.port}", variables={}) as client:
                    controller = await client.controller()
                    async with controller.watch_trials() as changes:
                        async for entry in changes:
                            if entry.state == TrialState.PENDING:
                                break
                    joined = True
                    await client.join_trial("one", play, actor_name="ann")

            nursery.start_soon(join)
            done = await start(running, params, "--wait=running", "--trial_id=one")
            assert (done.code, done.out) == (0, "one\nrunning\n"), done.err
            assert joined
            nursery.cancel_scope.cancel()


# One side speaks TLS, and the other does not.


async def said(running: Server, text: str) -> None:
    """Wait until a server has logged something."""
    while True:
        if text in running.err:
            return
        await trio.sleep(0.02)


@pytest.mark.parametrize("where", ["at the server", "at the participants"])
async def test_all_say_that_only_one_side_speaks_tls(where: str, tmp_path: Path, party: Party) -> None:
    own, trust = certificate(party), f"--root_cert={party.roots}"
    at_server = where == "at the server"
    servers = (*own, f"--outgoing_root_cert={party.roots}") if at_server else ()
    with trio.fail_after(PATIENCE_SECONDS):
        async with (
            elsewhere(tmp_path, *(() if at_server else own)) as (participants, params),
            server(*SERVE, *servers) as running,
        ):
            # Between the orchestrator and the participants.
            done = await start(running, params, "--wait=running", *([trust] if at_server else []))
            hint = "the server may not speak TLS" if at_server else "the server may speak TLS"
            assert done.code == 1
            assert hint in done.err
            await said(running, hint)
            await said(participants, "the client may speak TLS" if at_server else "the client may not speak TLS")
            # Between a client and the orchestrator.
            done = await start(running, params, *([] if at_server else [trust]), "--timeout=10s")
            assert done.code == 1
            assert (
                "the server may speak TLS: --root_cert" if at_server else "the server may not speak TLS"
            ) in done.err
            await said(running, "the client may not speak TLS" if at_server else "the client may speak TLS")


@pytest.mark.parametrize("web", ["true", "false"])
async def test_a_participant_that_registers_without_tls_is_told_that_its_directory_may_speak_it(
    web: str, tmp_path: Path, party: Party
) -> None:
    kept = {"COGMENT_DIRECTORY_PERSISTENCE_FILE": ""}
    with trio.fail_after(PATIENCE_SECONDS):
        async with server(*SERVE, f"--web={web}", *certificate(party), variables=kept) as running:
            directory = f"--directory_endpoint=grpc://localhost:{running.port}"
            async with elsewhere(tmp_path, directory) as (participants, _):
                await said(participants, "the server may speak TLS")
                await said(running, "the client may not speak TLS")


async def test_doctor_recognizes_a_server_with_tls(tmp_path: Path, party: Party) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        async with (
            server(*SERVE, *certificate(party)) as asks_nobody,
            server(*SERVE, *certificate(party), f"--root_cert={party.roots}") as asks_everybody,
        ):
            flags: tuple[str, ...]
            roots = f"--root_cert={party.roots}"
            # Also where it answers as it is asked at first.
            for flags in ((), certificate(party), (*certificate(party), roots)):
                looked = await run_here("doctor", "--host=127.0.0.1", f"--port={asks_nobody.port}", *flags)
                assert re.search("in use on 127.0.0.1 by a server with lifecycle .*, with TLS\n", looked.out)
            looked = await run_here("doctor", "--host=127.0.0.1", f"--port={asks_everybody.port}")
            assert "in use on 127.0.0.1 by a server with TLS, which does not answer without a certificate" in looked.out
            # With one that it knows it does answer.
            flags = (*certificate(party), roots)
            looked = await run_here("doctor", "--host=127.0.0.1", f"--port={asks_everybody.port}", *flags)
            assert re.search("in use on 127.0.0.1 by a server with lifecycle .*, with TLS\n", looked.out)
