"""A server with every door in one process: gRPC, dm_env_rpc, REST, OpenEnv, a lobby, an experiment; default limits.

`python benchmarks/_attack_stage.py --port PORT --status_file FILE --link_file FILE` writes `R` into the first file when
it listens, and the link of the lobby into the other before. SIGTERM ends it.
"""

from __future__ import annotations

import argparse
import itertools
import signal
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import trio

from trio_cogment import EnvironmentSession, actor_params, open_platform, trial_params
from trio_cogment.access import AccessControl, Keys, Rules
from trio_cogment.api import spaces_pb2
from trio_cogment.base.config import OpenEnvConfig
from trio_cogment.base.endpoints import CLIENT
from trio_cogment.base.host import Host
from trio_cogment.cli.services.garbage import leave, settle
from trio_cogment.cli.services.idle_memory import Tidying, heap_of_process
from trio_cogment.environments.spec import PLAYER, RL_SPEC
from trio_cogment.experiment import ExperimentTrials, experiment_routes, open_experiment, opened_store
from trio_cogment.experiment.definition import Dropout, Experiment, PagePlan, TrialPlan
from trio_cogment.experiment.store import Batch
from trio_cogment.gateways.dm_env_rpc import ClassMapping, DmEnvRpcGateway, Profile, WorldTemplate
from trio_cogment.gateways.openenv.server import opened_application, opened_game
from trio_cogment.gateways.rest.proxy import RestProxy
from trio_cogment.gateways.rest.routes import rest_routes
from trio_cogment.play import Game, LobbyRules, lobby_link, open_play, play_routes
from trio_cogment.rpc import open_listeners, serve
from trio_cogment.spaces import Box, Discrete, Observation
from trio_cogment.web import PageAccess, WebSide

ENVIRONMENT, LOBBY, SEAT = "field", "field", "ann"
#: Of the link of the experiment.
EXPERIMENT_KEY = "study"
#: Gives everybody the same large observation, and waits.
CROWD = "crowd"
#: Of a world of dm_env_rpc with it.
CROWD_SIZE = 300
#: Of an observation: a picture of 256 x 256.
_PICTURE = (256, 256, 3)
_LARGE_BYTES = 4 * 1024 * 1024 - 1000


class Field:
    """An environment of pictures that never ends."""

    name = ENVIRONMENT
    agents = ("player_0",)
    metadata: Mapping[str, Any] = {}
    over = False
    observation_spaces: Mapping[str, Any] = {"player_0": Box(0, 255, _PICTURE, "uint8")}
    action_spaces: Mapping[str, Any] = {"player_0": Discrete(2)}

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> Mapping[str, Observation]:
        return self._seen(0)

    def step(self, actions: Mapping[str, Any]) -> Mapping[str, Observation]:
        return self._seen(1)

    def _seen(self, value: int) -> Mapping[str, Observation]:
        return {"player_0": Observation(np.full(_PICTURE, value, "uint8"))}

    def frame(self) -> None:
        return None

    def close(self) -> None:
        pass


async def crowd(session: EnvironmentSession[Any, Any, Any]) -> None:
    observation = spaces_pb2.Observation()
    observation.value.raw_data = bytes(_LARGE_BYTES)
    await session.start([("*", observation)])
    async for _ in session.all_events():
        pass


async def main(args: argparse.Namespace) -> None:
    host, ids, config = Host(), itertools.count(), OpenEnvConfig()
    signing = AccessControl(Rules(keys=Keys((bytes(32),))), wall_clock=host.wall_clock, new_id=lambda: f"id{next(ids)}")
    page = PagePlan(name="consent", kind="consent", text="Do you agree?")
    plan = TrialPlan(name="trial", environment="experiment:field")
    # Trials of people who have gone wait for them so long.
    dropout = Dropout(grace_seconds=5)
    study = Experiment(name="study", title="A study", before=[page], trials=[plan], dropout=dropout)
    trials = ExperimentTrials(study, lambda _: Field)
    participants = trials.participants
    participants.register_environment(crowd, CROWD)
    proxy = RestProxy(RL_SPEC, signing=signing, participants=participants)
    seat = actor_params("player_0", PLAYER, endpoint=CLIENT)
    params = trial_params([seat], environment=ENVIRONMENT)
    crowded = [actor_params(f"a{number}", PLAYER, endpoint=CLIENT) for number in range(CROWD_SIZE)]
    large = WorldTemplate(params=trial_params(crowded, environment=CROWD), classes={PLAYER: ClassMapping(layer="raw")})
    gateway = DmEnvRpcGateway(Profile(templates={"default": WorldTemplate(params=params), CROWD: large}))
    access = PageAccess()
    lobby = Game(name=LOBBY, params=params, lobby=LobbyRules())
    stack = ExitStack()
    store = stack.enter_context(opened_store(Path(args.link_file).with_name("experiment.db"), study.name))
    store.write(Batch(meta={"name": study.name, "key": EXPERIMENT_KEY}))
    async with (
        open_platform(participants, extensions=[gateway]) as platform,
        opened_game(Field, platform, config=config) as game,
        opened_application(game, platform, config, asked=False) as application,
        open_play(platform, [lobby]) as server,
        open_experiment(study, trials, server, platform, store) as experiment,
        trio.open_nursery() as nursery,
    ):
        proxy.connect(platform.channel)

        def routes() -> list[Any]:
            openenv = [route for route in application.routes() if route.pattern != "/openapi.json"]
            people = [*play_routes(server, access), *experiment_routes(experiment)]
            return [*people, *rest_routes(proxy), *openenv]

        side = WebSide(routes=routes, access=access)
        listeners = await open_listeners("127.0.0.1", args.port)
        await nursery.start(partial(serve, platform.services, listeners, web=side))
        nursery.start_soon(Tidying(heap_of_process()).run)  # as every server does, and this:
        settle()
        await trio.Path(args.link_file).write_text(lobby_link(access, 3600.0, LOBBY))
        await trio.Path(args.status_file).write_text("R")
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            async for _ in signals:
                leave()
                nursery.cancel_scope.cancel()
    stack.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--port", "--status_file", "--link_file"):
        parser.add_argument(name, required=True, type=int if name == "--port" else str)
    trio.run(main, parser.parse_args())
