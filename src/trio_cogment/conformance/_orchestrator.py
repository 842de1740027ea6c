"""Cases of an orchestrator: the control API, and the streams of participants and of the data log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import wraps

import trio

from trio_cogment.api.common_pb2 import StatusRequest, TrialParams, TrialState
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.api.orchestrator_pb2 import TerminateTrialRequest, TrialInfoRequest, TrialListRequest
from trio_cogment.base.endpoints import CLIENT
from trio_cogment.base.errors import RpcError
from trio_cogment.base.services import ServiceKind
from trio_cogment.conformance._case import Cases, Play
from trio_cogment.conformance._server import Server
from trio_cogment.conformance._stage import ENV, LAST, NothingCameError, Stage, staged
from trio_cogment.sdk import actor_params

_CASES = Cases("orchestrator")
CASES = _CASES.all
_case = _CASES.case
_REFERENCE = "Cogment 2.22"
#: How a failed call looks in 2.22, whatever went wrong.
_UNKNOWN = "UNKNOWN"
#: Trials whose changes fill the window of a watcher that does not read.
_FLOOD = 60


def _on_stage(scene: Callable[[Stage], Awaitable[str]]) -> Play:
    @wraps(scene)
    async def play(server: Server) -> str:
        async with staged(server) as stage:
            return await scene(stage)

    return play


def _samples(samples: Sequence[DatalogSample]) -> str:
    return ", ".join(f"{sample.info.tick_id} {TrialState.Name(sample.info.state)}" for sample in samples)


# --- starting ---


@_case("TrialStartRequest.trial_id_requested", reference="started, then an empty id")
@_on_stage
async def taken_id(play: Stage) -> str:
    """The id of an ended trial is taken until the server forgets it: a start with it is answered without an id."""
    first = await play.start(play.params("a"))
    await play.terminate(hard=True)
    await play.reached("ENDED")
    second = await play.start(play.params("a"))
    return f"{'started' if first == play.trial_id else first}, then {second or 'an empty id'}"


@_case(
    "TrialParams.actors",
    reference="UNKNOWN, the id is taken",
    ours="INVALID_ARGUMENT, the id is free",
    row="a start fails",
)
@_on_stage
async def start_without_actors(play: Stage) -> str:
    """A trial needs an actor; a start that fails leaves nothing behind."""
    try:
        await play.start(TrialParams(environment=play.params("a").environment))
    except RpcError as error:
        free = await play.start(play.params("a")) == play.trial_id
        return f"{error.code.name}, the id is {'free' if free else 'taken'}"
    return "started"


@_case(
    "TrialParams.actors",
    reference=_UNKNOWN,
    ours="INVALID_ARGUMENT",
    row="failures of every kind",
)
@_on_stage
async def two_actors_of_one_name(play: Stage) -> str:
    """The names of a trial's actors differ."""
    await play.start(play.params("a", "a"))
    return "started"


@_case("TrialStartRequest.trial_id_requested", documented="a made id")
@_on_stage
async def start_without_an_id(play: Stage) -> str:
    """A trial whose id is not asked for gets one."""
    asked, play.trial_id = play.trial_id, ""
    try:
        made = await play.start(play.params("a"))
    finally:
        play.trial_id = asked
    await play.server.ask(
        ServiceKind.LIFECYCLE, "TerminateTrial", TerminateTrialRequest(hard_termination=True), trial_id=made
    )
    return "a made id" if made else "no id"


@_case("EnvInitialInput, ActorInitialInput", documented="env with a:cls, b:cls; a of cls, env env; b of cls, env env")
@_on_stage
async def introductions(play: Stage) -> str:
    """The first message tells the environment who takes part, and an actor its name, class and environment."""
    await play.start(play.params("a", "b"))
    said = []
    for name in ("a", "b"):
        await (await play.contacted(name)).ready()
        first = (await play[name].next("init_input")).init_input
        said.append(f"{first.actor_name} of {first.actor_class}, env {first.env_name}")
    first = (await (await play.contacted(ENV)).next("init_input")).init_input
    listed = ", ".join(f"{actor.name}:{actor.actor_class}" for actor in first.actors_in_trial)
    return "; ".join([f"{first.name} with {listed}", *said])


# --- waiting for actors ---


