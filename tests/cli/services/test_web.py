"""The web side of servers, by their flags."""

from __future__ import annotations

import json
import re
import signal
import ssl
from pathlib import Path

import httpx
import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, server
from tests.ports import free_port
from tests.rpc.tls_files import make_party
from trio_cogment.api import orchestrator_pb2
from trio_cogment.api.common_pb2 import VersionInfo, VersionRequest
from trio_cogment.rpc import Channel, client_tls, methods_of

SERVE = ("serve", "--host=127.0.0.1", "--port=0", "--storage=none", "--archive_dir=none", "--persistence_file=none")
VERSION = methods_of(orchestrator_pb2.DESCRIPTOR.services_by_name["TrialLifecycleSP"])["Version"]
#: A message of gRPC that has nothing in it.
EMPTY = bytes(5)
PAGE = "https://app.example.org"


async def status(url: str, **fields: str) -> int:
    async with httpx.AsyncClient(verify=False) as client:
        return (await client.get(url, headers=fields)).status_code


@pytest.mark.parametrize(
    ("flags", "variables", "host", "origin", "expected"),
    [
        ((), {}, "127.0.0.1", "", 200),
        ((), {}, "127.0.0.1", PAGE, 403),
        ((), {}, "lab.example.org", "", 403),
        (("--web_host=a,lab.example.org",), {}, "lab.example.org", "", 200),
        (("--web_allow_origin", PAGE), {}, "127.0.0.1", PAGE, 200),
        ((), {"TRIO_COGMENT_WEB_HOST": "a lab.example.org"}, "lab.example.org", "", 200),
        ((), {"TRIO_COGMENT_WEB_ALLOW_ORIGIN": PAGE}, "127.0.0.1", PAGE, 200),
    ],
)
async def test_who_may(
    flags: tuple[str, ...], variables: dict[str, str], host: str, origin: str, expected: int
) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        async with server(*SERVE, *flags, variables=variables) as running:
            await running.wait_serving()
            fields = {"host": host, **({"origin": origin} if origin else {})}
            assert await status(f"http://127.0.0.1:{running.port}/", **fields) == expected
            async with Channel("127.0.0.1", running.port) as channel:
                assert (await channel.unary(VERSION, VersionRequest())).versions
            await running.stop()


