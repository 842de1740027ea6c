"""Cases of a trial datastore, and of the data log on the same port."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import trio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message as ProtobufMessage

from trio_cogment.api.common_pb2 import (
    Action,
    Message,
    Reward,
    RewardSource,
    StatusRequest,
    TrialParams,
    TrialState,
)
from trio_cogment.api.datalog_pb2 import DatalogSample, RunTrialDatalogInput, SampleInfo
from trio_cogment.api.environment_pb2 import ObservationSet
from trio_cogment.api.trial_datastore_pb2 import (
    AddSampleRequest,
    AddTrialRequest,
    DeleteTrialsRequest,
    RetrieveSamplesRequest,
    RetrieveTrialsRequest,
    StoredTrialActorSample,
    StoredTrialSample,
)
from trio_cogment.base.errors import RpcError
from trio_cogment.base.services import ServiceKind
from trio_cogment.conformance._case import Cases
from trio_cogment.conformance._server import Server
from trio_cogment.sdk import actor_params, trial_params

_CASES = Cases("trial_datastore")
CASES = _CASES.all
_case = _CASES.case
_REFERENCE = "Cogment 2.22"
#: A property that makes the trials of a case its own.
_KIT = "conformance"
S = TrialState


def _params(**properties: str) -> TrialParams:
    actors = [
        actor_params("a", "cls", implementation="one"),
        actor_params("b", "cls", implementation="two"),
        actor_params("c", "other", implementation="one"),
    ]
    return trial_params(actors, environment_name="env", properties=properties)


def _sample(tick_id: int = 0, state: TrialState = S.RUNNING, **parts: Any) -> DatalogSample:
    info = SampleInfo(tick_id=tick_id, timestamp=7, state=state)
    observations = ObservationSet(tick_id=tick_id, observations=[b"o1", b"o2"], actors_map=[0, 1, 0])
    actions = [Action(tick_id=tick_id, content=text) for text in (b"x", b"y", b"z")]
    return DatalogSample(info=info, observations=observations, actions=actions, **parts)


def _out_of_sync(tick_id: int) -> DatalogSample:
    reward = Reward(
        tick_id=tick_id, receiver_name="a", sources=[RewardSource(sender_name="env", value=1, confidence=1)]
    )
    return DatalogSample(info=SampleInfo(tick_id=tick_id, out_of_sync=True), rewards=[reward])


async def _log(server: Server, *samples: DatalogSample, params: TrialParams | None = None, user: str = "user") -> str:
    """Log a trial as an orchestrator does, to its end; return its id."""
    trial_id = server.new_id()
    inputs = [RunTrialDatalogInput(sample=sample) for sample in samples]
    await server.read(
        ServiceKind.DATALOG,
        "RunTrialDatalog",
        RunTrialDatalogInput(trial_params=params or _params()),
        *inputs,
        trial_id=trial_id,
        user_id=user,
    )
    return trial_id


async def _trials(server: Server, *trial_ids: str, **options: Any) -> Any:
    request = RetrieveTrialsRequest(trial_ids=trial_ids, **options)
    return await server.ask(ServiceKind.DATASTORE, "RetrieveTrials", request)


async def _add_trial(server: Server, trial_id: str, params: TrialParams | None = None) -> None:
    request = AddTrialRequest(user_id="user", trial_params=params or _params())
    await server.ask(ServiceKind.DATASTORE, "AddTrial", request, trial_id=trial_id)


async def _add_samples(server: Server, trial_id: str, *samples: StoredTrialSample | None) -> None:
    requests = [AddSampleRequest() if sample is None else AddSampleRequest(trial_sample=sample) for sample in samples]
    await server.read(ServiceKind.DATASTORE, "AddSample", *requests, trial_id=trial_id)


async def _read(server: Server, *trial_ids: str, **options: Any) -> list[StoredTrialSample]:
    request = RetrieveSamplesRequest(trial_ids=trial_ids, **options)
    return [each.trial_sample for each in await server.read(ServiceKind.DATASTORE, "RetrieveSamples", request)]


def _payload(sample: StoredTrialSample, actor: StoredTrialActorSample, field: str) -> str:
    return sample.payloads[getattr(actor, field)].decode() if actor.HasField(field) else "none"


# --- logging ---


@_case("DatalogSP.RunTrialDatalog", documented="3 answers")
async def answers_of_the_data_log(server: Server) -> str:
    """Each message of the data log's stream is answered: the parameters, and each sample."""
    requests: list[ProtobufMessage] = [RunTrialDatalogInput(trial_params=_params())]
    requests += [RunTrialDatalogInput(sample=_sample(tick)) for tick in range(2)]
    answers = await server.read(ServiceKind.DATALOG, "RunTrialDatalog", *requests, trial_id=server.new_id())
    return f"{len(answers)} answers"


