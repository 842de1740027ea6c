"""Servers that ask for tokens, as processes: who gets in, what is read again, and whose the files are."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path

import click
import httpx
import pytest
import trio
import trustme
from click.testing import CliRunner

from tests.cli.process import PATIENCE_SECONDS, Endless, run_here, run_main, server
from tests.rpc.tls_files import Party, make_party
from trio_cogment.access import AccessControl, Keys, Rules
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.base.host import Host
from trio_cogment.base.services import ServiceKind
from trio_cogment.cli.services.auth import AuthSettings, auth_options, auth_settings
from trio_cogment.rpc import Channel, client_tls
from trio_cogment.sdk import Controller, actor_params, connect, trial_params
from trio_cogment.servers.discovery import DirectoryClient

HERE = "--host=127.0.0.1"


def token(secret: Path, *arguments: str) -> str:
    return run_main("token", "make", *arguments, f"--auth_secret_file={secret}").out.strip()


def with_tokens(secret: Path) -> tuple[str, ...]:
    revoked = secret.with_name("revoked")
    return "--auth=token", f"--auth_secret_file={secret}", f"--auth_revocation_file={revoked}"


async def asked(port: int, text: str) -> StatusCode:
    async with Channel("127.0.0.1", port, token=text) as channel:
        try:
            await Controller(channel).trial_infos()
        except RpcError as error:
            return error.code
        return StatusCode.OK


async def test_a_server_with_tokens_and_its_files_read_again(secret: Path) -> None:
    admin, observer = token(secret, "root", "--role=admin"), token(secret, "eve", "--role=observer")
    with trio.fail_after(PATIENCE_SECONDS):
        async with server("serve", HERE, "--port=0", *with_tokens(secret)) as running:
            for text, code in ((admin, "OK"), (observer, "OK"), ("", "UNAUTHENTICATED"), ("x", "UNAUTHENTICATED")):
                assert (await asked(running.port, text)).name == code
            revocations = f"--auth_revocation_file={secret.with_name('revoked')}"
            assert (await run_here("token", "revoke", observer, revocations)).code == 0
            assert (await run_here("token", "init", "--rotate", f"--auth_secret_file={secret}")).code == 0
            newer = token(secret, "new", "--role=observer")
            assert await asked(running.port, newer) is StatusCode.UNAUTHENTICATED
            running.process.send_signal(signal.SIGHUP)
            while await asked(running.port, newer) is not StatusCode.OK:
                await trio.lowlevel.checkpoint()
            assert await asked(running.port, observer) is StatusCode.UNAUTHENTICATED
            assert await asked(running.port, admin) is StatusCode.OK
            read = "access: read keys: 2, revoked tokens: 1, revoked names: 0, names of certificates: 0"
            while read not in running.err:
                await trio.lowlevel.checkpoint()
            # One that has gone does not let those come back whose tokens it revoked.
            gone = secret.with_name("revoked")
            await trio.Path(gone).rename(secret.with_name("away"))
            running.process.send_signal(signal.SIGHUP)
            while "nothing has changed: --auth_revocation_file" not in running.err:
                await trio.lowlevel.checkpoint()
            assert "No such file or directory" in running.err
            assert await asked(running.port, observer) is StatusCode.UNAUTHENTICATED
            await trio.Path(secret.with_name("away")).rename(gone)
            # A file that cannot be read changes nothing.
            kept = await trio.Path(secret).read_text()
            await trio.Path(secret).write_text("nonsense")
            running.process.send_signal(signal.SIGHUP)
            while "expected a key as hexadecimal digits" not in running.err:
                await trio.lowlevel.checkpoint()
            await trio.Path(secret.with_name("revoked")).write_text("# nobody\nalice smith\n")
            await trio.Path(secret).write_text(kept)
            running.process.send_signal(signal.SIGHUP)
            while "revoked: line 2: expected a token's id or name=NAME, got 'alice smith'" not in running.err:
                await trio.lowlevel.checkpoint()
            assert await asked(running.port, newer) is StatusCode.OK
            assert await running.stop() == 0
    assert "EVERYBODY" not in running.err


async def test_clients_of_the_command_line_and_the_sdk_say_who_they_are(secret: Path, tmp_path: Path) -> None:
    text = token(secret, "eve", "--role=observer")
    file = tmp_path / "eve.token"
    file.write_text(f"{text}\n")
    with trio.fail_after(PATIENCE_SECONDS):
        async with server("serve", HERE, "--port=0", *with_tokens(secret)) as running:
            endpoint = f"grpc://127.0.0.1:{running.port}"
            ask = ("status", f"--endpoint={endpoint}", "nb_trials")
            refused = await run_here(*ask)
            assert (refused.code, refused.out) == (1, "")
            # Where it takes a moment, it says before that it waits.
            assert f"trio-cogment: the service at {endpoint}: UNAUTHENTICATED: " in refused.err
            for arguments, variables in (
                ((f"--token_file={file}",), {}),
                ((f"--token={text}",), {}),
                ((), {"COGMENT_TOKEN": text}),
                ((), {"COGMENT_TOKEN_FILE": str(file)}),
            ):
                done = await run_here(*ask, *arguments, variables=variables)
                assert (done.code, "[nb_trials:0]" in done.out) == (0, True), done
            for given in ({"access_token": text}, {"variables": {"COGMENT_TOKEN_FILE": str(file)}}):
                async with connect(endpoint, **{"variables": {}, **given}) as client:  # type: ignore[arg-type]  # either
                    assert await (await client.controller()).trial_infos() == []


async def shown(port: int, text: str) -> list[str]:
    """Return the stored trials that the dashboard of an orchestrator shows to the holder of a token."""
    async with httpx.AsyncClient() as browser:
        address = f"http://127.0.0.1:{port}/dashboard/api/stored"
        answer = await browser.get(address, headers={"authorization": f"Bearer {text}"})
    assert answer.status_code == 200, answer.text
    return [row["id"] for row in answer.json()["trials"]]


async def test_a_platform_of_several_processes_asks_and_is_asked(secret: Path) -> None:
    """The directory, the datastore and the orchestrator: each calls the others with tokens of its own."""
    flags, endless = with_tokens(secret), Endless()
    alice = token(secret, "alice", "--role=operator", "--role=observer")
    with trio.fail_after(2 * PATIENCE_SECONDS):
        async with (
            server("services", "directory", HERE, "--port=0", "--persistence_file=", *flags) as directory,
            endless.served() as endpoint,
        ):
            where = f"--directory_endpoint=grpc://127.0.0.1:{directory.port}"
            async with (
                server("services", "trial_datastore", HERE, "--port=0", where, *flags) as datastore,
                server(
                    "services", "orchestrator", HERE, "--lifecycle_port=0", "--actor_port=0", where, *flags
                ) as orchestrator,
                connect(
                    f"grpc://127.0.0.1:{orchestrator.port}",
                    directory=f"grpc://127.0.0.1:{directory.port}",
                    access_token=alice,
                    variables={},
                ) as client,
            ):
                controller = await client.controller()
                params = trial_params(
                    [actor_params("a", "endless", endpoint=endpoint)],
                    environment_endpoint=endpoint,
                    datalog_endpoint=f"grpc://127.0.0.1:{datastore.port}",
                )
                trial_id = await controller.start_trial(params)
                await endless.wait_running([trial_id])
                await controller.terminate_trial(trial_id)
                outcome = await controller.wait_trial(trial_id)
                assert outcome.samples_lost == 0
                assert " refused: " not in orchestrator.err + datastore.err  # health checks have tokens, too
                stored = await client.datastore("cogment://discover")
                assert [trial.trial_id for trial in await stored.trials()] == [trial_id]
                bob = token(secret, "bob", "--role=operator")
                for looking, seen in ((alice, [trial_id]), (bob, [])):
                    assert await shown(orchestrator.port, looking) == seen
                stranger = Channel("127.0.0.1", directory.port)
                async with stranger:
                    with pytest.raises(RpcError) as caught:
                        await Controller(stranger).versions()
                    assert caught.value.code is StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("variable", ["COGMENT_TOKEN", "COGMENT_TOKEN_FILE"])
async def test_a_token_exported_where_a_server_starts_is_not_sent_by_it(secret: Path, variable: str) -> None:
    """Participants and the directory get the server's own, as without it; the log says so."""
    text, endless, host = token(secret, "alice", "--role=operator"), Endless(), Host()
    file = secret.with_name("alice.token")
    await trio.Path(file).write_text(text)
    keys = Keys.parse(await trio.Path(secret).read_text())
    access = AccessControl(Rules(keys=keys), wall_clock=host.wall_clock, new_id=host.new_id)
    exported = {variable: str(file) if variable.endswith("FILE") else text}
    with trio.fail_after(2 * PATIENCE_SECONDS):
        async with (
            endless.served(access) as endpoint,
            server("services", "directory", HERE, "--port=0", "--persistence_file=", *with_tokens(secret)) as directory,
            server(
                *("serve", HERE, "--port=0", f"--directory_endpoint=grpc://127.0.0.1:{directory.port}"),
                *with_tokens(secret),
                variables=exported,
            ) as running,
            Channel("127.0.0.1", running.port, token=text) as channel,
            Channel("127.0.0.1", directory.port, token=text) as looking,
        ):
            controller = Controller(channel)
            trial_id = await controller.start_trial(
                trial_params([actor_params("a", "endless", endpoint=endpoint)], environment_endpoint=endpoint)
            )
            await endless.wait_running([trial_id])
            while not await DirectoryClient(looking).inquire(ServiceKind.LIFECYCLE):
                await trio.lowlevel.checkpoint()
            assert await running.stop() == 0
    assert f"{variable} is not used: this server makes its own tokens with --auth_secret_file." in running.err
    assert text not in running.err


