"""The environment and two players, for `trio-cogment participants players`."""

from trio_cogment import ActorSession, EnvironmentSession, EventType, Participants
from trio_cogment.sdk.spec import load_spec

spec = load_spec()
Round, Choice = spec.message("rps.Round"), spec.message("rps.Choice")


async def match(session: EnvironmentSession) -> None:
    """Play as many rounds as the configuration says, and reward the winner of each."""
    first, second = (actor.name for actor in session.actors)
    await session.start([("*", Round(number=1))])
    async for event in session.all_events():
        if event.actions is None:
            continue
        ours, theirs = (action.payload.move for action in event.actions)
        score = (0, 1, -1)[(ours - theirs) % 3]
        await session.add_reward(score, 1.0, first)
        await session.add_reward(-score, 1.0, second)
        number = event.tick_id + 2
        seen = [
            (first, Round(number=number, their_last_move=theirs)),
            (second, Round(number=number, their_last_move=ours)),
        ]
        if number > session.config.rounds:
            await session.end(seen)
        else:
            await session.produce_observations(seen)


async def takes_turns(session: ActorSession) -> None:
    """Play rock, paper and scissors in turn, each of them twice."""
    async for event in session.all_events():
        if event.observation is not None:
            await session.do_action(Choice(move=event.tick_id // 2 % 3))


async def beats_the_last_move(session: ActorSession) -> None:
    """Play what would have won the round before, and tell its score."""
    score = 0.0
    async for event in session.all_events():
        if event.reward is not None:
            score += event.reward.value
        elif event.type is EventType.ENDING:
            print(f"{session.name} scored {score:+g}", flush=True)
        elif event.observation is not None:
            seen = event.observation.payload
            beaten = seen.their_last_move if seen.HasField("their_last_move") else 2
            await session.do_action(Choice(move=(beaten + 1) % 3))


participants = Participants(spec)
participants.register_environment(match, "match")
participants.register_actor(takes_turns, "takes_turns", ["player"])
participants.register_actor(beats_the_last_move, "beats_the_last_move", ["player"])
