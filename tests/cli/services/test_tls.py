"""Mutual TLS of a server process: who gets in, what goes out, and files that do not fit."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import grpc
import pytest
import trio
import trustme

from tests.cli.process import PATIENCE_SECONDS, Endless, run_main, server
from tests.rpc.tls_files import Party, make_party
from trio_cogment.api import common_pb2, orchestrator_pb2
from trio_cogment.base.endpoints import CLIENT
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.rpc import Channel, client_tls, open_listeners, serve, server_tls
from trio_cogment.sdk import Controller, Participants, actor_params, join_trial, trial_params

SERVE = ("serve", "--host=127.0.0.1", "--port=0")


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ours(tmp_path: Path, authority: trustme.CA) -> Party:
    return make_party(tmp_path, "ours", "localhost", "127.0.0.1", authority=authority)


@pytest.fixture
def theirs(tmp_path: Path, authority: trustme.CA) -> Party:
    return make_party(tmp_path, "theirs", "localhost", "127.0.0.1", authority=authority)


def flags(party: Party) -> tuple[str, str, str]:
    return f"--private_key={party.key}", f"--root_cert={party.roots}", f"--trust_chain={party.chain}"


def contexts(party: Party) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    return (
        server_tls(party.chain, party.key, client_roots=party.roots),
        client_tls(party.roots, certificate=party.chain, key=party.key),
    )


@asynccontextmanager
async def served(participants: Participants, tls: ssl.SSLContext) -> AsyncIterator[str]:
    """Serve participants that demand a certificate; gives the endpoint."""
    listeners = await open_listeners("127.0.0.1", 0, tls=tls)
    async with trio.open_nursery() as nursery:
        serving = await nursery.start(serve, participants.services(), listeners)
        yield f"grpc://localhost:{serving.port}"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("where", ["flags", "environment"])
async def test_a_trial_with_certificates_everywhere(where: str, ours: Party, theirs: Party) -> None:
    """In and out: client actor and controller come to us, environment and actor demand our certificate."""
    endless, (server_context, client_context) = Endless(), contexts(theirs)
    participants = Participants()
    participants.register_environment(endless.environment)
    participants.register_actor(endless.actor, "endless")
    arguments: tuple[str, ...] = (*SERVE, *flags(ours))
    variables: dict[str, str] = {}
    if where == "environment":
        arguments = SERVE
        variables = {
            "COGMENT_PRIVATE_KEY_FILE": str(ours.key),
            "COGMENT_ROOT_CERT_FILE": str(ours.roots),
            "COGMENT_TRUST_CHAIN_FILE": str(ours.chain),
        }
    with trio.fail_after(PATIENCE_SECONDS):
        async with (
            server(*arguments, variables=variables) as running,
            served(participants, server_context) as endpoint,
            Channel("localhost", running.port, tls=client_context) as channel,
            trio.open_nursery() as nursery,
        ):
            actors = [actor_params("here", "c", endpoint=endpoint), actor_params("joined", "c", endpoint=CLIENT)]
            params = trial_params(actors, environment_endpoint=endpoint)
            trial_id = await Controller(channel).start_trial(params)
            join = partial(join_trial, actor_name="joined")
            nursery.start_soon(join, channel, trial_id, endless.actor)
            await endless.wait_running([trial_id])
            await running.stop()
            assert running.process.returncode == 0, running.err
    assert endless.details[trial_id] == dict.fromkeys(["env", "here", "joined"], "the orchestrator is stopping")


def ask_version(port: int, credentials: grpc.ChannelCredentials | None) -> str:
    target = f"localhost:{port}"
    channel = grpc.insecure_channel(target) if credentials is None else grpc.secure_channel(target, credentials)
    with channel:
        method = orchestrator_pb2.DESCRIPTOR.services_by_name["TrialLifecycleSP"].methods_by_name["Version"]
        call = channel.unary_unary(
            f"/{method.containing_service.full_name}/{method.name}",
            lambda request: request.SerializeToString(),
            common_pb2.VersionInfo.FromString,
        )
        return str(call(common_pb2.VersionRequest(), timeout=PATIENCE_SECONDS))


async def test_grpcio_gets_in_with_a_certificate_and_not_without(ours: Party, theirs: Party, tmp_path: Path) -> None:
    stranger = make_party(tmp_path, "stranger", "localhost")
    roots, key, chain = theirs.pem()
    _, stranger_key, stranger_chain = stranger.pem()
    async with server(*SERVE, *flags(ours)) as running:

        async def ask(credentials: grpc.ChannelCredentials | None) -> str:
            return await trio.to_thread.run_sync(ask_version, running.port, credentials)

        assert "trio-cogment" in await ask(grpc.ssl_channel_credentials(roots, key, chain))
        for refused in (
            None,
            grpc.ssl_channel_credentials(roots),
            grpc.ssl_channel_credentials(roots, stranger_key, stranger_chain),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                await ask(refused)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        # Nobody else notices.
        assert "trio-cogment" in await ask(grpc.ssl_channel_credentials(roots, key, chain))


async def test_our_own_client_without_a_certificate_is_refused(ours: Party) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        async with (
            server(*SERVE, *flags(ours)) as running,
            Channel("localhost", running.port, tls=client_tls(ours.roots)) as channel,
        ):
            with pytest.raises(RpcError) as caught:
                await Controller(channel).trial_infos()
            assert caught.value.code is StatusCode.UNAVAILABLE


async def test_participants_whose_certificate_nobody_we_know_signed_are_not_called(
    ours: Party, theirs: Party, tmp_path: Path
) -> None:
    stranger = make_party(tmp_path, "stranger", "localhost")
    participants, (_, client_context) = Participants(), contexts(theirs)

    async def never(_session: object) -> None:
        raise AssertionError("it was called")

    participants.register_environment(never)
    participants.register_actor(never, "never")
    with trio.fail_after(PATIENCE_SECONDS):
        async with (
            server(*SERVE, *flags(ours)) as running,
            served(participants, server_tls(stranger.chain, stranger.key)) as endpoint,
            Channel("localhost", running.port, tls=client_context) as channel,
        ):
            controller = Controller(channel)
            params = trial_params([actor_params("a", "c", endpoint=endpoint)], environment_endpoint=endpoint)
            trial_id = await controller.start_trial(params)
            await controller.wait_trial_state(trial_id)
            await running.stop()
    assert "cannot be reached: UNAVAILABLE" in running.err
    assert "TLS handshake failed" in running.err


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        (("private_key",), "--trust_chain"),
        (("root_cert",), "--private_key, --trust_chain"),
        (("trust_chain", "root_cert"), "--private_key"),
    ],
)
def test_a_server_needs_a_certificate(given: tuple[str, ...], missing: str) -> None:
    output = run_main(*SERVE, *(f"--{name}=x.pem" for name in given))
    expected = f"trio-cogment: a server's TLS needs --private_key and --trust_chain; missing: {missing}\n"
    assert (output.code, output.err) == (1, expected)


async def test_a_server_with_a_certificate_asks_clients_for_none(ours: Party) -> None:
    own, chain, _ = flags(ours)[0], flags(ours)[2], None
    with trio.fail_after(PATIENCE_SECONDS):
        async with (
            server(*SERVE, own, chain) as running,
            Channel("localhost", running.port, tls=client_tls(ours.roots)) as channel,
        ):
            assert await Controller(channel).trial_infos() == []


def spoil(party: Party, stranger: Party, how: str) -> str:
    """Make something wrong with a party's files; return what the server should say about it."""
    if how == "no such file":
        party.key.unlink()
        return f"--private_key: {party.key}: No such file or directory"
    if how == "a folder":
        party.roots.unlink()
        party.roots.mkdir()
        return f"--root_cert: {party.roots}: Is a directory"
    if how == "swapped":
        party.chain.write_bytes(party.key.read_bytes())
        return f"--trust_chain: {party.chain}: expected certificates in PEM form"
    if how == "key of another":
        shutil.copy(stranger.key, party.key)
        return f"--private_key: {party.key} is not the key of the certificate in {party.chain}"
    if how == "no key":
        party.key.write_text("nothing")
        return f"--private_key: {party.key}: expected a private key in PEM form"
    if how == "broken roots":
        party.roots.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
        return f"--root_cert: {party.roots}: "
    assert how == "broken key"
    party.key.write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    return f"--private_key, --trust_chain: {party.key} with {party.chain}: "


HOW = ["no such file", "a folder", "swapped", "key of another", "no key", "broken roots", "broken key"]


@pytest.mark.parametrize("how", HOW)
def test_files_that_do_not_fit_prevent_the_start(how: str, ours: Party, theirs: Party, tmp_path: Path) -> None:
    expected = spoil(ours, theirs, how)
    status = tmp_path / "status"
    output = run_main(*SERVE, *flags(ours), f"--status_file={status}")
    assert (output.code, output.out) == (1, "")
    (line,) = output.err.splitlines()
    assert line.startswith(f"trio-cogment: {expected}")
    assert status.read_text() == "IT"
