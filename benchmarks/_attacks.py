"""The attacks of `attack.py` by name, and the process that makes one of them.

`python benchmarks/_attacks.py NAME... --port PORT --seconds S --scale X` makes one attack after the other, and writes
what the server answered to each as a line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
from collections.abc import Awaitable, Callable

import _attacks_doors as doors
import _attacks_services as services
import _attacks_trials as trials
import _attacks_web as web
import _attacks_wire as wire
import grpc.aio
from _attack_target import Target

#: An attack is bounded by its numbers, and by the time after which it is cancelled.
ATTACKS: dict[str, Callable[[Target], Awaitable[None]]] = {
    attack.__name__: attack
    for attack in (
        services.start_with_tarpits,
        services.starts_with_tarpits,
        services.start_with_clients,
        services.many_trials,
        services.large_trials,
        services.ended_trials,
        services.huge_replies,
        services.many_ids,
        services.deaf_watchers,
        services.wildcard_messages,
        services.wildcard_messages_unread,
        services.messages_unread,
        services.buffered_ticks,
        services.large_ticks,
        trials.actions_under_way,
        trials.said_to_nobody,
        trials.samples_under_way,
        trials.outboxes_of_many,
        trials.observations_unread,
        trials.rewards_unread,
        trials.wide_rewards,
        trials.wide_samples,
        services.waiting_uploads,
        services.cached_uploads,
        services.slow_transfers,
        services.samples_unread,
        services.samples_unread_by_pages,
        services.registrations,
        wire.connections_of_resets,
        wire.small_calls,
        wire.small_calls_unread,
        wire.silent_connections,
        wire.brief_connections,
        wire.open_calls,
        wire.half_messages,
        wire.large_metadata,
        wire.compressed_bombs,
        wire.deep_messages,
        wire.wide_messages,
        wire.header_floods,
        wire.control_floods,
        wire.reflections_unread,
        web.half_messages_by_pages,
        web.half_messages_by_websockets,
        web.unread_by_page_sockets,
        web.observations_unread_by_pages,
        web.pings_unread,
        web.crumbs_by_websockets,
        web.pieces_by_websockets,
        web.chunks_by_pages,
        web.requests_unread,
        web.requests_by_pages,
        web.pipelined_behind_a_call,
        web.small_calls_by_pages,
        web.slow_heads,
        web.dashboards,
        doors.worlds_left,
        doors.lobby_links,
        doors.lobby_people,
        doors.experiment_people,
        doors.rest_seats,
        doors.observations_unread_by_rest,
        doors.observations_unread_by_agents,
        doors.openenv_sessions,
    )
}
#: Those during which the neighbour's transfers must succeed, too.
TRANSFERS = {"slow_transfers", "waiting_uploads", "cached_uploads"}
#: Those that go to a server with every door, where a newcomer must find what it wants.
DOORS = frozenset(doors.HONEST)
#: On a machine with few processors the attacker must not take the server's time, but the server's work for it may.
NICENESS = 10


async def run(name: str, target: Target, patience_s: float) -> None:
    try:
        async with asyncio.timeout(target.seconds + patience_s) as limit:
            target.until_answered(limit)
            try:
                await ATTACKS[name](target)
            except (grpc.aio.AioRpcError, OSError, EOFError) as error:
                # The server has refused something that the rest of the attack needs.
                details = error.details() if isinstance(error, grpc.aio.AioRpcError) else error
                target.count(type(error).__name__, str(details))
    except TimeoutError:
        pass
    print(json.dumps({"outcomes": dict(target.outcomes.most_common(8))}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=sorted(ATTACKS), metavar="NAME")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--scale", type=float, required=True)
    parser.add_argument("--link", default="", help="of a lobby there")
    parser.add_argument(
        "--patience", type=float, default=0.0, metavar="SECONDS", help="more, until something is answered"
    )
    args = parser.parse_args()
    os.nice(NICENESS)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for name in args.names:
        asyncio.run(run(name, Target(args.port, args.scale, args.seconds, args.link), args.patience))
    # What is left of its connections ends with the process, at once.
    os._exit(0)


if __name__ == "__main__":
    main()