@_case("ActorParams.initial_connection_timeout", documented="ENDED", reference="PENDING")
@_on_stage
async def own_time_to_connect(play: Stage) -> str:
    """Each actor has its own time to connect: a required one that does not come in time ends the trial."""
    waits = actor_params("a", "cls", endpoint=CLIENT, initial_connection_timeout_seconds=0.3)
    await play.start(play.params(waits, actor_params("b", "cls", endpoint=CLIENT)))
    await play.reached("ENDED", seconds=3)
    return await play.state()


@_case(
    "ActorParams.optional",
    documented="actions [D], unavailable []",
    reference="env was called after the end",
)
@_on_stage
async def optional_actor_that_never_comes(play: Stage) -> str:
    """A trial whose only actor is optional and does not come runs on its default action."""
    absent = actor_params(
        "a", "cls", endpoint=CLIENT, optional=True, initial_connection_timeout_seconds=0.3, default_action=b"D"
    )
    await play.start(play.params(absent))
    env = await play.contacted(ENV)
    await env.ready()
    if await play.state() == "ENDED":
        return "env was called after the end"
    await env.observe(indexes=[0])
    actions = (await env.next("action set")).action_set
    return f"actions [{actions.actions[0].decode()}], unavailable {list(actions.unavailable_actors)}"


@_case(
    "ActorParams.optional",
    documented="set [a, ], unavailable [1]; the late one got END",
)
@_on_stage
async def optional_actor_that_comes_too_late(play: Stage) -> str:
    """An optional actor that is too late plays no part, nobody waits for its acknowledgement, and it gets its end."""
    late = actor_params("late", "cls", optional=True, initial_connection_timeout_seconds=0.25)
    await play.start(play.params("a", late))
    await (await play.contacted("a")).ready()
    env = await play.contacted(ENV)  # called when the late one has been given up
    await env.ready()
    slow = await play.contacted("late")
    await slow.ready()
    await play["a"].next("init_input")
    await slow.next("init_input")
    await env.observe(indexes=[0, 0])
    await play["a"].next("observation")
    await slow.act(b"late")
    await play["a"].act(b"a")
    actions = (await env.next("action set")).action_set
    await play.terminate()
    await env.observe(indexes=[0, 0])
    await play["a"].next("observation")
    await play["a"].act()
    await env.next("LAST")
    await env.observe(indexes=[0, 0])
    await play.acknowledge("a")
    texts = ", ".join(action.decode() for action in actions.actions)
    got = ", ".join(await slow.ended())
    return f"set [{texts}], unavailable {list(actions.unavailable_actors)}; the late one got {got}"


@_case("ClientActorSP.RunTrial", reference=_UNKNOWN, ours="NOT_FOUND", row="failures of every kind")
@_on_stage
async def client_of_no_trial(play: Stage) -> str:
    """A client cannot join a trial that is not there."""
    return await play.joined("a")


@_case("ClientActorSP.RunTrial", documented="accepted", reference="accepted")
@_on_stage
async def client_by_class(play: Stage) -> str:
    """A client may ask for a class, and gets one of its places."""
    await play.start(play.params(actor_params("a", "cls", endpoint=CLIENT)))
    return await play.joined(actor_class="cls")


@_case("ClientActorSP.RunTrial", reference=_UNKNOWN, ours="FAILED_PRECONDITION", row="failures of every kind")
@_on_stage
async def taken_place(play: Stage) -> str:
    """A client's place is given once."""
    await play.start(play.params(*(actor_params(name, "cls", endpoint=CLIENT) for name in ("a", "b"))))
    await play.joined("a")
    first = play["a"]
    outcome = await play.joined("a")
    play.participants["first"] = first
    return outcome


@_case(
    "Message",
    documented="a message before it joined: welcome",
    reference="kept out: UNKNOWN",
)
@_on_stage
async def message_to_a_client_that_has_not_joined(play: Stage) -> str:
    """A message for a client that has yet to join waits for it, and does not keep it out."""
    await play.start(play.params("a", actor_params("c", "cls", endpoint=CLIENT)))
    await (await play.contacted("a")).ready()
    await play["a"].tell("c", "welcome")
    joined = await play.joined("c")
    if joined != "accepted":
        return f"kept out: {joined}"
    await play["c"].next("init_input")
    message = await play["c"].next("message")
    return f"a message before it joined: {message.message.payload.value.decode()}"


