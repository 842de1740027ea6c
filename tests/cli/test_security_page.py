"""The commands of docs/security.md do what the page says."""

from __future__ import annotations

import shlex
from pathlib import Path

import trio
import trustme

from tests.cli.process import run, server

PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"


def commands() -> list[list[str]]:
    """Return the commands that close a server, without the name of the program."""
    section = PAGE.read_text().partition("## Closed in three commands")[2].partition("\n## ")[0]
    lines = [line.removeprefix("$ ") for line in section.splitlines() if line.startswith("$ ")]
    assert all(line.startswith("trio-cogment ") for line in lines)
    return [shlex.split(line)[1:] for line in lines]


async def test_a_server_is_closed_in_three_commands(tmp_path: Path) -> None:
    first, second, (serve, *flags) = commands()
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    certificate.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    for pem in certificate.cert_chain_pems:
        pem.write_to_path(str(tmp_path / "chain.pem"), append=True)
    authority.cert_pem.write_to_path(str(tmp_path / "root.pem"))
    for command in (first, second):
        done = await run(*command, folder=tmp_path)
        assert done.code == 0, done.err
    here = ["--host=127.0.0.1" if flag.startswith("--host=") else flag for flag in flags]
    assert here != flags
    variables = {"TRIO_COGMENT_STORAGE": "memory:"}
    async with server(serve, *here, "--port=0", folder=tmp_path, variables=variables) as running:
        await trio.lowlevel.checkpoint()
        ask = (
            "client",
            "trial_datastore",
            "--root_cert=root.pem",
            f"--endpoint=grpc://localhost:{running.port}",
            "list",
        )
        refused = await run(*ask, folder=tmp_path)
        assert refused.code == 1
        assert "UNAUTHENTICATED" in refused.err
        done = await run(*ask, folder=tmp_path, COGMENT_TOKEN_FILE="ann.token")
        assert done.code == 0, done.err
        plain = await run(
            *ask[:2], *ask[3:], folder=tmp_path, COGMENT_TOKEN_FILE="ann.token", COGMENT_CLIENT_TIMEOUT="2s"
        )
        assert plain.code == 1
        assert "connection lost; the server may speak TLS: --root_cert" in plain.err
        await running.stop()
        await running.read_rest()
    [tried] = [line for line in running.out.splitlines() if line.startswith("try ")]
    assert tried.endswith(f"--endpoint=grpc://127.0.0.1:{running.port} --root_cert=... --token_file=...")
    assert "EVERYBODY" not in running.err