@_case("DatalogSP.RunTrialDatalog", documented="INVALID_ARGUMENT", reference="INVALID_ARGUMENT")
async def sample_before_the_parameters(server: Server) -> str:
    """The data log's first message has the parameters."""
    first = RunTrialDatalogInput(sample=_sample())
    await server.read(ServiceKind.DATALOG, "RunTrialDatalog", first, trial_id=server.new_id())
    return "OK"


@_case("RunTrialDatalog: trial-id", documented="INVALID_ARGUMENT", reference="INVALID_ARGUMENT")
async def log_of_no_trial(server: Server) -> str:
    """The data log is told of which trial it is."""
    await server.read(ServiceKind.DATALOG, "RunTrialDatalog", RunTrialDatalogInput(trial_params=_params()))
    return "OK"


@_case("RunTrialDatalog: user-id", documented="somebody", reference="log exporter server")
async def user_of_a_logged_trial(server: Server) -> str:
    """A logged trial has the user who started it."""
    trial_id = await _log(server, user="somebody")
    return str((await _trials(server, trial_id)).trial_infos[0].user_id)


@_case("RunTrialDatalog", documented="2 samples, ENDED")
async def stored_when_the_log_ends(server: Server) -> str:
    """What was logged can be read when the data log's call has ended."""
    trial_id = await _log(server, _sample(), _sample(1, S.ENDED))
    info = (await _trials(server, trial_id)).trial_infos[0]
    return f"{info.samples_count} samples, {S.Name(info.last_state)}"


@_case("StoredTrialSample", documented="a: o1 x; b: o2 y; c: o1 z; shared observation")
async def payloads_of_a_sample(server: Server) -> str:
    """A stored sample has, for each actor, the places of its observation and action among the payloads."""
    (sample,) = await _read(server, await _log(server, _sample(0, S.ENDED)))
    said = []
    for name, actor in zip("abc", sample.actor_samples, strict=True):
        said.append(f"{name}: {_payload(sample, actor, 'observation')} {_payload(sample, actor, 'action')}")
    one, _, three = sample.actor_samples
    shared = "shared" if one.observation == three.observation else "copied"
    return f"{'; '.join(said)}; {shared} observation"


@_case(
    "SampleInfo.out_of_sync",
    reference=("2 stored: o1; reward 1", "1 stored: reward 1"),
    ours="1 stored: o1 reward 1",
    row="an out-of-sync sample",
)
async def sample_out_of_sync(server: Server) -> str:
    """What comes late for a tick is added to the tick's sample, and takes nothing from it."""
    trial_id = await _log(server, _sample(), _out_of_sync(0), _sample(1, S.ENDED))
    info = (await _trials(server, trial_id)).trial_infos[0]
    said = []
    for sample in await _read(server, trial_id):
        actor = sample.actor_samples[0]
        if sample.tick_id == 0:
            parts = [_payload(sample, actor, "observation")] if actor.HasField("observation") else []
            parts += [f"reward {actor.reward:g}"] if actor.HasField("reward") else []
            said.append(" ".join(parts))
    return f"{info.samples_count - 1} stored: {'; '.join(said)}"


