"""The description of the routes, in OpenAPI 3.0.1: the reference's names, and what is added here.

This module is data.
"""

from __future__ import annotations

from typing import Any

#: The field with the token of an actor.
TOKEN_FIELD = "Cogment-Actor-Trial-Token"
TITLE = "Cogment Web Proxy"

_ACTOR, _CONTROL = "Actor", "Trial Lifecycle Control"
_TEXT: dict[str, Any] = {"type": "string"}
_INTEGER_TEXT: dict[str, Any] = {"type": "string", "pattern": "^-?[0-9]+$", "description": "an integer of 64 bits"}
_NUMBER: dict[str, Any] = {"type": "number"}
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
_FLAG: dict[str, Any] = {"type": "boolean"}
_OBJECT: dict[str, Any] = {"type": "object"}
_PAYLOAD: dict[str, Any] = {"type": "object", "description": "a message of the project, in protobuf's JSON form"}
_ENDPOINT: dict[str, Any] = {"type": "string", "description": "cogment://discover..., or cogment://client for an actor"}
_ANY: dict[str, Any] = {"description": "any value, or an object whose @type names a message of the project"}
_TEXTS: dict[str, Any] = {"type": "object", "additionalProperties": _TEXT}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


def _schema(required: tuple[str, ...], **properties: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "object", "properties": properties}
    return {**found, "required": list(required)} if required else found


_TOLD = {
    "tick_id": _INTEGER_TEXT,
    "ended": {"type": "boolean", "description": "the trial is over for this actor; there is no observation"},
    "final": {"type": "boolean", "description": "this is the last observation"},
    "observation": _PAYLOAD,
    "rewards": _list(_ref("RecvReward")),
    "messages": _list(_ref("RecvMessage")),
    "details": {"type": "string", "description": "why the trial was ended hard"},
}

_SCHEMAS: dict[str, Any] = {
    "ErrorResponse": _schema(("message",), message=_TEXT),
    "APIInfoResponse": _schema(
        ("message", "version", "version_hash"), message=_TEXT, version=_TEXT, version_hash=_TEXT
    ),
    "TrialParams": _schema(
        ("environment", "actors"),
        trial_id=_TEXT,
        config=_PAYLOAD,
        properties=_TEXTS,
        max_steps=_COUNT,
        max_inactivity=_COUNT,
        nb_buffered_ticks=_INTEGER_TEXT,
        datalog=_ref("DatalogParams"),
        environment=_ref("EnvironmentParams"),
        actors=_list(_ref("ActorParams")),
    ),
    "DatalogParams": _schema((), endpoint=_ENDPOINT, exclude_fields=_list(_TEXT)),
    "EnvironmentParams": _schema(
        ("implementation",), name=_TEXT, endpoint=_ENDPOINT, implementation=_TEXT, config=_PAYLOAD
    ),
    "ActorParams": _schema(
        ("name", "actor_class"),
        name=_TEXT,
        actor_class=_TEXT,
        endpoint=_ENDPOINT,
        implementation=_TEXT,
        config=_PAYLOAD,
        initial_connection_timeout=_NUMBER,
        response_timeout=_NUMBER,
        optional=_FLAG,
        default_action=_PAYLOAD,
    ),
    "StartTrialResponse": _schema(
        ("message", "trial_id"),
        message=_TEXT,
        trial_id=_TEXT,
        tokens={**_TEXTS, "description": "tokens of the actors that play here, by their names"},
    ),
    "TrialInfo": _schema(
        ("trial_id",),
        trial_id=_TEXT,
        env_name=_TEXT,
        state={"type": "integer", "description": "1 initializing, 2 pending, 3 running, 4 terminating, 5 ended"},
        properties=_TEXTS,
    ),
    "SentReward": _schema(
        ("receiver", "value"),
        tick_id={**_INTEGER_TEXT, "default": "-1"},
        receiver=_TEXT,
        value=_NUMBER,
        confidence={**_NUMBER, "default": 1},
        user_data=_ANY,
    ),
    "SentMessage": _schema(("receiver", "payload"), receiver=_TEXT, payload=_ANY),
    "RecvReward": _schema(
        ("tick_id", "value", "sources"), tick_id=_INTEGER_TEXT, value=_NUMBER, sources=_list(_ref("RecvRewardSource"))
    ),
    "RecvRewardSource": _schema(
        ("sender", "value", "confidence"), sender=_TEXT, value=_NUMBER, confidence=_NUMBER, user_data=_ANY
    ),
    "RecvMessage": _schema(
        ("tick_id", "sender", "receiver", "payload"),
        tick_id=_INTEGER_TEXT,
        sender=_TEXT,
        receiver=_TEXT,
        payload=_ANY,
    ),
    "JoinTrialResponse": _schema(
        ("message", "trial_id", "actor_name", "actor_class", "tick_id", "token"),
        message=_TEXT,
        trial_id=_TEXT,
        actor_name=_TEXT,
        actor_class=_TEXT,
        actor_implementation=_TEXT,
        actor_config=_PAYLOAD,
        token=_TEXT,
        **_TOLD,
    ),
    "ActRequest": _schema(
        ("action",), action=_PAYLOAD, rewards=_list(_ref("SentReward")), messages=_list(_ref("SentMessage"))
    ),
    "ActResponse": _schema(
        ("message", "tick_id", "action"),
        message=_TEXT,
        action=_PAYLOAD,
        sent_rewards=_list(_ref("SentReward")),
        **_TOLD,
    ),
    "MessageResponse": _schema(("message",), message=_TEXT),
}