# --- ending ---


@_case("CommunicationState.END", documented="PENDING, ENDED; a: END (details); b: END (details); env was not called")
@_on_stage
async def hard_end_before_all_are_there(play: Stage) -> str:
    """A hard end of a trial that waits for actors skips TERMINATING, and the environment is never called."""
    states = await play.watched()
    await play.start(play.params("a", "b"))
    await (await play.contacted("a")).ready()
    await play.contacted("b")
    await play.terminate(hard=True)
    ends = [f"{name}: {(await play[name].ended())[-1]}" for name in ("a", "b")]
    seen = await states.until_ended()
    called = "called" if ENV in play.participants else "not called"
    return f"{seen}; {'; '.join(ends)}; env was {called}"


@_case(_REFERENCE, reference="soft: PENDING; hard: ENDED; samples 0 ENDED; action ticks [-2]")
@_on_stage
async def silent_environment(play: Stage) -> str:
    """A soft end waits for an environment that has not answered yet, a hard one does not."""
    await play.start(play.params("a"))
    await (await play.contacted("a")).ready()
    await play.contacted(ENV)
    await play.terminate()
    soft = await play.state()
    await play.terminate(hard=True)
    await play.reached("ENDED")
    hard = await play.state()
    samples = await play.sampled(1)
    ticks = [action.tick_id for action in samples[0].actions]
    return f"soft: {soft}; hard: {hard}; samples {_samples(samples)}; action ticks {ticks}"


@_case(
    "CommunicationState, TrialParams.max_steps",
    documented="env: action set 0, LAST, action set 1; a: reward, LAST, observation 2; ENDED at 2; "
    "samples 0 RUNNING, 1 TERMINATING, 2 ENDED",
)
@_on_stage
async def one_step(play: Stage) -> str:
    """After `max_steps` steps everybody gets LAST, the final data, and END."""
    await play.begin(play.params("a", max_steps=1))
    env, actor = play[ENV], play["a"]
    await env.observe(indexes=[0])
    await actor.next("observation")
    await actor.act()
    first = (await env.next("action set")).action_set.tick_id
    await env.observe(indexes=[0])
    await actor.next("observation")
    await env.reward("a", (1, 1))
    await play.fence(ENV, "a")
    await actor.act()
    await env.until("the second action set", lambda message: message.HasField("action_set"))
    of_env = [f"action set {first}", *env.kinds()]
    await env.observe(indexes=[0])
    await actor.until("an observation", lambda message: message.HasField("observation"))
    of_actor = actor.kinds()
    state = await play.acknowledge("a")
    info = await play.info()
    samples = await play.sampled(3)
    return f"env: {', '.join(of_env)}; a: {', '.join(of_actor)}; {state} at {info.tick_id}; samples {_samples(samples)}"


@_case(
    "CommunicationState.LAST", documented="RUNNING, then LAST, action set 0, TERMINATING; a: LAST, observation 1; ENDED"
)
@_on_stage
async def soft_end_within_a_tick(play: Stage) -> str:
    """A soft end takes effect when the tick's actions are complete; the observations that answer them are the last."""
    await play.begin(play.params("a", "b"))
    env, actor = play[ENV], play["a"]
    await env.observe(indexes=[0, 0])
    for name in ("a", "b"):
        await play[name].next("observation")
    await play.terminate()
    before = await play.state()
    await actor.act()
    await play.fence("a", ENV)
    early = env.kinds()
    await play["b"].act()
    await env.until("an action set", lambda message: message.HasField("action_set"))
    then = [*early, *env.kinds()]
    after = await play.state()
    await env.observe(indexes=[0, 0])
    await actor.until("an observation", lambda message: message.HasField("observation"))
    got = actor.kinds()
    return f"{before}, then {', '.join(then)}, {after}; a: {', '.join(got)}; {await play.acknowledge('a', 'b')}"


@_case(
    _REFERENCE,
    reference=("env: action set 1, END", "env: LAST, action set 1, END"),
    ours="env: END",
    row="actions that answer the final observation",
)
@_on_stage
async def actions_after_the_final_observation(play: Stage) -> str:
    """Actions that answer the final observation make no action set."""
    await play.begin(play.params("a"))
    env, actor = play[ENV], play["a"]
    await env.observe(indexes=[0])
    await actor.next("observation")
    await play.terminate()
    await actor.act()
    await env.next("action set")
    await env.observe(indexes=[0])
    await actor.next("observation")
    await actor.act()
    await play.acknowledge("a")
    return f"env: {', '.join(await env.ended())}"