@_case("StoredTrialInfo.last_state", reference="UNKNOWN", ours="ENDED", row="an out-of-sync sample")
async def ended_stays_ended(server: Server) -> str:
    """A trial that has ended stays so when something comes late for one of its ticks."""
    trial_id = await _log(server, _sample(0, S.ENDED), _out_of_sync(0))
    return S.Name((await _trials(server, trial_id)).trial_infos[0].last_state)


@_case(
    "Reward.receiver_name, RewardSource.confidence",
    reference="a: 2 of env 2 1, env 5 0, noted: value; b: 2 of env 2 1, env 5 0, noted: value; c: none",
    ours="a: 2 of env 2 1, env 5 0, noted: Any; b: 2 of env 2 1, env 5 0, noted: Any; c: none",
    row="user data of rewards, payloads of messages",
)
async def reward_to_a_class(server: Server) -> str:
    """A reward for a class is each of its actors'; sources without confidence are kept, and count nothing."""
    note = AnyMessage(type_url="type.googleapis.com/x.Y", value=b"note")
    sources = [
        RewardSource(sender_name="env", value=2, confidence=1, user_data=note),
        RewardSource(sender_name="env", value=5, confidence=0),
    ]
    rewards = [Reward(receiver_name="cls.*", sources=sources)]
    (sample,) = await _read(server, await _log(server, _sample(0, S.ENDED, rewards=rewards)))
    said = []
    for name, actor in zip("abc", sample.actor_samples, strict=True):
        if not actor.HasField("reward"):
            said.append(f"{name}: none")
            continue
        parts = ", ".join(
            f"{'env' if r.sender == -1 else r.sender} {r.reward:g} {r.confidence:g}" for r in actor.received_rewards
        )
        stored = {sample.payloads[r.user_data] for r in actor.received_rewards if r.HasField("user_data")}
        notes = {note.value: "value", note.SerializeToString(): "Any"}
        noted = " ".join(sorted(notes.get(each, "other") for each in stored))
        said.append(f"{name}: {actor.reward:g} of {parts}, noted: {noted}")
    return "; ".join(said)


@_case(
    "Message.receiver_name",
    reference="a sent to [-1]; heard by nobody",
    ours="a sent to [0, 1, 2]; heard by a b c",
    row="a message to several",
)
async def message_to_all(server: Server) -> str:
    """A message to all actors is stored with each of them."""
    payload = AnyMessage(type_url="type.googleapis.com/x.Y", value=b"hello")
    messages = [Message(sender_name="a", receiver_name="*", payload=payload)]
    (sample,) = await _read(server, await _log(server, _sample(0, S.ENDED, messages=messages)))
    sent = [message.receiver for message in sample.actor_samples[0].sent_messages]
    heard = [name for name, actor in zip("abc", sample.actor_samples, strict=True) if actor.received_messages]
    return f"a sent to {sent}; heard by {' '.join(heard) or 'nobody'}"


@_case("DatalogParams.exclude_fields", documented="stored", may_end=True)
async def sample_without_information(server: Server) -> str:
    """A data log may be sent samples without their `info`: orchestrators can leave it out."""
    sample = _sample()
    sample.ClearField("info")
    trial_id = await _log(server, sample, _sample(1, S.ENDED))
    return "stored" if (await _trials(server, trial_id)).trial_infos[0].samples_count else "not stored"


# --- listing ---


@_case("RetrieveTrialsRequest.trial_ids", documented="in the order of their creation")
async def order_of_trials(server: Server) -> str:
    """Trials are listed in the order of their creation, whatever the order of the ids that are asked for."""
    made = [await _log(server) for _ in range(3)]
    listed = [info.trial_id for info in (await _trials(server, made[2], made[0], made[1])).trial_infos]
    return "in the order of their creation" if listed == made else f"as {[made.index(each) for each in listed]}"