_STATUS_TEXTS = {
    "400": "The request makes no sense; the message names the field.",
    "401": "The token is missing, or is not valid for this.",
    "403": "Not allowed.",
    "404": "There is no such trial or actor, or its part is over.",
    "409": "The id is taken, somebody has joined, or it is not the actor's turn in this tick.",
    "429": "A limit was reached.",
    "503": "The orchestrator cannot be reached.",
}


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _operation(
    tag: str,
    operation: str,
    summary: str,
    *,
    path: tuple[str, ...] = (),
    token: bool = False,
    body: str = "",
    status: str,
    text: str,
    answer: dict[str, Any],
    errors: tuple[str, ...] = (),
) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _INTEGER_TEXT if name == "tick_id" else _TEXT}
        for name in path
    ]
    if token:
        parameters.append({"name": TOKEN_FIELD, "in": "header", "required": True, "schema": _TEXT})
    found: dict[str, Any] = {"tags": [tag], "operationId": operation, "summary": summary, "parameters": parameters}
    if body:
        found["requestBody"] = {"required": True, "content": _content(_ref(body))}
    found["responses"] = {
        status: {"description": text, "content": _content(answer)},
        **{code: {"description": _STATUS_TEXTS[code], "content": _content(_ref("ErrorResponse"))} for code in errors},
    }
    return found


_SEAT = ("actor_name", "trial_id")


def document(version: str) -> dict[str, Any]:
    """Return the description.

    Args:
        version: of the API.
    """
    act: dict[str, Any] = {
        "path": (*_SEAT, "tick_id"),
        "token": True,
        "status": "200",
        "text": "The next observation, or the end.",
        "answer": _ref("ActResponse"),
        "errors": ("400", "401", "404", "409", "429", "503"),
    }
    return {
        "openapi": "3.0.1",
        "info": {"title": TITLE, "version": version},
        "tags": [{"name": _ACTOR}, {"name": _CONTROL}],
        "paths": {
            "/": {
                "get": _operation(
                    _CONTROL,
                    "getInfo-fm",
                    "What this is.",
                    status="200",
                    text="Names and versions.",
                    answer=_ref("APIInfoResponse"),
                )
            },
            "/controller/trials": {
                "get": _operation(
                    _CONTROL,
                    "listTrials-fm",
                    "List the trials.",
                    status="200",
                    text="The trials.",
                    answer=_list(_ref("TrialInfo")),
                    errors=("401", "403", "503"),
                ),
                "post": _operation(
                    _CONTROL,
                    "startTrial-fm",
                    "Start a trial.",
                    body="TrialParams",
                    status="202",
                    text="It is pending.",
                    answer=_ref("StartTrialResponse"),
                    errors=("400", "401", "403", "409", "429", "503"),
                ),
            },
            "/actor/{actor_name}/{trial_id}": {
                "post": _operation(
                    _ACTOR,
                    "joinTrial-fm",
                    "Join a trial, or come back to it.",
                    path=_SEAT,
                    status="200",
                    text="The first observation, or the present one.",
                    answer=_ref("JoinTrialResponse"),
                    errors=("401", "403", "404", "409", "429", "503"),
                ),
                "delete": _operation(
                    _ACTOR,
                    "leaveTrial-fm",
                    "Leave a trial.",
                    path=_SEAT,
                    token=True,
                    status="202",
                    text="The actor has left.",
                    answer=_ref("MessageResponse"),
                    errors=("401", "404"),
                ),
            },
            "/actor/{actor_name}/{trial_id}/{tick_id}": {
                "post": _operation(_ACTOR, "act-fm", "Act, and wait for what follows.", body="ActRequest", **act),
                "get": _operation(_ACTOR, "actEmpty-fm", "Act with the default action.", **act),
            },
        },
        "components": {"schemas": _SCHEMAS},
    }