@_case(
    _REFERENCE,
    reference="a: LAST, END (details)",
    ours="a: END",
    row="the environment sends more after its final set",
)
@_on_stage
async def observations_after_the_final_ones(play: Stage) -> str:
    """What an environment sends after its final observations is passed over."""
    await play.begin(play.params("a"))
    env, actor = play[ENV], play["a"]
    await env.observe(indexes=[0])
    await actor.next("observation")
    await actor.act()
    await env.next("action set")
    await env.say(LAST)
    await env.observe(indexes=[0])
    await actor.next("observation")
    await env.observe(indexes=[0])
    await play.acknowledge("a")
    return f"a: {', '.join(await actor.ended())}"


@_case("TerminateTrial: trial-id", documented="OK, OK")
@_on_stage
async def end_of_no_trial(play: Stage) -> str:
    """Ids of no trial are passed over, by requests for an end and for information."""
    await play.terminate()
    info = await play.info()
    return f"OK, {'OK' if info is None else info}"


@_case("TerminateTrial: trial-id", reference=_UNKNOWN, ours="INVALID_ARGUMENT", row="failures of every kind")
@_on_stage
async def end_of_which_trial(play: Stage) -> str:
    """A request for an end says of which trials."""
    await play.server.ask(ServiceKind.LIFECYCLE, "TerminateTrial", TerminateTrialRequest())
    return "OK"


# --- ticks ---


@_case(
    "ActorParams.response_timeout, ActorParams.default_action",
    reference="set [a, , c], unavailable [1]",
)
@_on_stage
async def own_time_to_answer(play: Stage) -> str:
    """Each optional actor has its own time to act; who acts late, but before the set goes out, counts."""
    first = actor_params("a", "cls", optional=True, response_timeout_seconds=0.3, default_action=b"D")
    second = actor_params("b", "cls", optional=True, response_timeout_seconds=2.5)
    await play.begin(play.params(first, second, "c"))
    await play[ENV].observe(indexes=[0, 0, 0])
    await play["a"].next("observation")
    await play["c"].act(b"c")
    await trio.sleep(0.8)
    await play["a"].act(b"a")
    actions = (await play[ENV].next("action set")).action_set
    texts = ", ".join(action.decode() for action in actions.actions)
    return f"set [{texts}], unavailable {list(actions.unavailable_actors)}"


@_case("ActorParams.default_action", documented="set [D, b], default [0], unavailable []")
@_on_stage
async def default_action(play: Stage) -> str:
    """An optional actor that is too slow takes part with its default action, which the sample says."""
    slow = actor_params("a", "cls", optional=True, response_timeout_seconds=0.3, default_action=b"D")
    await play.begin(play.params(slow, "b"))
    await play[ENV].observe(indexes=[0, 0])
    await play["b"].next("observation")
    await play["b"].act(b"b")
    actions = (await play[ENV].next("action set")).action_set
    await play[ENV].observe(indexes=[0, 0])
    (sample,) = await play.sampled(1)
    texts = ", ".join(action.decode() for action in actions.actions)
    return f"set [{texts}], default {list(sample.default_actors)}, unavailable {list(actions.unavailable_actors)}"


@_case(
    _REFERENCE,
    reference="env got END (details)",
    ours="nothing early; set [late, b], unavailable []",
    row="an actor's timeout passes and it answers late",
)
@_on_stage
async def late_action(play: Stage) -> str:
    """A late action of one actor never counts for another."""
    hasty = actor_params("a", "cls", optional=True, response_timeout_seconds=0.3)
    await play.begin(play.params(hasty, "b"))
    env = play[ENV]
    await env.observe(indexes=[0, 0])
    await play["a"].next("observation")
    await trio.sleep(0.8)
    await play["a"].act(b"late")
    try:
        await play.fence("a", ENV)
    except NothingCameError:
        return f"env got {', '.join(env.kinds())}"
    early = ", ".join(env.kinds()) or "nothing"
    await play["b"].act(b"b")
    actions = (await env.next("action set")).action_set
    texts = ", ".join(action.decode() for action in actions.actions)
    return f"{early} early; set [{texts}], unavailable {list(actions.unavailable_actors)}"