@_case("RetrieveTrialsRequest.properties", documented="only those with all properties")
async def trials_by_properties(server: Server) -> str:
    """Trials are filtered by properties: each has to be there, with an equal value."""
    mark = server.new_id()
    both = await _log(server, params=_params(**{_KIT: mark, "kind": "x", "more": "y"}))
    await _log(server, params=_params(**{_KIT: mark, "kind": "y"}))
    await _log(server, params=_params(**{_KIT: mark}))
    found = [info.trial_id for info in (await _trials(server, properties={_KIT: mark, "kind": "x"})).trial_infos]
    return "only those with all properties" if found == [both] else f"{len(found)} trials"


@_case("RetrieveTrialsRequest.trials_count", documented="pages of 2, 1: each once")
async def pages_of_trials(server: Server) -> str:
    """Trials come in pages of at most `trials_count`; a page's handle is where the next one begins."""
    mark = {_KIT: server.new_id()}
    made = [await _log(server, params=_params(**mark)) for _ in range(3)]
    one = await _trials(server, properties=mark, trials_count=2)
    two = await _trials(server, properties=mark, trials_count=2, trial_handle=one.next_trial_handle)
    listed = [info.trial_id for page in (one, two) for info in page.trial_infos]
    sizes = f"pages of {len(one.trial_infos)}, {len(two.trial_infos)}"
    return f"{sizes}: {'each once' if listed == made else 'others'}"


@_case("RetrieveTrialsReply.next_trial_handle", reference=("the later one", "the first one again"))
async def handle_at_the_end(server: Server) -> str:
    """The handle of an empty page finds the trials that were added later (by 2.22 with a file; with memory, all)."""
    mark = {_KIT: server.new_id()}
    await _log(server, params=_params(**mark))
    handle = (await _trials(server, properties=mark)).next_trial_handle
    handle = (await _trials(server, properties=mark, trial_handle=handle)).next_trial_handle
    later = await _log(server, params=_params(**mark))
    found = [info.trial_id for info in (await _trials(server, properties=mark, trial_handle=handle)).trial_infos]
    return "the later one" if found == [later] else "the first one again" if later in found else "nothing"


@_case("RetrieveTrialsRequest.timeout", reference="waits", ours="at once", row="waiting for trials")
async def all_there_already(server: Server) -> str:
    """Nobody waits for trials by id when all of them are there."""
    made = [await _log(server) for _ in range(2)]
    before = trio.current_time()
    await _trials(server, *made, timeout=4000)
    return "at once" if trio.current_time() - before < 3 else "waits"


@_case("RetrieveTrialsRequest.timeout", documented="waited for")
async def waiting_for_a_trial(server: Server) -> str:
    """A request with a time-out waits for a trial that is not there yet."""
    trial_id = server.new_id()
    found: list[str] = []

    async def wait() -> None:
        reply = await _trials(server, trial_id, timeout=int(server.patience_seconds * 900), trials_count=1)
        found.extend(info.trial_id for info in reply.trial_infos)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await _trials(server)  # a call that is answered after that one was sent
        await _add_trial(server, trial_id)
    return "waited for" if found == [trial_id] else "not found"


@_case("RetrieveTrialsRequest.trials_count", documented="1 trial", may_end=True)
async def count_of_all(server: Server) -> str:
    """However large a count is, the answer is what there is."""
    trial_id = await _log(server)
    return f"{len((await _trials(server, trial_id, trials_count=2**32 - 1)).trial_infos)} trial"


@_case("RetrieveTrialsRequest.trial_handle", documented="INVALID_ARGUMENT", reference="INVALID_ARGUMENT")
async def handle_of_somebody_else(server: Server) -> str:
    """A handle that no page has given is refused."""
    await _trials(server, trial_handle="bogus")
    return "OK"


# --- reading ---


