"""Replies that describe trials: how large one may be, and all that one peer has not been sent yet."""

from __future__ import annotations

from functools import partial
from typing import Any

import grpc
import pytest
import trio
import trio.testing

from tests.helpers import bench, counted_rounds, params_of
from trio_cogment.api.orchestrator_pb2 import TrialInfoReply, TrialInfoRequest
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.errors import ResourceExhaustedError
from trio_cogment.rpc import open_listeners, serve
from trio_cogment.servers.orchestrator import orchestrator_services
from trio_cogment.servers.orchestrator._services import FREE_BYTES, ReplyRoom, replies_ledger

KIBIBYTE = 1024


def test_a_part_of_any_size_fits_and_then_so_many_bytes() -> None:
    config = OrchestratorConfig(max_info_reply_bytes=100)
    with ReplyRoom(replies_ledger(), "a", config) as room:
        room.take(1000)
        with pytest.raises(ResourceExhaustedError, match=r"\(max_info_reply_bytes\), the first 1 of them fit"):
            room.take(1)
    with ReplyRoom(replies_ledger(), "a", config) as room:
        room.take(60)
        room.take(40)
        with pytest.raises(ResourceExhaustedError, match="the first 2 of them fit"):
            room.take(1)


def test_what_is_being_sent_counts_for_its_peer_until_it_is_sent() -> None:
    ledger = replies_ledger()
    config = OrchestratorConfig(max_peer_replies_bytes=100 * KIBIBYTE)
    with ReplyRoom(ledger, "a", config) as first:
        first.take(90 * KIBIBYTE)
        with ReplyRoom(ledger, "a", config) as second:
            second.take(FREE_BYTES)  # a little is free
            with pytest.raises(ResourceExhaustedError, match="max_peer_replies_bytes"):
                second.take(30 * KIBIBYTE)
        for other in ("b", ""):
            with ReplyRoom(ledger, other, config) as third:
                third.take(90 * KIBIBYTE)
    assert not ledger.accounts
    with ReplyRoom(ledger, "a", config) as again:
        again.take(110 * KIBIBYTE)
    assert not ledger.accounts


def test_a_reply_in_parts_counts_each_byte_once() -> None:
    ledger = replies_ledger()
    config = OrchestratorConfig(max_peer_replies_bytes=30 * KIBIBYTE)
    with ReplyRoom(ledger, "a", config) as room:
        room.take(FREE_BYTES)
        for parts in (1, 2, 3):
            room.take(10 * KIBIBYTE)
            assert ledger.used("a") == parts * 10 * KIBIBYTE
        with pytest.raises(ResourceExhaustedError, match="max_peer_replies_bytes"):
            room.take(1)
    assert not ledger.accounts


async def test_over_a_socket_it_is_refused_by_name_and_in_process_it_is_sent() -> None:
    config = OrchestratorConfig(max_info_reply_bytes=100 * KIBIBYTE)
    async with bench(config=config) as table, trio.open_nursery() as nursery:
        params = params_of("a")
        params.actors[0].endpoint = "cogment://client"
        params.properties["p"] = "v" * 60_000
        for trial_id in ("one", "two", "three"):
            await table.controller.start_trial(params, trial_id=trial_id)
        serving = await nursery.start(
            partial(serve, orchestrator_services(table.orchestrator), await open_listeners("127.0.0.1"))
        )

        def ask(*trial_ids: str) -> Any:
            with grpc.insecure_channel(f"127.0.0.1:{serving.port}") as channel:
                get = channel.unary_unary(
                    "/cogmentAPI.TrialLifecycleSP/GetTrialInfo",
                    TrialInfoRequest.SerializeToString,
                    TrialInfoReply.FromString,
                )
                metadata = [("trial-id", trial_id) for trial_id in trial_ids]
                try:
                    return len(get(TrialInfoRequest(), metadata=metadata, timeout=20).trial)
                except grpc.RpcError as error:
                    return error.code().name, error.details()

        code, text = await trio.to_thread.run_sync(ask)
        assert code == "RESOURCE_EXHAUSTED"
        assert "max_info_reply_bytes" in text
        assert await trio.to_thread.run_sync(ask, "two") == 1
        assert len(await table.controller.trial_infos()) == 3
        nursery.cancel_scope.cancel()


async def test_a_crowd_of_trials_is_described_in_turns() -> None:
    """Others have a turn after every fiftieth, so that one who asks for thousands holds nobody up."""
    async with bench() as table:
        params = params_of("a")
        params.actors[0].endpoint = "cogment://client"
        for number in range(150):
            await table.controller.start_trial(params, trial_id=f"t{number}")

        async def rounds_for(count: int) -> int:
            with counted_rounds() as rounds:
                infos = await table.controller.trial_infos([f"t{number}" for number in range(count)])
            assert [info.trial_id for info in infos] == [f"t{number}" for number in range(count)]
            return rounds.count

        none = await rounds_for(1)
        assert [await rounds_for(count) - none for count in (49, 50, 99, 100, 149, 150)] == [0, 1, 1, 2, 2, 3]
        await table.orchestrator.stop()