@_case(
    _REFERENCE,
    reference="action set 0 without c",
    ours="waits for c",
    row="an actor acts, then vanishes",
)
@_on_stage
async def one_who_acted_and_left(play: Stage) -> str:
    """An actor that acted and left does not count for another one."""
    await play.begin(play.params(actor_params("a", "cls", optional=True), "b", "c"))
    env = play[ENV]
    await env.observe(indexes=[0, 0, 0])
    for name in ("a", "b", "c"):
        await play[name].next("observation")
    await play["a"].act()
    play["a"].leave()
    await play["b"].act(b"b")
    await play.fence("b", ENV)
    early = env.kinds()
    if early:
        return f"{', '.join(early)} without c"
    await play["c"].act(b"c")
    await env.next("action set")
    return "waits for c"


_BURNT = "shown [], at tick 1; the next one is of tick 2"
_GONE = "the server is gone"


def _bad_set(
    name: str, said: str, tick_id: int, indexes: list[int], *, reference: str | tuple[str, ...], may_end: bool
) -> None:
    @_on_stage
    async def play_bad_set(play: Stage) -> str:
        await play.begin(play.params("a", "b"))
        env, actor = play[ENV], play["a"]
        await env.observe(indexes=[0, 0])
        for each in ("a", "b"):
            await play[each].next("observation")
            await play[each].act()
        await env.next("action set")
        try:
            await env.observe(tick_id, indexes=indexes)
            await play.fence(ENV, "a")
        except (RpcError, NothingCameError):
            try:
                await play.info()
            except RpcError:
                return _GONE
            raise
        shown, tick = actor.kinds(), (await play.info()).tick_id
        await env.observe(indexes=[0, 0])
        good = (await actor.next("observation")).observation.tick_id
        return f"shown {shown}, at tick {tick}; the next one is of tick {good}"

    play_bad_set.__name__ = name
    play_bad_set.__doc__ = f"{said} is refused, and costs no tick."
    _case(
        "ObservationSet",
        documented="shown [], at tick 0; the next one is of tick 1",
        reference=reference,
        may_end=may_end,
    )(play_bad_set)


_bad_set(
    "observations_of_another_tick",
    "An observation set of another tick",
    5,
    [0, 0],
    reference=_BURNT,
    may_end=False,
)
_bad_set("too_few_observations", "An observation set for fewer actors", -1, [0], reference=_GONE, may_end=True)
_bad_set(
    "observations_that_are_not_there",
    "An index beyond the observations",
    -1,
    [0, 7],
    # Nobody is shown anything; it may be that nothing follows, either.
    reference=(_BURNT, "a did not get observation"),
    may_end=True,
)


@_case("TrialInfo.latest_observation", documented="RUNNING at 1 with o1, a:cls, env")
@_on_stage
async def information(play: Stage) -> str:
    """Information about a trial has its state, tick, environment, actors and latest observations."""
    await play.begin(play.params("a"))
    env, actor = play[ENV], play["a"]
    for tick in range(2):
        await env.observe(indexes=[0], contents=[f"o{tick}".encode()])
        await actor.next("observation")
        if not tick:
            await actor.act()
            await env.next("action set")
    info = await play.info()
    actors = ", ".join(f"{each.name}:{each.actor_class}" for each in info.actors_in_trial)
    latest = info.latest_observation.observations[0].decode()
    return f"{TrialState.Name(info.state)} at {info.tick_id} with {latest}, {actors}, {info.env_name}"


@_case("ActorRunTrialInput.observation", documented="a: 0 x, b: 0 y; a: 1 y, b: 1 x")
@_on_stage
async def observations_by_index(play: Stage) -> str:
    """Each actor gets the observation that `actors_map` names for it, once a tick."""
    await play.begin(play.params("a", "b"))
    env, seen = play[ENV], []
    for indexes in ([0, 1], [1, 0]):
        await env.observe(indexes=indexes, contents=[b"x", b"y"])
        shown = {name: (await play[name].next("observation")).observation for name in ("a", "b")}
        seen.append(", ".join(f"{name}: {each.tick_id} {each.content.decode()}" for name, each in shown.items()))
        for name in ("a", "b"):
            await play[name].act()
        await env.next("action set")
    return "; ".join(seen)


