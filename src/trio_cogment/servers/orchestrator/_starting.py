"""The start of a trial: its rules, its pre-trial hooks, and the participants and the data log that it names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import trio

from trio_cogment.api.common_pb2 import SerializedMessage, TakenUp, TrialParams
from trio_cogment.api.hooks_pb2 import PreTrialParams
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.endpoints import CLIENT, parse_endpoint
from trio_cogment.base.errors import RpcError, UnavailableError
from trio_cogment.base.services import ACTOR_CLASS, IMPLEMENTATION, SERVICES, TRIAL_ID, USER_ID, ServiceKind
from trio_cogment.rpc import methods_of
from trio_cogment.servers.orchestrator._connections import Connections, Target
from trio_cogment.trial import ENVIRONMENT, MAX_HELD_BYTES, MAX_HELD_MESSAGES, TrialRules

# Rules of trials: the settings of an orchestrator as their machines take them.


def rules_of(config: OrchestratorConfig) -> TrialRules:
    """Return what the settings mean to the machine of a trial."""
    return TrialRules(
        soft_end_patience_seconds=config.soft_end_patience_seconds,
        environment_init_timeout_seconds=config.environment_init_timeout_seconds,
        environment_ack_timeout_seconds=config.environment_ack_timeout_seconds,
        actor_ack_timeout_seconds=config.actor_ack_timeout_seconds,
        heartbeat_seconds=config.heartbeat_seconds,
        # What waits for a participant fills its outbox at once when it comes, and must not overflow it; half of the
        # bytes are left for what it is sent besides.
        max_held_messages=min(MAX_HELD_MESSAGES, config.max_outbox_messages),
        max_held_bytes=min(MAX_HELD_BYTES, config.max_outbox_bytes // 2),
        max_said_bytes_per_tick=config.max_tick_messages_bytes,
        max_held_back_bytes=config.max_held_back_bytes,
        checkpoint_ticks=config.checkpoint_ticks,
        checkpoint_seconds=config.checkpoint_seconds,
    )


# Pre-trial hooks: each gets what the one before made, and its reply replaces the parameters whole.

ON_PRE_TRIAL = methods_of(SERVICES[ServiceKind.PRE_TRIAL_HOOK].descriptor())["OnPreTrial"]


async def run_hooks(
    connections: Connections,
    endpoints: Sequence[str],
    params: TrialParams,
    *,
    trial_id: str,
    user_id: str,
    timeout_seconds: float,
) -> TrialParams:
    """Send the parameters through every hook, in order, and return the result.

    Each is looked for again, so that a hook or a directory that was away once is not missed indefinitely.

    Raises:
        EndpointError: a hook's endpoint is none.
        FailedPreconditionError: nobody serves a hook.
        UnavailableError: a hook cannot be reached, failed, or took too long, or the directory did; the text names it.
    """
    metadata = ((TRIAL_ID, trial_id), (USER_ID, user_id), *connections.authorization(trial_id))
    for number, endpoint in enumerate(endpoints):
        field_name = f"pre_trial_hooks[{number}]"
        # As it was read, not as it was written: a token in it is the operator's, and whoever starts a trial sees this.
        name = f"pre-trial hook {number + 1} ({parse_endpoint(endpoint, field_name=field_name)})"
        target = await connections.resolve(endpoint, ServiceKind.PRE_TRIAL_HOOK, field_name)
        assert target is not None
        try:
            with trio.fail_after(timeout_seconds):
                async with connections.open(target) as opener:
                    reply = await opener.unary(ON_PRE_TRIAL, PreTrialParams(params=params), metadata=metadata)
        except trio.TooSlowError:
            raise UnavailableError(f"{name}: no reply in {timeout_seconds:g} s") from None
        except RpcError as error:
            raise UnavailableError(f"{name}: {error}") from error
        params = reply.params
    return params


#: This many endpoints are resolved in one go.
_ACTORS_PER_CHECKPOINT = 100


@dataclass(frozen=True, slots=True)
class Given:
    """What whoever starts a trial has given; see `Orchestrator.start_trial`."""

    params: TrialParams | None
    trial_config: SerializedMessage | None
    reach: str | None
    taken_up: TakenUp | None = None
    attempt: int = 0

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


def same_endpoint(one: str, other: str) -> bool:
    """Return whether two endpoints of servers are the same by their text; an empty one is no other's."""
    if not (one.strip() and other):
        return False
    return parse_endpoint(one) == parse_endpoint(other)


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