def client_of(version: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(http1=version == "HTTP/1.1", http2=version == "HTTP/2")


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/2"])
async def test_gRPC_Web_by_either_version_of_HTTP(version: str) -> None:
    fields = {"content-type": "application/grpc-web+proto"}
    with trio.fail_after(PATIENCE_SECONDS):
        async with server(*SERVE) as running, client_of(version) as client:
            await running.wait_serving()
            answer = await client.post(f"http://127.0.0.1:{running.port}{VERSION.path}", headers=fields, content=EMPTY)
            assert (answer.http_version, answer.status_code) == (version, 200), answer.headers
            length = int.from_bytes(answer.content[1:5], "big")
            assert VersionInfo.FromString(answer.content[5 : 5 + length]).versions
            assert answer.content[5 + length :] == b"\x80\0\0\0\x10grpc-status: 0\r\n"
            await running.stop()


async def test_a_message_that_is_said_to_be_JSON_is_not_read() -> None:
    fields = {"content-type": "application/grpc+json", "te": "trailers"}
    with trio.fail_after(PATIENCE_SECONDS):
        async with server(*SERVE) as running, client_of("HTTP/2") as client:
            await running.wait_serving()
            address = f"http://127.0.0.1:{running.port}{VERSION.path}"
            answer = await client.post(address, headers=fields, content=b"\0\0\0\0\x02{}")
            status, said = answer.headers["grpc-status"], answer.headers["grpc-message"]
            assert (status, said.partition(";")[0]) == ("12", "content-type 'application/grpc+json' is not supported")
            await running.stop()


async def test_without() -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        async with server(*SERVE, "--web=false") as running:
            await running.wait_serving()
            assert await status(f"http://127.0.0.1:{running.port}/") == 505
            await running.stop()


@pytest.mark.parametrize("how", ["--actor_web_port", "--actor_http_port", "COGMENT_WEB_PROXY_PORT"])
async def test_a_port_for_any_page(how: str) -> None:
    port = free_port()
    flags = (f"{how}={port}",) if how.startswith("-") else ()
    variables = {} if flags else {how: str(port)}
    with trio.fail_after(PATIENCE_SECONDS):
        async with server(*SERVE, *flags, variables=variables) as running:
            await running.wait_serving()
            assert await status(f"http://127.0.0.1:{port}/", host="any.example", origin=PAGE) == 200
            assert await status(f"http://127.0.0.1:{running.port}/", origin=PAGE) == 403
            async with httpx.AsyncClient() as client:
                answer = await client.get(f"http://127.0.0.1:{port}/", headers={"origin": PAGE})
                assert answer.headers["access-control-allow-origin"] == PAGE
                assert json.loads(answer.text)["message"]
            await running.stop()


async def test_tls(tmp_path: Path) -> None:
    party = make_party(tmp_path, "server", "127.0.0.1")
    flags = (f"--trust_chain={party.chain}", f"--private_key={party.key}")
    with trio.fail_after(PATIENCE_SECONDS):
        async with server(*SERVE, *flags) as running:
            context = ssl.create_default_context(cafile=str(party.roots))
            async with httpx.AsyncClient(verify=context) as client:
                answer = await client.get(f"https://127.0.0.1:{running.port}/")
                assert (answer.status_code, answer.http_version) == (200, "HTTP/1.1")
            async with Channel("127.0.0.1", running.port, tls=client_tls(party.roots)) as channel:
                assert (await channel.unary(VERSION, VersionRequest())).versions
            await running.stop()


ENTRANCE = re.compile(r"^dashboard +(http://localhost:\d+)(/enter/\S+) \(once\)$", re.MULTILINE)


async def test_the_address_for_the_administrator() -> None:
    """It works once, also where anybody may call, is in no log, and SIGHUP makes the server print another."""
    with trio.fail_after(PATIENCE_SECONDS):
        async with server(*SERVE) as running, httpx.AsyncClient() as browser:
            await running.wait_serving()
            found = await running.said(ENTRANCE)
            address, path = f"http://127.0.0.1:{running.port}", found[2]
            html = {"accept": "text/html"}
            assert (await browser.get(f"{address}/dashboard", headers=html)).status_code == 401
            assert (await browser.get(address + path)).status_code == 200
            assert (await browser.get(f"{address}/dashboard")).status_code == 200
            home = await browser.get(address, headers=html)
            assert (home.status_code, home.headers["location"]) == (303, "./dashboard")
            async with httpx.AsyncClient() as second:
                used = await second.get(address + path)
            assert used.status_code == 403
            assert "SIGHUP" in used.text
            running.process.send_signal(signal.SIGHUP)
            another = re.compile(rf"{ENTRANCE.pattern}[\s\S]*{ENTRANCE.pattern}", re.MULTILINE)
            found = await running.said(another)
            assert found[4] != path
            async with httpx.AsyncClient() as second:
                assert (await second.get(address + found[4])).status_code == 200
                assert (await second.get(f"{address}/dashboard/api/me")).json()["roles"] == ["admin"]
            await running.stop()
            await running.read_rest()
    assert "/enter/" not in running.err


async def test_with_tokens_no_address_for_the_administrator_is_kept(secret: Path) -> None:
    """What is printed goes to a journal: only a terminal gets an address that lets anybody in."""
    flags = ("--auth=token", f"--auth_secret_file={secret}")
    told = re.compile(r"^dashboard +http://localhost:\d+/dashboard \(asks for a token\)$", re.MULTILINE)
    with trio.fail_after(PATIENCE_SECONDS):
        async with server(*SERVE, *flags) as running:
            await running.wait_serving()
            await running.said(told)
            running.process.send_signal(signal.SIGHUP)
            await running.said(re.compile(rf"{told.pattern}[\s\S]*{told.pattern}", re.MULTILINE))
            await running.stop()
            await running.read_rest()
    assert "/enter/" not in running.err + running.out