@_case("ActionSet.actions", documented="tick 0: [1, 2]; tick 1: [1, 2]")
@_on_stage
async def actions_in_order(play: Stage) -> str:
    """An action set has the actions in the order of the actors, whoever acts first."""
    await play.begin(play.params("a", "b"))
    env, sets = play[ENV], []
    for order in ("ab", "ba"):
        await env.observe(indexes=[0, 0])
        for name in ("a", "b"):
            await play[name].next("observation")
        for name in order:
            await play[name].act(b"1" if name == "a" else b"2")
        made = (await env.next("action set")).action_set
        sets.append(f"tick {made.tick_id}: [{', '.join(action.decode() for action in made.actions)}]")
    return "; ".join(sets)


# --- rewards and messages ---


@_case(
    "Reward.tick_id",
    reference="samples 1 out of sync, 0 out of sync; a: reward of 2; sample 2 has rewards of [2]",
)
@_on_stage
async def rewards_for_other_ticks(play: Stage) -> str:
    """A reward for an earlier tick is logged at once, out of sync, and not delivered; one for no tick is dropped."""
    await play.begin(play.params("a"))
    env, actor = play[ENV], play["a"]
    for _ in range(2):
        await env.observe(indexes=[0])
        await actor.next("observation")
        await actor.act()
        await env.next("action set")
    await env.observe(indexes=[0])
    await actor.next("observation")
    await play.sampled(2)
    for tick_id in (2, 1, 0, 3, -2):
        await env.reward("a", (tick_id, 1), tick_id=tick_id)
    await play.fence(ENV, "a")
    late = (await play.sampled(4))[2:4]
    said = ", ".join(f"{each.info.tick_id} {'out of sync' if each.info.out_of_sync else 'full'}" for each in late)
    await actor.act()
    await env.next("action set")
    await env.observe(indexes=[0])
    await actor.until("an observation", lambda message: message.HasField("observation"))
    got = ", ".join(f"reward of {m.reward.value:g}" for m in actor.take() if m.HasField("reward"))
    full = [each for each in (await play.sampled(5)) if not each.info.out_of_sync][-1]
    ticks = [reward.tick_id for reward in full.rewards]
    return f"samples {said}; a: {got}; sample {full.info.tick_id} has rewards of {ticks}"


@_case("Reward.value, RewardSource.confidence", documented="4.5 of env 1, env 8, env 10, y 11, then the observation")
@_on_stage
async def weighted_reward(play: Stage) -> str:
    """A tick's rewards come before the next observation, as one: the mean of the sources, by confidence."""
    await play.begin(play.params("x", "y"))
    env = play[ENV]
    await env.observe(indexes=[0, 0])
    for name in ("x", "y"):
        await play[name].next("observation")
    await env.reward("x", (1, 1), (8, 1), (10, 0))
    await play.fence(ENV, "y")
    await play["y"].reward("x", (11, -1))
    await play["x"].act()
    await play["y"].act()
    await env.next("action set")
    await env.observe(indexes=[0, 0])
    await play["x"].until("an observation", lambda message: message.HasField("observation"))
    message, *rest = play["x"].take()
    sources = ", ".join(f"{source.sender_name} {source.value:g}" for source in message.reward.sources)
    after = "the observation" if len(rest) == 1 and rest[0].HasField("observation") else str(len(rest))
    return f"{message.reward.value:g} of {sources}, then {after}"


@_case(
    "Message.receiver_name",
    documented="*: a b c; cls.*: a b; cls.b: b; *.*: nobody; bogus: nobody; env: env; all from a at 0; all logged",
)
@_on_stage
async def receivers_of_messages(play: Stage) -> str:
    """A message goes at once to whom its receiver names: an actor, those of a class, all, the environment."""
    patterns = ("*", "cls.*", "cls.b", "*.*", "bogus", ENV)
    await play.begin(play.params("a", "b", actor_params("c", "other")))
    await play[ENV].observe(indexes=[0, 0, 0])
    for name in ("a", "b", "c"):
        await play[name].next("observation")
    for pattern in patterns:
        await play["a"].tell(pattern, pattern)
    heard: dict[str, list[str]] = {pattern: [] for pattern in patterns}
    senders = set()
    for name in ("a", "b", "c", ENV):
        await play.fence("a", name)
        for message in play[name].take():
            each = message.message
            heard[each.payload.value.decode()].append(name if each.receiver_name == name else f"?{each.receiver_name}")
            senders.add(f"from {each.sender_name} at {each.tick_id}")
    await play.terminate(hard=True)
    (sample,) = await play.sampled(1)
    logged = [message.receiver_name for message in sample.messages if b"fence" not in message.payload.value]
    said = "; ".join(f"{pattern}: {' '.join(names) or 'nobody'}" for pattern, names in heard.items())
    complete = "all logged" if logged == list(patterns) else f"logged: {logged}"
    return f"{said}; all {', '.join(sorted(senders))}; {complete}"


