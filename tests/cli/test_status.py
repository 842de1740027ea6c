"""`trio-cogment status`, against services in this process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.cli.client.test_directory import directory
from tests.cli.process import Output, listening, run_here, served
from trio_cogment.api.directory_pb2 import ServiceEndpoint, ServiceType
from trio_cogment.sdk import EnvironmentSession, Participants
from trio_cogment.servers.datastore import Datastore, datastore_services, open_store
from trio_cogment.servers.directory import DirectoryServer, Service
from trio_cogment.servers.model_registry import ModelRegistry, model_registry_services

GRPC, SSL, COGMENT = ServiceEndpoint.GRPC, ServiceEndpoint.GRPC_SSL, ServiceEndpoint.COGMENT


async def status(*arguments: str) -> Output:
    return await run_here("status", *arguments)


async def lines(*arguments: str) -> list[str]:
    output = await status(*arguments)
    assert (output.code, output.err) == (0, "")
    return output.out.splitlines()


@asynccontextmanager
async def registry(folder: Path) -> AsyncIterator[str]:
    async with (
        ModelRegistry(folder) as found,
        listening(*model_registry_services(found)) as endpoint,
    ):
        yield endpoint


async def test_one_service(tmp_path: Path) -> None:
    async with registry(tmp_path) as endpoint:
        where = f"--endpoint={endpoint}"
        assert await lines(where, "--type=modelregistry") == ["modelregistry"]
        assert await lines(where, "nb_models", "no_such") == ["modelregistry [nb_models:0]"]  # it was found out
        [line] = await lines(where, "--type=modelregistry", "*")
        assert line.startswith("modelregistry [nb_models:0] [overall_load:")
        assert json.loads((await lines(where, "nb_models", "--console_output=json"))[0]) == {
            "type": "modelregistry",
            "statuses": {"nb_models": "0"},
        }
        without = await status(where, "--type=datastore", "nb_models")
        assert (without.code, without.out) == (1, "")
        assert without.err.startswith(f"trio-cogment: datastore at {endpoint}: UNIMPLEMENTED")
        other = await status(where, "--type=other")
        assert (other.code, other.err) == (
            1,
            f"trio-cogment: other at {endpoint}: a service of type other has no statuses\n",
        )
    gone = await status(where, "--timeout=100ms", "nb_models")
    assert (gone.code, gone.out) == (1, "")
    assert gone.err.startswith(f"trio-cogment: the service at {endpoint} cannot be reached: ")
    assert gone.err.endswith(": Connection refused; waited 0.1 s (--timeout)\n")
    as_json = await status(where, "--timeout=100ms", "--json")
    assert (as_json.code, as_json.err) == (1, "")
    assert json.loads(as_json.out)["error"].startswith(f"the service at {endpoint} cannot be reached: ")


async def test_all_services_of_one_port(tmp_path: Path) -> None:
    async with (
        ModelRegistry(tmp_path) as models,
        open_store("memory:", durability="full", memory_bytes=2**30) as store,
        Datastore(store) as trials,
        listening(*model_registry_services(models), *datastore_services(trials)) as endpoint,
    ):
        where = f"--endpoint={endpoint}"
        assert await lines(where, "nb_models") == ["datalog", "datastore", "modelregistry [nb_models:0]"]
        [line] = await lines(where, "nb_models", "--console_output=json")
        services: list[dict[str, Any]] = [{"type": kind, "statuses": {}} for kind in ("datalog", "datastore")]
        services.append({"type": "modelregistry", "statuses": {"nb_models": "0"}})
        assert json.loads(line) == {**services[0], "services": services}


async def enter(server: DirectoryServer, kind: int, protocol: int, host: str, port: int, **properties: str) -> int:
    service = Service(kind=kind, protocol=protocol, host=host, port=port, properties=properties)
    return (await server.register(service, permanent=True))[0]


async def test_everybody_in_a_directory(tmp_path: Path) -> None:
    async def world(session: EnvironmentSession) -> None:
        raise NotImplementedError

    participants = Participants()
    participants.register_environment(world)
    async with (
        directory() as (server, where),
        registry(tmp_path) as models,
        served(participants) as environment,
    ):
        ports = [int(endpoint.rpartition(":")[2]) for endpoint in (models, environment)]
        other = await enter(server, ServiceType.OTHER_SERVICE, GRPC, "h", 1)
        actor = await enter(server, ServiceType.ACTOR_SERVICE, COGMENT, "client", 0)
        ssl = await enter(server, ServiceType.DATALOG_SERVICE, SSL, "h", 2, b="2", a="1")
        gone = await enter(server, ServiceType.DATASTORE_SERVICE, GRPC, "127.0.0.1", 1)
        kept = await enter(server, ServiceType.MODEL_REGISTRY_SERVICE, GRPC, "127.0.0.1", ports[0])
        env = await enter(server, ServiceType.ENVIRONMENT_SERVICE, GRPC, "127.0.0.1", ports[1], zone="x")

        found = await lines(where, "nb_entries", "nb_models")
        assert found[0] == "directory [nb_entries:6]"
        assert found[1:3] == [f"[{env}]", f"[{kept}] [nb_models:0]"]
        assert found[3].startswith(f"[{gone}] ::: UNAVAILABLE")
        assert found[4].startswith(f"[{ssl}] ::: it expects TLS")
        assert found[5:] == [
            f"[{actor}] ::: it is a client actor, which cannot be asked",
            f"[{other}] ::: a service of type other has no statuses",
        ]
        for flags, expected in (
            (("-v",), f"[{ssl} -- grpc://h:2 -- ssl] ::: "),
            (("-vv",), f"[{ssl} -- grpc://h:2 -- ssl -- datalog] ::: "),
            (("-v", "-v", "-v"), f"[{ssl} -- grpc://h:2 -- ssl -- datalog -- permanent] ::: "),
            (("-vvvv",), f"[{ssl} -- grpc://h:2 -- ssl -- datalog -- permanent -- a = 1, b = 2] ::: "),
        ):
            assert (await lines(where, *flags))[4].startswith(expected)
        for endpoint, number in (
            ("cogment://discover/environment?zone=x", env),
            (f"cogment://discover/service?__id={kept}", kept),
            ("cogment://discover?zone=x", env),
        ):
            assert (await lines(where, f"--endpoint={endpoint}"))[1:] == [f"[{number}]"]
        assert await lines(where, "--type=modelregistry") == ["directory", f"[{kept}]"]
        assert await lines(where, "--endpoint=cogment://discover?zone=x&__authentication-token=t") == ["directory"]
        [line] = await lines(where, "nb_models", "--endpoint=cogment://discover/modelregistry", "--console_output=json")
        assert json.loads(line) == {
            "directory": {"statuses": {}},
            "services": [
                {
                    "endpoint": {"protocol": "GRPC", "host": "127.0.0.1", "port": ports[0]},
                    "serviceId": str(kept),
                    "details": {"type": "MODEL_REGISTRY_SERVICE", "properties": {}},
                    "permanent": True,
                    "statuses": {"nb_models": "0"},
                }
            ],
        }


async def test_a_directory_that_is_not_there_is_an_error() -> None:
    output = await status("--directory_endpoint=grpc://127.0.0.1:1", "--timeout=100ms")
    assert (output.code, output.out) == (1, "")
    assert output.err == (
        "trio-cogment: the directory at grpc://127.0.0.1:1 cannot be reached: "
        "cannot connect to 127.0.0.1:1: Connection refused; waited 0.1 s (--timeout)\n"
    )
    for flag in ("--endpoint=cogment://client", "--endpoint=nonsense", "--directory_endpoint=cogment://discover"):
        output = await status(flag)
        assert (output.code, output.out, output.err.count("\n")) == (1, "", 1)
        assert flag.partition("=")[0] in output.err
