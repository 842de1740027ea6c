"""Choice of an actor class's mapping, and the common behaviour of mappings of two sides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.gateways.dm_env_rpc.gateway.mappings.types import kind, kinds
from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.base.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    RemoteProtocolError,
    RpcError,
    StatusCode,
)
from trio_cogment.environments.spec import PLAYER, RL_SPEC
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.annotations import ClassMapping, FieldAnnotation
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.base import SlotMapping
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.choice import (
    check_classes,
    make_mapping,
    needs_first_observation,
)
from trio_cogment.gateways.dm_env_rpc.gateway.profile import Profile
from trio_cogment.gateways.dm_env_rpc.gateway.templates import WorldTemplate
from trio_cogment.sdk import actor_params, trial_params
from trio_cogment.spaces.tensors import decode_tensor, encode_tensor


def template(name: str, mapping: ClassMapping | None = None, **policies: Any) -> WorldTemplate:
    params = trial_params([actor_params("one", name, endpoint="cogment://client")])
    return WorldTemplate(params=params, classes={} if mapping is None else {name: mapping}, **policies)


def mapping_of(name: str, mapping: ClassMapping | None = None, **policies: Any) -> SlotMapping:
    return make_mapping(kinds(), template(name, mapping, **policies), name, None)


def names(mapping: SlotMapping) -> tuple[dict[int, str], dict[int, str]]:
    specs = mapping.specs
    return (
        {uid: specs.actions[uid].name for uid in sorted(specs.actions)},
        {uid: specs.observations[uid].name for uid in sorted(specs.observations)},
    )


def observed(
    mapping: SlotMapping, message: Any, *uids: int, reward: float = 0.0, discount: float = 1.0
) -> dict[int, Any]:
    response = pb.StepResponse()
    content = message if isinstance(message, bytes) else message.SerializeToString()
    mapping.fill(response, content, uids, reward, discount)
    return {uid: decode_tensor(tensor).tolist() for uid, tensor in response.observations.items()}


def test_fields_are_numbered_in_order_actions_first() -> None:
    mapping = mapping_of("chooser", expose_discount=True)
    assert names(mapping) == (
        {1: "number", 2: "point.x", 3: "point.y", 4: "pass", 5: "beside"},
        {6: "number", 7: "point.x", 8: "point.y", 9: "pass", 10: "beside", 11: "reward", 12: "discount"},
    )
    found = observed(mapping, kind("Choice")(beside=3), 10, 11, 12, 10, reward=0.5, discount=0.0)
    assert found == {10: 3, 11: 0.5, 12: 0.0}
    assert observed(mapping, kind("Choice")(beside=3)) == {}
    content = mapping.action({5: encode_tensor(np.int32(2)), 1: encode_tensor(np.int32(9))})
    assert kind("Choice").FromString(content) == kind("Choice")(number=9, beside=2)
    assert mapping.default_action == b""
    assert mapping.verdict(content) is None
    assert mapping.describes(content)


def test_refused_actions_name_their_uid() -> None:
    mapping = mapping_of("all")
    with pytest.raises(InvalidArgumentError, match="actions: UID 3: an_int32: dtype: expected int32"):
        mapping.action({3: encode_tensor(np.int64(1))})
    with pytest.raises(RpcError, match="actions: UID 16: mood: expected at most 2, got 3") as caught:
        mapping.action({16: encode_tensor(np.int32(3))})
    assert caught.value.code is StatusCode.OUT_OF_RANGE
    with pytest.raises(InvalidArgumentError, match="got UID 1000"):
        mapping.action({1000: encode_tensor(np.int32(3))})
    with pytest.raises(InvalidArgumentError, match=r"got UID 7$"):
        mapping.check_requested([40, 7])


def test_all_actions_can_be_required() -> None:
    mapping = mapping_of("thinker", require_actions=True)
    values: list[Any] = [np.int32(1), np.float32(1), np.float32(1), True]
    whole = {uid: encode_tensor(value) for uid, value in enumerate(values, 1)}
    with pytest.raises(InvalidArgumentError, match=r"expected all of them, and 'always' \(UID 5\) is missing"):
        mapping.action(whole)
    assert mapping.action({**whole, 5: encode_tensor(np.int32(0))})


def test_an_observation_that_is_no_message() -> None:
    with pytest.raises(RemoteProtocolError, match="the environment's observation is not a message of its type"):
        observed(mapping_of("chooser"), b"\xff", 6)
    annotated = ClassMapping(observations={"doubles": FieldAnnotation(shape=(2,))})
    mapping = mapping_of("all", annotated)
    uid = next(uid for uid, name in names(mapping)[1].items() if name == "doubles")
    with pytest.raises(RemoteProtocolError, match=r"the environment's observation: doubles: expected the shape \[2\]"):
        observed(mapping, kind("All")(doubles=[1]), uid)


def test_a_message_as_a_whole() -> None:
    mapping = mapping_of("chooser", ClassMapping(layer="raw"))
    assert names(mapping) == ({1: "action"}, {2: "observation", 3: "reward"})
    message = kind("Choice")(number=4)
    response = pb.StepResponse()
    mapping.fill(response, message.SerializeToString(), [2], 0.0, 1.0)
    tensor = response.observations[2]
    assert (len(tensor.shape), tensor.protos.array[0].type_url) == (0, "type.googleapis.com/kinds.Choice")
    assert mapping.action({1: tensor}) == message.SerializeToString()
    assert mapping.action({}) == b""
    with pytest.raises(RemoteProtocolError):
        observed(mapping, b"\xff", 2)
    tensor.protos.array[0].type_url = "kinds.Point"
    with pytest.raises(
        InvalidArgumentError, match=r"UID 1: action: expected a message kinds\.Choice, got 'kinds\.Point'"
    ):
        mapping.action({1: tensor})


def test_payloads_without_a_type_are_bytes() -> None:
    mapping = mapping_of("nobody has declared it")
    assert names(mapping) == ({1: "action"}, {2: "observation", 3: "reward"})
    assert observed(mapping, b"abc", 2) == {2: list(b"abc")}
    assert mapping.action({1: encode_tensor(np.frombuffer(b"xyz", np.uint8))}) == b"xyz"
    assert (mapping.action({}), mapping.default_action) == (b"", b"")


def test_names_of_the_gateway_are_its_own() -> None:
    with pytest.raises(FailedPreconditionError, match=r"'reward' twice; 'reward' and 'discount' are the gateway's own"):
        mapping_of("clash")
    skipped = ClassMapping(observations={"reward": FieldAnnotation(skip=True)})
    assert names(mapping_of("clash", skipped))[1] == {6: "reward"}


def test_payloads_of_spaces_need_an_observation() -> None:
    assert needs_first_observation(RL_SPEC, template(PLAYER), PLAYER)
    assert not needs_first_observation(RL_SPEC, template(PLAYER, ClassMapping(layer="raw")), PLAYER)
    assert not needs_first_observation(kinds(), template("all"), "all")


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        ({"nobody": ClassMapping()}, "classes: expected some of 'all', 'chooser'"),
        (
            {"all": ClassMapping(layer="native")},
            r"classes\.all\.layer: native payloads are actions and observations of",
        ),
        ({"all": ClassMapping(actions={"x": FieldAnnotation()})}, r"classes\.all\.actions: x: kinds\.All has no such"),
        (
            {"all": ClassMapping(layer="raw", observations={"mood": FieldAnnotation()})},
            r"classes\.all\.observations: expected no annotations: the message is one tensor",
        ),
    ],
)
def test_annotations_are_checked_with_the_profile(classes: dict[str, ClassMapping], expected: str) -> None:
    with pytest.raises(InvalidArgumentError, match=expected):
        check_classes(kinds(), classes)
    params = template("all").params
    with pytest.raises(InvalidArgumentError, match=f"template 'default': {expected}"):
        Profile.of(params, spec=kinds(), classes=classes)
    with pytest.raises(InvalidArgumentError, match=expected):
        Profile.of(params, classes=classes).typed(kinds())


def test_spaces_have_no_annotations() -> None:
    with pytest.raises(InvalidArgumentError, match="expected no annotations: the spaces say it all"):
        check_classes(RL_SPEC, {PLAYER: ClassMapping(actions={"value": FieldAnnotation(skip=True)})})


def test_there_is_no_such_layer() -> None:
    with pytest.raises(InvalidArgumentError, match="layer: expected one of auto, native, reflection, raw; got 'magic'"):
        ClassMapping(layer="magic")  # type: ignore[arg-type]  # what a program may give all the same