# --- watching and describing ---


@_case("WatchTrials", documented="PENDING, RUNNING, TERMINATING, ENDED")
@_on_stage
async def states_of_a_trial(play: Stage) -> str:
    """A watcher sees each state of a trial once, in order."""
    states = await play.watched()
    await play.begin(play.params("a"))
    env, actor = play[ENV], play["a"]
    await env.observe(indexes=[0])
    await actor.next("observation")
    await play.reached("RUNNING")
    await play.terminate()
    await actor.act()
    await env.next("action set")
    await env.observe(indexes=[0])
    await actor.next("observation")
    await play.acknowledge("a")
    return await states.until_ended()


@_case("TrialListRequest.filter", documented="PENDING")
@_on_stage
async def watching_one_state(play: Stage) -> str:
    """A watcher that asks for a state is told of the trials that are in it, and of no other states."""
    await play.start(play.params(actor_params("a", "cls", endpoint=CLIENT)))
    await play.reached("PENDING")
    seen: list[str] = []
    with trio.move_on_after(play.server.patience_seconds):
        async with play.server.call(ServiceKind.LIFECYCLE, "WatchTrials") as call:
            await call.send(TrialListRequest(filter=[TrialState.PENDING]))
            await call.done_sending()
            async for entry in call:
                if entry.trial_id == play.trial_id:
                    seen.append(TrialState.Name(entry.state))
                    break
    return ", ".join(seen)


@_case("VersionInfo", documented="cogment-api, grpc", reference="cogment-api, grpc")
@_on_stage
async def versions(play: Stage) -> str:
    """A service tells at least the versions of the API and of gRPC."""
    return await play.server.versions(ServiceKind.LIFECYCLE)


@_case("Status", reference="none for no name; overall_load for *")
@_on_stage
async def statuses(play: Stage) -> str:
    """A service is asked for statuses by name; "*" asks for all, unknown names are passed over."""
    none = await play.server.ask(ServiceKind.LIFECYCLE, "Status", StatusRequest(names=["bogus"]))
    every = await play.server.ask(ServiceKind.LIFECYCLE, "Status", StatusRequest(names=["*"]))
    load = "overall_load" if "overall_load" in every.statuses else ", ".join(every.statuses)
    return f"{', '.join(none.statuses) or 'none'} for no name; {load} for *"


@_case(
    "GetTrialInfo: trial-id",
    documented="this one among all",
)
@_on_stage
async def information_about_all(play: Stage) -> str:
    """A request for information that names no trial is about all that are active."""
    await play.start(play.params("a"))
    reply = await play.server.ask(ServiceKind.LIFECYCLE, "GetTrialInfo", TrialInfoRequest())
    listed = [info.trial_id for info in reply.trial]
    return "this one among all" if listed.count(play.trial_id) == 1 else f"{listed.count(play.trial_id)} times"


@_case("WatchTrials", documented="starts go on", reference="starts hang", may_end=True)
async def watcher_that_does_not_read(server: Server) -> str:
    """A watcher that does not read holds up nobody."""
    async with server.call(ServiceKind.LIFECYCLE, "WatchTrials") as watching:
        await watching.send(TrialListRequest(full_info=True))
        await watching.done_sending()
        for _ in range(_FLOOD):
            async with staged(server) as play:
                waits = actor_params("a", "cls", endpoint=CLIENT)
                properties = {"of the conformance kit": "x" * 1000}
                try:
                    await play.start(play.params(waits, properties=properties))
                except RpcError:
                    return "starts hang"
    return "starts go on"