@_case("RetrieveSamples", documented="ticks 0, 1, 2; the end")
async def following_a_trial(server: Server) -> str:
    """Reading a trial that runs yields what there is, then what comes, and ends with the trial."""
    trial_id = server.new_id()
    got: list[int] = []
    # What the samples say is read when they have come.
    async with server.call(ServiceKind.DATALOG, "RunTrialDatalog", trial_id=trial_id) as log:

        async def send(message: RunTrialDatalogInput) -> None:
            await log.send(message)
            await log.receive()

        await send(RunTrialDatalogInput(trial_params=_params()))
        await send(RunTrialDatalogInput(sample=_sample()))
        with trio.move_on_after(server.patience_seconds):
            async with server.call(ServiceKind.DATASTORE, "RetrieveSamples") as reading:
                await reading.send(RetrieveSamplesRequest(trial_ids=[trial_id]))
                await reading.done_sending()
                for tick in (1, 2):
                    got.append((await reading.receive()).trial_sample.tick_id)
                    await send(RunTrialDatalogInput(sample=_sample(tick, S.ENDED if tick == 2 else S.RUNNING)))
                async for reply in reading:
                    got.append(reply.trial_sample.tick_id)
                await log.done_sending()
                return f"ticks {', '.join(map(str, got))}; the end"
    return f"ticks {', '.join(map(str, got))}; no end"


@_case("RetrieveSamplesRequest.trial_ids", reference="UNKNOWN", ours="NOT_FOUND", row="failures of every kind")
async def samples_of_no_trial(server: Server) -> str:
    """Samples of a trial that is not there cannot be read."""
    await _read(server, server.new_id())
    return "OK"


@_case("RetrieveSamplesRequest.trial_ids", documented="nothing", reference="nothing")
async def samples_of_nobody(server: Server) -> str:
    """Reading no trials yields nothing."""
    return "nothing" if not await _read(server) else "samples"


@_case(
    "RetrieveSamplesRequest.actor_classes, actor_implementations",
    documented="actors 0; payloads 0 0 0 0 0",
    reference="actors 0; payloads 0 0 0 0 0",
)
async def filters_that_nobody_passes(server: Server) -> str:
    """An actor has to pass all filters; samples come without the others, whose payloads are empty in place."""
    trial_id = await _log(server, _sample(0, S.ENDED))
    (sample,) = await _read(server, trial_id, actor_classes=["other"], actor_implementations=["two"])
    return f"actors {len(sample.actor_samples)}; payloads {_lengths(sample.payloads)}"


def _lengths(payloads: Iterable[bytes]) -> str:
    return " ".join(str(len(payload)) for payload in payloads)


@_case("RetrieveSamplesRequest.selected_sample_fields", documented="actions, of b alone; payloads 0 0 0 1 0")
async def selected_fields(server: Server) -> str:
    """Only what is asked for is filled in: these fields, of these actors."""
    trial_id = await _log(server, _sample(0, S.ENDED))
    (sample,) = await _read(server, trial_id, actor_names=["b"], selected_sample_fields=[2])
    (actor,) = sample.actor_samples
    fields = [name for name in ("observation", "action", "reward") if actor.HasField(name)]
    who = "b" if actor.actor == 1 else str(actor.actor)
    return f"{', '.join(fields)}s, of {who} alone; payloads {_lengths(sample.payloads)}"


@_case(
    "StoredTrialSampleField",
    reference="UNAVAILABLE",
    ours="INVALID_ARGUMENT",
    row="a request that makes no sense",
    may_end=True,
)
async def field_that_is_none(server: Server) -> str:
    """A field that there is not cannot be selected."""
    await _read(server, await _log(server, _sample(0, S.ENDED)), selected_sample_fields=[99])
    return "OK"


# --- adding and deleting ---


@_case("AddTrial, AddSample", documented="2 samples of user, ENDED")
async def added_samples(server: Server) -> str:
    """A trial and its samples can be added."""
    trial_id = server.new_id()
    await _add_trial(server, trial_id)
    samples = [StoredTrialSample(tick_id=0, state=S.RUNNING), StoredTrialSample(tick_id=1, state=S.ENDED)]
    await _add_samples(server, trial_id, *samples)
    info = (await _trials(server, trial_id)).trial_infos[0]
    read = await _read(server, trial_id)
    return f"{len(read)} samples of {info.user_id}, {S.Name(info.last_state)}"


