"""The table of rights: which role may call what.

Every RPC of every service is a row. What has no row is the administrator's alone, so that a service somebody adds is
closed until it is here. A cell says ALL, or OWN: the call is let in, and its handler sees to it that it reaches only
what the caller owns or its token names. `docs/security.md` has the table as people read it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from functools import cache

from trio_cogment.access.roles import Role
from trio_cogment.base import services as names


class Scope(enum.Enum):
    """What a call may reach."""

    OWN = "own"
    ALL = "all"


#: Somebody without a token or a certificate.
ANONYMOUS = None

Row = Mapping[Role | None, Scope]


def _row(*everything: Role | None, own: Iterable[Role] = ()) -> Row:
    cells: dict[Role | None, Scope] = dict.fromkeys(own, Scope.OWN)
    return {**cells, **dict.fromkeys((Role.ADMIN, *everything), Scope.ALL)}


_ADMIN = _row()
_ANYBODY_KNOWN = _row(*Role)
_OPERATOR, _PARTICIPANT, _OBSERVER = Role.OPERATOR, Role.PARTICIPANT, Role.OBSERVER
_CALLED_BY_ORCHESTRATORS = _row(own=[Role.ORCHESTRATOR])
_READ = _row(_OBSERVER, own=[_OPERATOR])
_SHARED = _row(_OBSERVER, _OPERATOR)
_OWNED = _row(own=[_OPERATOR])
_PLAY = _row(own=[_OPERATOR, _PARTICIPANT, Role.SEAT])
_PLAY_WORLDS = _row(own=[_OPERATOR, _PARTICIPANT])
_WORKER = _row(own=[Role.WORKER])
_RUNS = _row(_OBSERVER)

_ABOUT: Mapping[str, Row] = {"Version": _ANYBODY_KNOWN, "Status": _ANYBODY_KNOWN}

_COGMENT = "cogmentAPI"
_LEGACY = "cogment"

#: By the full name of the service, and the method.
RIGHTS: Mapping[str, Mapping[str, Row]] = {
    f"{_COGMENT}.{names.LIFECYCLE}": {
        "StartTrial": _row(_OPERATOR),
        "TerminateTrial": _OWNED,
        "GetTrialInfo": _READ,
        "WatchTrials": _READ,
        **_ABOUT,
    },
    f"{_COGMENT}.{names.CLIENT_ACTOR}": {"RunTrial": _PLAY, **_ABOUT},
    f"{_COGMENT}.{names.SERVICE_ACTOR}": {"RunTrial": _CALLED_BY_ORCHESTRATORS, **_ABOUT},
    f"{_COGMENT}.{names.ENVIRONMENT}": {"RunTrial": _CALLED_BY_ORCHESTRATORS, **_ABOUT},
    f"{_COGMENT}.{names.PRE_TRIAL_HOOKS}": {"OnPreTrial": _CALLED_BY_ORCHESTRATORS, **_ABOUT},
    f"{_COGMENT}.{names.DATALOG}": {"RunTrialDatalog": _CALLED_BY_ORCHESTRATORS, **_ABOUT},
    f"{_COGMENT}.{names.LOG_EXPORTER}": {"RunTrialDatalog": _CALLED_BY_ORCHESTRATORS, **_ABOUT},
    f"{_COGMENT}.{names.DATASTORE}": {
        "RetrieveTrials": _READ,
        "RetrieveSamples": _READ,
        "AddTrial": _row(_OPERATOR),
        "AddSample": _OWNED,
        "DeleteTrials": _OWNED,
        **_ABOUT,
    },
    # Trials that go on: only a token for all trials of an orchestrator counts, see `_attempts_service`.
    f"trio_cogment.attempts.{names.ATTEMPTS}": dict.fromkeys(
        ("WatchLeft", "TakeOver", "GiveUp", "Release"), _CALLED_BY_ORCHESTRATORS
    ),
    f"{_COGMENT}.{names.MODEL_REGISTRY}": {
        # Operators read each other's models, and change their own.
        "CreateOrUpdateModel": _OWNED,
        "DeleteModel": _OWNED,
        "RetrieveModels": _SHARED,
        "CreateVersion": _OWNED,
        "RetrieveVersionInfos": _SHARED,
        "RetrieveVersionData": _SHARED,
        "VersionUpdate": _SHARED,
        **_ABOUT,
    },
    f"{_COGMENT}.{names.DIRECTORY}": {
        "Register": _row(Role.DIRECTORY),
        "Deregister": _row(own=[Role.DIRECTORY]),
        "Inquire": _ANYBODY_KNOWN,
        **_ABOUT,
    },
    # Runs are programs that the server starts on its machine: who submits one can do there what the server can.
    f"gymgui.trainer.{names.TRAINER}": {
        "SubmitRun": _ADMIN,
        "CancelRun": _ADMIN,
        "ListRuns": _RUNS,
        "WatchRuns": _RUNS,
        "StreamRunSteps": _RUNS,
        "StreamRunEpisodes": _RUNS,
        "Heartbeat": _WORKER,
        "RegisterWorker": _WORKER,
        "ControlStream": _WORKER,
        "PublishRunSteps": _WORKER,
        "PublishRunEpisodes": _WORKER,
        "GetHealth": _ANYBODY_KNOWN,
    },
    # A connection is a player; the profile says which trials there are for it.
    f"dm_env_rpc.v1.{names.DM_ENV_RPC}": {"Process": _PLAY_WORLDS},
    f"{_LEGACY}.{names.LEGACY_TRIAL}": {
        "GetTrialParams": _row(_OPERATOR),
        "Start": _row(_OPERATOR),
        "Join": _OWNED,
        "End": _OWNED,
        "Action": _OWNED,
        "ActionStream": _OWNED,
        "Heartbeat": _OWNED,
        "GiveFeedback": _OWNED,
        "SendMessage": _OWNED,
        "Version": _ANYBODY_KNOWN,
    },
    f"{_LEGACY}.Agent": {
        **dict.fromkeys(("Start", "End", "Decide", "Reward", "OnMessage"), _CALLED_BY_ORCHESTRATORS),
        "Version": _ANYBODY_KNOWN,
    },
    f"{_LEGACY}.Environment": {
        **dict.fromkeys(("Start", "End", "Update", "OnMessage"), _CALLED_BY_ORCHESTRATORS),
        "Version": _ANYBODY_KNOWN,
    },
    f"{_LEGACY}.TrialHooks": {"PreTrial": _CALLED_BY_ORCHESTRATORS, "Version": _ANYBODY_KNOWN},
    f"{_LEGACY}.{names.LEGACY_LOG_EXPORTER}": {"Log": _CALLED_BY_ORCHESTRATORS},
    # A supervisor's or a directory's probe has no token.
    "grpc.health.v1.Health": {
        "Check": _row(ANONYMOUS, *Role),
        "Watch": _ANYBODY_KNOWN,
        "List": _ANYBODY_KNOWN,
    },
    "grpc.reflection.v1.ServerReflection": {"ServerReflectionInfo": _ANYBODY_KNOWN},
    "grpc.reflection.v1alpha.ServerReflection": {"ServerReflectionInfo": _ANYBODY_KNOWN},
}

#: The same by the path of the call.
ROWS: Mapping[str, Row] = {
    f"/{service}/{method}": row for service, methods in RIGHTS.items() for method, row in methods.items()
}


#: What pages show or do that is not a call of a service; what is one has its rights.
PAGE_RIGHTS: Mapping[str, Row] = {
    "dashboard": _READ,
    "logs": _row(_OBSERVER),
    "play": _PLAY,
    # Participants come by the key of the experiment; these are the researchers' pages.
    "experiment": _row(_OBSERVER),
    "experiment_control": _ADMIN,
    # A socket is a player, as in dm_env_rpc.
    "openenv": _PLAY_WORLDS,
}
#: Begins what stands for one of these where the path of a call is expected.
PAGES = "/pages/"


def scope_of(roles: frozenset[Role], path: str) -> Scope | None:
    """Return what somebody with these roles may reach by a call; None: it is refused.

    Args:
        roles: without any it is somebody who is known and may ask servers how they are.
        path: `/package.Service/Method`, or `PAGES` and a name in `PAGE_RIGHTS`.
    """
    if Role.ADMIN in roles:
        return Scope.ALL
    return _scopes(roles).get(path)


@cache  # there are few sets of roles
def _scopes(roles: frozenset[Role]) -> Mapping[str, Scope]:
    scopes: dict[str, Scope] = {}
    pages = {PAGES + name: row for name, row in PAGE_RIGHTS.items()}
    for path, row in {**ROWS, **pages}.items():
        cells = {row[role] for role in roles if role in row}
        if row is _ANYBODY_KNOWN or Scope.ALL in cells or ANONYMOUS in row:
            scopes[path] = Scope.ALL
        elif cells:
            scopes[path] = Scope.OWN
    return scopes


#: What is open to everybody.
OPEN_TO_ANYBODY = frozenset(path for path, row in ROWS.items() if ANONYMOUS in row)