@pytest.mark.parametrize(
    ("flags", "variables", "sent", "unsent"),
    [
        ([], {"COGMENT_TOKEN": "hers"}, "", "COGMENT_TOKEN"),
        ([], {"COGMENT_TOKEN_FILE": "gone"}, "", "COGMENT_TOKEN_FILE"),
        (["--token=mine"], {"COGMENT_TOKEN": "hers"}, "mine", ""),
        ([], {}, "", ""),
    ],
)
def test_with_a_secret_a_flag_alone_says_which_token_to_send(
    secret: Path, flags: list[str], variables: dict[str, str], sent: str, unsent: str
) -> None:
    found: list[AuthSettings] = []

    @click.command()
    @auth_options
    @click.pass_context
    def command(ctx: click.Context, /, **_: object) -> None:
        found.append(auth_settings(ctx))

    for arguments, expected in (
        ([f"--auth_secret_file={secret}", *flags], (sent, unsent)),
        (["--token=one"], ("one", "")),
    ):
        done = CliRunner().invoke(command, arguments, env=variables, catch_exceptions=False)
        assert (done.exit_code, [(each.token, each.unsent) for each in found]) == (0, [expected])
        found.clear()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--auth=token",), "--auth=token: expected --auth_secret_file"),
        (("--auth=token", "--auth_secret_file=gone"), "--auth_secret_file: gone: No such file"),
        (("--auth_certificates_file=gone",), "--auth_certificates_file: expected --auth=token, too"),
        (("--auth=maybe",), "--auth: 'maybe' is not one of 'open', 'token'"),
        (("--token=a b",), "--token: token: expected printable ASCII without blanks"),
        (("--token_file=gone",), "--token_file: gone: No such file or directory"),
    ],
)
def test_flags_that_make_no_sense(flags: tuple[str, ...], expected: str) -> None:
    done = run_main("serve", HERE, "--port=0", *flags)
    assert done.code == 1
    assert expected in done.err