@_case("AddTrial: trial-id", documented="INVALID_ARGUMENT", reference="INVALID_ARGUMENT")
async def adding_which_trial(server: Server) -> str:
    """Who adds a trial says which."""
    await server.ask(ServiceKind.DATASTORE, "AddTrial", AddTrialRequest(trial_params=_params()))
    return "OK"


@_case("AddSampleRequest.trial_sample", documented="INVALID_ARGUMENT", reference="INVALID_ARGUMENT")
async def sample_of_another_trial(server: Server) -> str:
    """An added sample is of the trial that it is added to."""
    trial_id = server.new_id()
    await _add_trial(server, trial_id)
    await _add_samples(server, trial_id, StoredTrialSample(trial_id=f"{trial_id}-other"))
    return "OK"


@_case("AddSample: trial-id", reference="INTERNAL", ours="NOT_FOUND", row="failures of every kind")
async def adding_to_no_trial(server: Server) -> str:
    """Samples are added to a trial that is there."""
    await _add_samples(server, server.new_id(), StoredTrialSample())
    return "OK"


@_case(
    "AddSampleRequest.trial_sample",
    reference="UNAVAILABLE",
    ours="INVALID_ARGUMENT",
    row="a request that makes no sense",
    may_end=True,
)
async def adding_nothing(server: Server) -> str:
    """A request that adds a sample has one."""
    trial_id = server.new_id()
    await _add_trial(server, trial_id)
    await _add_samples(server, trial_id, None)
    return "OK"


@_case("DeleteTrials", documented="OK, 0 left")
async def deleting(server: Server) -> str:
    """Trials are deleted with their samples; ids of no trial are passed over."""
    trial_id = await _log(server, _sample(0, S.ENDED))
    request = DeleteTrialsRequest(trial_ids=[server.new_id(), trial_id])
    await server.ask(ServiceKind.DATASTORE, "DeleteTrials", request)
    return f"OK, {len((await _trials(server, trial_id)).trial_infos)} left"


@_case(
    "DeleteTrials",
    reference=("DEADLINE_EXCEEDED", "UNAVAILABLE"),
    ours="reader: NOT_FOUND; added again: listed with 1 sample",
    row="a trial is deleted",
    may_end=True,
)
async def deleting_what_is_read(server: Server) -> str:
    """Who reads a trial that is deleted learns it; its id can be used again."""
    trial_id = server.new_id()
    await _add_trial(server, trial_id)
    await _add_samples(server, trial_id, StoredTrialSample(tick_id=0, state=S.RUNNING))
    said = "DEADLINE_EXCEEDED"
    with trio.move_on_after(server.patience_seconds):
        async with server.call(ServiceKind.DATASTORE, "RetrieveSamples") as reading:
            await reading.send(RetrieveSamplesRequest(trial_ids=[trial_id]))
            await reading.done_sending()
            await reading.receive()
            await server.ask(ServiceKind.DATASTORE, "DeleteTrials", DeleteTrialsRequest(trial_ids=[trial_id]))
            try:
                said = "an end" if await reading.receive() is None else "a sample"
            except RpcError as error:
                said = error.code.name
    if said in ("DEADLINE_EXCEEDED", "UNAVAILABLE"):
        return said
    await _add_trial(server, trial_id)
    await _add_samples(server, trial_id, StoredTrialSample(tick_id=0, state=S.ENDED))
    infos = (await _trials(server, trial_id)).trial_infos
    again = f"listed with {infos[0].samples_count} sample" if infos else "not listed"
    return f"reader: {said}; added again: {again}"


@_case("VersionInfo", documented="cogment-api, grpc", reference="none")
async def versions(server: Server) -> str:
    """A service tells at least the versions of the API and of gRPC."""
    return await server.versions(ServiceKind.DATASTORE)


@_case("Status", reference="overall_load")
async def statuses(server: Server) -> str:
    """A service tells its load."""
    reply = await server.ask(ServiceKind.DATASTORE, "Status", StatusRequest(names=["*"]))
    return "overall_load" if "overall_load" in reply.statuses else ", ".join(sorted(reply.statuses))
