"""Finding the participants of a trial and its data log, by its parameters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import trio

from trio_cogment.api.common_pb2 import SerializedMessage, TrialParams
from trio_cogment.base.endpoints import CLIENT
from trio_cogment.base.services import ACTOR_CLASS, IMPLEMENTATION, ServiceKind
from trio_cogment.servers.orchestrator._connections import Connections, Target
from trio_cogment.trial import ENVIRONMENT

#: So many endpoints are resolved in one go.
_ACTORS_PER_CHECKPOINT = 100


@dataclass(frozen=True, slots=True)
class Given:
    """What whoever starts a trial has given; see `Orchestrator.start_trial`."""

    params: TrialParams | None
    trial_config: SerializedMessage | None
    reach: str | None

    @property
    def reach_of_endpoints(self) -> str | None:
        """How far the endpoints may lead: those of default parameters, and of the operator's hooks, anywhere."""
        return None if self.params is None else self.reach


def datalog_of(params: TrialParams, *, default: str) -> str:
    """Return the endpoint of the data log of trials with these parameters; empty: they have none.

    Args:
        params: of the trials. An empty endpoint says that there is none, unless there is something to exclude.
        default: the endpoint where they say nothing.
    """
    endpoint: str = params.datalog.endpoint.strip()
    said = params.HasField("datalog") and not params.datalog.exclude_fields
    return endpoint if endpoint or said else default


async def find_everybody(
    connections: Connections, params: TrialParams, reach: str | None
) -> tuple[dict[int, Target | None], Target | None]:
    """Return where each participant is, and the data log; asked for in this order: data log, environment, actors.

    An actor that the directory describes as a client actor is a client actor in `params` from then on.

    Args:
        connections: resolves endpoints.
        params: of the trial.
        reach: of whoever has given them; see `trio_cogment.access.reach_of`.
    """
    resolve = partial(connections.resolve, reach=reach)
    datalog = None
    if params.datalog.endpoint.strip():  # unlike the others, an empty one means none
        datalog = await resolve(params.datalog.endpoint, ServiceKind.DATALOG, "datalog.endpoint")
    environment = await resolve(
        params.environment.endpoint,
        ServiceKind.ENVIRONMENT,
        "environment.endpoint",
        _properties(**{IMPLEMENTATION: params.environment.implementation}),
    )
    targets = {ENVIRONMENT: environment}
    for number, actor in enumerate(params.actors):
        if number % _ACTORS_PER_CHECKPOINT == _ACTORS_PER_CHECKPOINT - 1:
            await trio.lowlevel.checkpoint()
        target = await resolve(
            actor.endpoint,
            ServiceKind.ACTOR,
            f"actors[{number}].endpoint (actor {actor.name!r})",
            _properties(**{ACTOR_CLASS: actor.actor_class, IMPLEMENTATION: actor.implementation}),
        )
        if target is None:
            actor.endpoint = CLIENT
        targets[number] = target
    return targets, datalog


def _properties(**properties: str) -> dict[str, str]:
    return {name: value for name, value in properties.items() if value}
