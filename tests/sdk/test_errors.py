"""The errors that users of the SDK meet, with their texts; `docs/sdk.md` has a table of them."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.wrappers_pb2 import StringValue, UInt32Value

from trio_cogment import (
    ActorClass,
    ActorSession,
    DatalogSession,
    EnvironmentSession,
    Participants,
    PreTrialSession,
    Spec,
    actor_params,
    open_platform,
    trial_params,
)
from trio_cogment.access import EVERYTHING, Grant, Identity, Role
from trio_cogment.api import common_pb2
from trio_cogment.api.common_pb2 import (
    ActorInitialInput,
    ActorParams,
    ActorRunTrialInput,
    ActorRunTrialOutput,
    CommunicationState,
    Observation,
    SerializedMessage,
    TrialActor,
    TrialParams,
)
from trio_cogment.api.datalog_pb2 import DatalogSample, RunTrialDatalogInput, RunTrialDatalogOutput
from trio_cogment.api.environment_pb2 import ActionSet, EnvInitialInput, EnvRunTrialInput
from trio_cogment.base.config import PlatformConfig
from trio_cogment.base.errors import (
    CogmentError,
    FailedPreconditionError,
    InvalidArgumentError,
    LocalProtocolError,
    PermissionDeniedError,
    RemoteProtocolError,
)
from trio_cogment.base.host import Host
from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.rpc import RpcError, StatusCode, methods_of, open_in_process
from trio_cogment.rpc.metadata import Metadata
from trio_cogment.sdk import Reward
from trio_cogment.sdk._failures import failure_of
from trio_cogment.sdk._participants import trial_of
from trio_cogment.sdk._spec_checks import given_config
from trio_cogment.sdk._stream import receive_init

NORMAL, LAST, END = CommunicationState.NORMAL, CommunicationState.LAST, CommunicationState.END
SPEC = Spec.of(
    ActorClass("number", observation=UInt32Value, action=UInt32Value, config=StringValue),
    environment_config=StringValue,
)
NORA = ActorInitialInput(actor_name="nora", actor_class="number", impl_name="player", env_name="env")
GAME = EnvInitialInput(name="env", impl_name="game", actors_in_trial=[TrialActor(name="nora", actor_class="number")])
#: Bytes that are not a protobuf message: a field that ends early.
BROKEN = b"\x08"


def seen(payload: bytes = b"", tick: int = 0) -> ActorRunTrialInput:
    return ActorRunTrialInput(state=NORMAL, observation=Observation(tick_id=tick, content=payload))


async def conversation(
    participants: Participants, kind: ServiceKind, *messages: Message, trial_id: str = "t"
) -> RpcError | None:
    """Say this to a participant as an orchestrator would; return the error with which it ended the call."""
    method = methods_of(SERVICES[kind].descriptor())["RunTrial"]
    async with (
        open_in_process(Host(), participants.services()) as channel,
        channel.call(method, metadata={"trial-id": trial_id}) as call,
    ):
        try:
            for message in messages:
                await call.send(message)
            await call.done_sending()
            while await call.receive() is not None:
                pass
        except RpcError as error:
            return error
    return None


async def as_actor(
    run: Callable[[ActorSession], Awaitable[None]],
    *messages: ActorRunTrialInput,
    init: ActorInitialInput = NORA,
    spec: Spec = SPEC,
) -> RpcError | None:
    participants = Participants(spec)
    participants.register_actor(run, "player", ["number"] if spec is SPEC else [])
    return await conversation(
        participants, ServiceKind.ACTOR, ActorRunTrialInput(state=NORMAL, init_input=init), *messages
    )


async def as_environment(
    run: Callable[[EnvironmentSession], Awaitable[None]], *messages: EnvRunTrialInput, init: EnvInitialInput = GAME
) -> RpcError | None:
    participants = Participants(SPEC)
    participants.register_environment(run, "game")
    return await conversation(
        participants, ServiceKind.ENVIRONMENT, EnvRunTrialInput(state=NORMAL, init_input=init), *messages
    )


async def never(session: Any) -> None:
    raise AssertionError("it must not run")


async def plays(session: Any) -> None:
    async for _ in session.all_events():
        pass


def in_user_code(
    errors: list[str], kind: type[CogmentError], misuse: Callable[[Any], Awaitable[object]]
) -> Callable[[Any], Awaitable[None]]:
    """Return an implementation that starts, misuses its session, and takes down the error."""

    async def run(session: Any) -> None:
        await session.start()
        with pytest.raises(kind) as caught:
            await misuse(session)
        errors.append(str(caught.value))

    return run


async def test_unknown_implementation_of_an_actor() -> None:
    participants = Participants()
    participants.register_actor(never, "player", ["number"])
    participants.register_actor(never, "other", ["raw", "number"])
    init = ActorInitialInput(actor_name="nora", actor_class="number", impl_name="plyer")
    error = await conversation(participants, ServiceKind.ACTOR, ActorRunTrialInput(state=NORMAL, init_input=init))
    assert error is not None
    assert error.code is StatusCode.NOT_FOUND
    assert error.message == (
        "trial 't', actor 'nora': expected implementation 'plyer' for actor class 'number'; registered in this "
        "program: 'player' (number), 'other' (number, raw). Register it, or correct the implementation or the endpoint "
        "in the trial's parameters"
    )


async def test_unknown_implementation_of_an_environment() -> None:
    participants = Participants(SPEC)
    init = EnvInitialInput(name="env", impl_name="game")
    error = await conversation(participants, ServiceKind.ENVIRONMENT, EnvRunTrialInput(state=NORMAL, init_input=init))
    assert error is not None
    assert error.code is StatusCode.NOT_FOUND
    assert error.message == (
        "trial 't', environment 'env': expected implementation 'game'; registered in this program: none. Register it, "
        "or correct the implementation or the endpoint in the trial's parameters"
    )


async def test_unknown_implementation_within_one_program() -> None:
    async with open_platform() as platform:
        platform.participants.register_environment(never, "game")
        platform.participants.register_actor(never, "player", ["number"])
        params = trial_params([actor_params("nora", "number", implementation="plyer")], environment="game")
        with pytest.raises(RpcError) as caught:
            await platform.controller.start_trial(params, trial_id="t")
    assert caught.value.code is StatusCode.FAILED_PRECONDITION
    assert caught.value.message == (
        "trial 't': actors[0].endpoint (actor 'nora'): cogment://discover/actor?__actor_class=number&"
        "__implementation=plyer: nothing like that is registered in this process (registered: 'player' (number)), and "
        "no directory is configured to look further (--directory_endpoint). Register it, or correct the parameters"
    )


async def test_hook_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(_session: PreTrialSession) -> None:
        raise ValueError("no map\nfor it")

    async with open_platform(config=PlatformConfig(pre_trial_hooks=("cogment://discover",))) as platform:
        platform.participants.register_pre_trial_hook(broken, "maps")
        with pytest.raises(RpcError) as caught:
            await platform.controller.start_trial(trial_id="t")
    assert caught.value.code is StatusCode.UNAVAILABLE
    assert caught.value.message == ("trial 't': pre-trial hook 1 (cogment://discover): UNKNOWN: ValueError: no map")
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.getMessage() == "trial t: pre-trial hook 'maps' failed"
    assert record.exc_info is not None
    assert record.exc_info[1] is not None
    assert traceback.extract_tb(record.exc_info[2])[-1].name == "broken"


async def test_data_log_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    params = TrialParams(actors=[ActorParams(name="nora", actor_class="number")])
    participants = Participants(SPEC)

    async def broken(_session: DatalogSession) -> None:
        raise OSError("disk full")

    participants.register_datalog(broken, "files")
    method = methods_of(SERVICES[ServiceKind.DATALOG].descriptor())["RunTrialDatalog"]
    metadata = {"trial-id": "t", "user-id": "u"}
    async with (
        open_in_process(Host(), participants.services()) as channel,
        channel.call(method, metadata=metadata) as call,
    ):
        await call.send(RunTrialDatalogInput(trial_params=params))
        assert await call.receive() == RunTrialDatalogOutput()
        with pytest.raises(RpcError) as caught:
            await call.receive()
    assert (caught.value.code, caught.value.message) == (StatusCode.UNKNOWN, "OSError: disk full")
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.getMessage() == "trial t: data log 'files' failed"
    assert record.exc_info is not None
    assert traceback.extract_tb(record.exc_info[2])[-1].name == "broken"


async def test_a_data_log_acknowledges_what_it_has_processed() -> None:
    """Each sample when the next one is asked for, and the last one at the end."""
    done: list[str] = []

    class Call:
        left = 2

        async def receive(self) -> Any:
            done.append("asked")
            self.left -= 1
            return None if self.left < 0 else RunTrialDatalogInput(sample=DatalogSample())

        async def send(self, _: Any) -> None:
            done.append("acknowledged")

    call: Any = Call()
    async for sample in DatalogSession(call, "t", "u", TrialParams()):
        assert sample.params == TrialParams()
        done.append("processed")
    assert done == ["asked", "processed", "acknowledged", "asked", "processed", "acknowledged", "asked"]


@pytest.mark.parametrize(("kind", "expected"), [(None, "bytes"), (TrialParams, "TrialParams")])
def test_a_configuration_that_cannot_be_done_without(kind: Any, expected: str) -> None:
    with pytest.raises(FailedPreconditionError, match=f"^the environment: config: expected {expected}, and the trial"):
        given_config(None, kind, "the environment", "environment_config")
    assert given_config(b"", kind, "the environment", "environment_config") == b""


async def test_data_log_whose_stream_breaks_is_not_to_blame(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        async def receive(self) -> None:
            raise RpcError(StatusCode.UNAVAILABLE, "connection reset")

    call: Any = Broken()
    with pytest.raises(RpcError) as caught:
        async for _ in DatalogSession(call, "t", "u", TrialParams()):
            pass
    error = failure_of(caught.value, "t", "data log 'files'", tracebacks=True)
    assert (error.code, error.message, error.trailing_metadata) == (StatusCode.UNAVAILABLE, "connection reset", ())
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "WARNING",
            "trial t: data log 'files': the connection to the orchestrator was lost: UNAVAILABLE: connection reset",
        )
    ]


async def test_action_of_the_wrong_type() -> None:
    errors: list[str] = []

    async def acts(session: ActorSession) -> None:
        async for _ in session.all_events():
            with pytest.raises(InvalidArgumentError) as caught:
                await session.do_action(StringValue(value="7"))
            errors.append(str(caught.value))

    assert await as_actor(acts, seen()) is None
    assert errors == [
        "trial 't', actor 'nora': action: expected UInt32Value, which the spec declares for actor class 'number', got "
        "StringValue; send that type, or correct the spec"
    ]


async def test_observation_of_the_wrong_type() -> None:
    errors: list[str] = []
    misuse = in_user_code(errors, InvalidArgumentError, lambda s: s.produce_observations([("*", StringValue())]))
    assert await as_environment(misuse) is None
    assert errors == [
        "trial 't', environment 'env': observation of 'nora': expected UInt32Value, which the spec declares for actor "
        "class 'number', got StringValue; send that type, or correct the spec"
    ]


async def test_message_and_user_data_of_the_wrong_type() -> None:
    errors: list[str] = []
    await as_actor(in_user_code(errors, InvalidArgumentError, lambda s: s.send_message("hello", "env")))
    await as_actor(in_user_code(errors, InvalidArgumentError, lambda s: s.add_reward(1, 1, "*", user_data={"a": 1})))
    remedy = "put it into one, such as google.protobuf.wrappers_pb2.StringValue"
    assert errors == [
        f"trial 't', actor 'nora': send_message: expected a protobuf message, got str; {remedy}",
        f"trial 't', actor 'nora': add_reward: user_data: expected a protobuf message, got dict; {remedy}",
    ]


async def test_rewards_and_messages_with_arguments_of_the_wrong_type() -> None:
    errors: list[str] = []
    number: Any = "5"
    receiver: Any = 5
    for misuse in (
        lambda s: s.add_reward(number, 1, "*"),
        lambda s: s.add_reward(1, 1, receiver),
        lambda s: s.send_message(StringValue(), ["env", receiver]),
    ):
        assert await as_actor(in_user_code(errors, InvalidArgumentError, misuse)) is None
    numbers = "trial 't', actor 'nora': add_reward: expected numbers as value and confidence, got"
    names = 'expected names as receivers (or "*", or "class.*"), got'
    assert errors == [
        f"{numbers} '5' and 1",
        f"trial 't', actor 'nora': add_reward: {names} 5",
        f"trial 't', actor 'nora': send_message: {names} ['env', 5]",
    ]


async def test_rewards_with_observations_that_cannot_be_sent() -> None:
    """Nothing is sent then, not even the rewards before the wrong one."""
    errors: list[str] = []
    number: Any = "5"
    receiver: Any = 5
    fine = [("*", UInt32Value())]
    for wrong in (Reward("*", number), Reward(receiver, 1), Reward("*", 1, user_data=number)):
        rewards = [Reward("*", 1), wrong]
        for misuse in (
            lambda s, rewards=rewards: s.produce_observations(fine, rewards),
            lambda s, rewards=rewards: s.end(fine, rewards),
        ):
            assert await as_environment(in_user_code(errors, InvalidArgumentError, misuse)) is None
    who = "trial 't', environment 'env': rewards:"
    assert errors[::2] == errors[1::2]
    assert errors[::2] == [
        f"{who} expected numbers as value and confidence, got '5' and 1.0",
        f'{who} expected names as receivers (or "*", or "class.*"), got 5',
        f"{who} user_data: expected a protobuf message, got str; put it into one, such as "
        "google.protobuf.wrappers_pb2.StringValue",
    ]


async def test_types_of_one_name_are_told_by_their_full_names() -> None:
    file = FileDescriptorProto(name="other.proto", package="other")
    file.message_type.add(name="UInt32Value")
    pool = DescriptorPool()
    pool.Add(file)
    other: Any = GetMessageClass(pool.FindMessageTypeByName("other.UInt32Value"))
    errors: list[str] = []
    misuse = in_user_code(errors, InvalidArgumentError, lambda s: s.produce_observations([("*", other())]))
    assert await as_environment(misuse) is None
    assert errors == [
        "trial 't', environment 'env': observation of 'nora': expected google.protobuf.UInt32Value, which the spec "
        "declares for actor class 'number', got other.UInt32Value; send that type, or correct the spec"
    ]


async def test_action_without_a_declared_type() -> None:
    errors: list[str] = []

    async def acts(session: ActorSession) -> None:
        async for _ in session.all_events():
            with pytest.raises(InvalidArgumentError) as caught:
                await session.do_action({"move": 1})  # type: ignore[arg-type]  # that is the mistake
            errors.append(str(caught.value))

    assert await as_actor(acts, seen(), spec=Spec()) is None
    assert errors == [
        "trial 't', actor 'nora': action: expected bytes or a protobuf message, got dict; send one, or declare a type "
        "in the spec"
    ]


async def test_payloads_of_another_spec_that_can_be_parsed(caplog: pytest.LogCaptureFixture) -> None:
    """Most bytes are some message; a warning, once, since the sender may only be newer."""
    text = StringValue(value="1").SerializeToString()
    config = SerializedMessage(content=UInt32Value(value=1).SerializeToString())
    init = ActorInitialInput(actor_name="nora", actor_class="number", config=config)
    assert await as_actor(plays, seen(text), seen(text, 1), init=init) is None
    sets = [EnvRunTrialInput(state=NORMAL, action_set=ActionSet(tick_id=tick, actions=[text])) for tick in (0, 1)]
    assert await as_environment(plays, *sets) is None
    remedy = "1; the sender's spec may be another one: use the same cogment.yaml and protos on both sides"
    number = "it has fields that google.protobuf.UInt32Value lacks"
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", f"trial 't', actor 'nora': config: it has fields that google.protobuf.StringValue lacks: {remedy}"),
        ("WARNING", f"trial 't', actor 'nora': observation: {number}: {remedy}"),
        ("WARNING", f"trial 't', environment 'env': action of 'nora': {number}: {remedy}"),
    ]


async def test_observation_and_config_of_another_spec() -> None:
    remedy = "the sender's spec may be another one: use the same cogment.yaml and protos on both sides"
    error = await as_actor(plays, seen(BROKEN))
    assert error is not None
    assert error.message == (f"trial 't', actor 'nora': observation: 1 bytes, not a valid UInt32Value; {remedy}")
    init = ActorInitialInput(actor_name="nora", actor_class="number", config=SerializedMessage(content=BROKEN))
    error = await as_actor(never, init=init)
    assert error is not None
    assert error.message == f"trial 't', actor 'nora': config: 1 bytes, not a valid StringValue; {remedy}"


async def test_action_of_another_spec() -> None:
    action_set = EnvRunTrialInput(state=NORMAL, action_set=ActionSet(actions=[BROKEN]))
    error = await as_environment(plays, action_set)
    assert error is not None
    assert error.message == (
        "trial 't', environment 'env': action of 'nora': 1 bytes, not a valid UInt32Value; the sender's spec may be "
        "another one: use the same cogment.yaml and protos on both sides"
    )


async def test_actor_class_that_the_spec_lacks() -> None:
    remedy = (
        "is not in this program's spec, which declares 'word'; add it to the spec, or correct the trial's parameters"
    )
    error = await as_actor(never, spec=Spec.of(ActorClass("word")))
    assert error is not None
    assert error.message == f"trial 't', actor 'nora': actor class 'number' {remedy}"
    participants = Participants(Spec.of(ActorClass("word")))
    participants.register_environment(never, "game")
    error = await conversation(participants, ServiceKind.ENVIRONMENT, EnvRunTrialInput(state=NORMAL, init_input=GAME))
    assert error is not None
    assert error.message == f"trial 't', environment 'env': actor class 'number' of actor 'nora' {remedy}"


async def test_action_before_the_first_observation() -> None:
    errors: list[str] = []
    assert await as_actor(in_user_code(errors, LocalProtocolError, lambda s: s.do_action(UInt32Value()))) is None
    assert errors == [
        "trial 't', actor 'nora': do_action: expected it after an observation, and none has come yet; act on events of "
        "all_events() that have an observation"
    ]


async def test_action_by_a_plain_function_before_the_first_observation() -> None:
    errors: list[str] = []

    async def run(session: ActorSession) -> None:
        def act(event: Any) -> None:
            with pytest.raises(LocalProtocolError) as caught:
                session.do_action_nowait(UInt32Value())
            errors.append(str(caught.value))

        await session.handle(act)

    hello = common_pb2.Message(tick_id=-1, sender_name="env", receiver_name="nora")
    await as_actor(run, ActorRunTrialInput(state=NORMAL, message=hello))
    assert errors[:1] == [
        "trial 't', actor 'nora': do_action_nowait: expected it after an observation, and none has come yet; act on "
        "events of all_events() that have an observation"
    ]


async def test_sending_done_by_a_plain_function_too_early_or_not_asked_for() -> None:
    errors: list[str] = []

    def misuse(session: ActorSession) -> Callable[[Any], None]:
        def act(_event: Any) -> None:
            with pytest.raises(LocalProtocolError) as caught:
                session.sending_done_nowait()
            errors.append(str(caught.value))

        return act

    async def by_itself(session: ActorSession) -> None:
        await session.handle(misuse(session))

    async def when_asked(session: ActorSession) -> None:
        await session.start(auto_done_sending=False)
        await session.handle(misuse(session))

    for run in (by_itself, when_asked):
        await as_actor(run, seen())
    before = "trial 't', actor 'nora': sending_done_nowait: "
    assert errors == [
        f"{before}the session does it by itself; start it with auto_done_sending=False",
        f"{before}expected it after the final observation; the trial goes on",
    ]


async def test_action_set_of_another_size_than_the_trial_has_actors() -> None:
    error = await as_environment(plays, EnvRunTrialInput(state=NORMAL, action_set=ActionSet(actions=[b""] * 4)))
    assert error is not None
    assert error.message == "trial 't', environment 'env': action set: 4 actions for 1 actors"


async def test_a_message_without_anything_in_it_is_nothing() -> None:
    events: list[Any] = []

    async def run(session: ActorSession) -> None:
        events.extend([event async for event in session.all_events()])

    await as_actor(run, ActorRunTrialInput(state=NORMAL))
    assert events == []


async def test_what_is_in_an_observation() -> None:
    found: list[tuple[int, int, int]] = []

    async def run(session: ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                found.append((event.tick_id, event.observation.tick_id, event.observation.timestamp))

    message = seen(tick=7)
    message.observation.timestamp = 12345
    await as_actor(run, message)
    assert found == [(7, 7, 12345)]


async def test_use_before_the_start() -> None:
    errors: list[str] = []

    async def early(session: ActorSession) -> None:
        with pytest.raises(LocalProtocolError) as caught:
            await session.add_reward(1, 1, "*")
        errors.append(str(caught.value))

    assert await as_actor(early) is None
    assert errors == ["trial 't', actor 'nora': add_reward: the session has not been started; await session.start()"]


async def test_use_after_the_end() -> None:
    errors: list[str] = []

    async def late(session: Any) -> None:
        async for _ in session.all_events():
            pass
        assert session.is_over
        uses = [session.add_reward(1, 1, "*"), session.send_message(StringValue(), "*")]
        if isinstance(session, ActorSession):
            uses.append(session.do_action(UInt32Value()))
        else:
            uses += [session.produce_observations([("*", UInt32Value())]), session.end([("*", UInt32Value())])]
        for use in uses:
            with pytest.raises(LocalProtocolError) as caught:
                await use
            errors.append(str(caught.value))

    assert await as_actor(late, seen(), ActorRunTrialInput(state=END, details="terminated")) is None
    assert await as_environment(late, EnvRunTrialInput(state=END, details="terminated")) is None
    rest = "the trial is over; send before the last event, and leave the loop over all_events() when it ends"
    actor = [f"trial 't', actor 'nora': {what}: {rest}" for what in ("add_reward", "send_message", "do_action")]
    sent = ("add_reward", "send_message", "produce_observations", "end")
    assert errors == [*actor, *(f"trial 't', environment 'env': {what}: {rest}" for what in sent)]


async def test_missing_config() -> None:
    errors: list[str] = []

    async def needs(session: Any) -> None:
        with pytest.raises(FailedPreconditionError) as caught:
            assert session.required_config
        errors.append(str(caught.value))

    await as_actor(needs)
    await as_environment(needs)
    assert errors == [
        "trial 't', actor 'nora': config: expected StringValue, and the trial's parameters have none; set it with "
        "actor_params('nora', 'number', config=...), or in a pre-trial hook",
        "trial 't', environment 'env': config: expected StringValue, and the trial's parameters have none; set it with "
        "trial_params(..., environment_config=...), or in a pre-trial hook",
    ]


async def test_config_that_is_there() -> None:
    configs: list[Any] = []

    async def needs(session: Any) -> None:
        configs.append(session.required_config)

    init = ActorInitialInput(actor_name="nora", actor_class="number")
    # A config that is there may be empty.
    init.config.SetInParent()
    await as_actor(needs, init=init)
    assert configs == [StringValue()]


async def test_sending_done_too_early_or_not_asked_for() -> None:
    errors: list[str] = []

    async def done(session: ActorSession) -> None:
        for auto in (True, False):
            await session.start(auto_done_sending=auto)
            with pytest.raises(LocalProtocolError) as caught:
                await session.sending_done()
            errors.append(str(caught.value))

    assert await as_actor(done) is None
    assert errors == [
        "trial 't', actor 'nora': sending_done: the session does it by itself; start it with auto_done_sending=False",
        "trial 't', actor 'nora': sending_done: expected it after the final observation; the trial goes on",
    ]


# The first message of a stream


class _Stream:
    """A call that says what it was given, and keeps what it is told."""

    def __init__(self, *messages: ActorRunTrialInput) -> None:
        self._messages = list(messages)
        self.told: list[Any] = []

    def __aiter__(self) -> _Stream:
        return self

    async def __anext__(self) -> ActorRunTrialInput:
        if not self._messages:
            raise StopAsyncIteration
        return self._messages.pop(0)

    async def send(self, message: Any) -> None:
        self.told.append(message)


_ALIVE = ActorRunTrialInput(state=CommunicationState.HEARTBEAT)
_FIRST = ActorRunTrialInput(state=CommunicationState.NORMAL, init_input=ActorInitialInput(actor_name="ann"))
_OVER = ActorRunTrialInput(state=CommunicationState.END)


@pytest.mark.parametrize(
    ("messages", "beats", "expected"),
    [
        ((_FIRST, _ALIVE), 0, "ann"),
        ((_ALIVE, _ALIVE, _FIRST), 2, "ann"),
        ((_ALIVE, _OVER, _FIRST), 1, None),
        ((), 0, None),
    ],
)
async def test_a_participant_is_told_its_part_first(
    messages: tuple[ActorRunTrialInput, ...], beats: int, expected: str | None
) -> None:
    stream: Any = _Stream(*messages)
    found = await receive_init(stream, ActorRunTrialOutput)
    assert (None if found is None else found.actor_name) == expected
    assert stream.told == [ActorRunTrialOutput(state=CommunicationState.HEARTBEAT)] * beats


@pytest.mark.parametrize(
    "message",
    [
        ActorRunTrialInput(state=CommunicationState.NORMAL, observation=Observation()),
        ActorRunTrialInput(state=CommunicationState.LAST, init_input=ActorInitialInput()),
    ],
)
async def test_anything_else_first_breaks_the_protocol(message: ActorRunTrialInput) -> None:
    stream: Any = _Stream(message)
    with pytest.raises(RemoteProtocolError, match=r"^expected NORMAL with init_input first$"):
        await receive_init(stream, ActorRunTrialOutput)


@pytest.mark.parametrize(
    ("grant", "trial_id", "allowed"),
    [
        (EVERYTHING, "t", True),
        (Grant(name="o", roles=frozenset([Role.ORCHESTRATOR]), trials=("t",)), "t", True),
        (Grant(name="o", roles=frozenset([Role.ORCHESTRATOR]), trials=("t",)), "u", False),
        (Grant(name="a", roles=frozenset([Role.ADMIN]), trials=("t",)), "u", True),
    ],
)
def test_a_call_is_for_the_trials_of_its_token(grant: Grant, trial_id: str, allowed: bool) -> None:
    identity = Identity(account="token:o", local=False, grant=grant)
    call: Any = SimpleNamespace(identity=identity, metadata=Metadata([("trial-id", trial_id)]))
    if allowed:
        assert trial_of(call) == trial_id
    else:
        with pytest.raises(PermissionDeniedError, match=f"^trial {trial_id!r}: not for this caller$"):
            trial_of(call)