async def test_a_server_that_a_network_reaches_and_asks_for_nothing_says_so(secret: Path) -> None:
    cases = (
        (("serve", "--port=0", "--host=0.0.0.0"), True),
        (("serve", "--port=0"), False),
        (("serve", "--port=0", "--host=0.0.0.0", *with_tokens(secret)), False),
    )
    for arguments, warned in cases:
        with trio.fail_after(PATIENCE_SECONDS):
            async with server(*arguments) as running:
                await running.wait_serving()
                await running.stop()
        assert running.err.count("EVERYBODY IN THE NETWORK") == int(warned), arguments


def modes_in(folder: Path) -> dict[Path, int]:
    return {path: stat.S_IMODE(path.lstat().st_mode) for path in folder.rglob("*")}


async def test_what_a_server_writes_is_its_owners(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with trio.fail_after(PATIENCE_SECONDS):
            variables = {
                "TRIO_COGMENT_STORAGE": "",
                "COGMENT_MODEL_REGISTRY_ARCHIVE_DIR": "",
                "COGMENT_STATUS_FILE": "status",
                "COGMENT_LOG_FILE": "log",
            }
            everything = ("serve", "--port=0", "--persistence_file=directory", "--trainer=runs")
            async with server(*everything, variables=variables, folder=tmp_path) as running:
                await running.wait_serving()
                modes = await trio.to_thread.run_sync(modes_in, tmp_path)
                assert {path.name for path in modes} >= {".cogment", "trial_datastore.db", "status", "log", "runs"}
                for path, mode in modes.items():
                    assert not mode & 0o077, path
    finally:
        os.umask(before)


# Certificates


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def party(folder: Path, name: str, authority: trustme.CA) -> Party:
    return make_party(folder, name, f"{name}.example", "localhost", "127.0.0.1", authority=authority)


async def test_certificates_have_roles_and_are_read_again(tmp_path: Path, authority: trustme.CA) -> None:
    ours, alice, bob = (party(tmp_path, name, authority) for name in ("ours", "alice", "bob"))
    roles, folder = tmp_path / "roles", tmp_path / "new"
    folder.mkdir()
    roles.write_text("alice.example observer\n")
    files = (f"--private_key={ours.key}", f"--root_cert={ours.roots}", f"--trust_chain={ours.chain}")

    async def code_of(who: Party, port: int) -> StatusCode:
        context = client_tls(who.roots, certificate=who.chain, key=who.key)
        async with Channel("localhost", port, tls=context) as channel:
            try:
                await Controller(channel).trial_infos()
            except RpcError as error:
                return error.code
            return StatusCode.OK

    with trio.fail_after(PATIENCE_SECONDS):
        async with server(
            "serve", HERE, "--port=0", *files, "--auth=token", f"--auth_certificates_file={roles}"
        ) as running:
            assert await code_of(alice, running.port) is StatusCode.OK
            assert await code_of(bob, running.port) is StatusCode.UNAUTHENTICATED
            # Another authority's certificates, and another client.
            others = trustme.CA()
            renewed, carol = party(folder, "ours", others), party(folder, "carol", others)
            for old, new in ((ours.key, renewed.key), (ours.chain, renewed.chain), (ours.roots, renewed.roots)):
                old.write_bytes(new.read_bytes())
            # All of the files count, or none.
            roles.write_text("carol.example\n")
            running.process.send_signal(signal.SIGHUP)
            while "line 1: expected a certificate's name and its roles" not in running.err:
                await trio.lowlevel.checkpoint()
            assert await code_of(alice, running.port) is StatusCode.OK
            roles.write_text("carol.example observer\n")
            running.process.send_signal(signal.SIGHUP)
            while await code_of(carol, running.port) is not StatusCode.OK:
                await trio.lowlevel.checkpoint()
            # Its roots are not those of the server any more.
            alice_now = Party(chain=alice.chain, key=alice.key, roots=renewed.roots)
            assert await code_of(alice_now, running.port) is StatusCode.UNAVAILABLE


def test_the_keys_of_a_secret_are_as_long_as_the_signature(secret: Path) -> None:
    assert len(bytes.fromhex(secret.read_text())) == 32
    assert len(Keys.parse(secret.read_text())) == 1
