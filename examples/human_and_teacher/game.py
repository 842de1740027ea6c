"""Rock, paper, scissors of PettingZoo between a person and a scripted teacher.

`python game.py` waits for a person, who joins from another terminal: `python game.py --person`. With `--alone` the
program plays the person itself, too.
"""

import argparse
import threading

import trio

import trio_cogment
import trio_cogment.rl as tc
from trio_cogment.spaces import decode_observation, encode_action

PORT = 8090
ROUNDS = 5
MOVES = ("rock", "paper", "scissors")


def teacher(last_move) -> int:
    """Play what the other's last move beats: whoever repeats a move wins, and learns that first."""
    return (int(last_move) + 2) % 3 if int(last_move) < 3 else 0


def teach(port: int) -> float:
    """Play one game as the teacher, and return its score; the person has the other seat."""
    env = tc.make("rps_v2", max_cycles=ROUNDS, seats={"player_0": tc.human(port=port)})
    print(f"waiting for a person at grpc://127.0.0.1:{port}", flush=True)
    seen, _ = env.reset()
    over, score = False, 0.0
    while not over:
        seen, reward, terminated, truncated, _ = env.step(teacher(seen))
        over, score = terminated or truncated, score + reward
    env.close()
    return score


async def ask(round_number: int) -> int:
    """Ask somebody at the terminal for a move."""
    answer = await trio.to_thread.run_sync(input, f"round {round_number + 1}: 0 rock, 1 paper, 2 scissors? ")
    return int(answer)


async def rock_then_paper(round_number: int) -> int:
    """Play the person."""
    return 0 if round_number < 2 else 1


async def join(port: int, choose) -> None:
    """Take the person's seat in one trial, as any SDK of Cogment can."""

    async def play(session: trio_cogment.ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is None:
                continue
            seen = decode_observation(event.observation.payload)
            if event.tick_id > 0:
                print(f"the teacher played {MOVES[int(seen.value)]}: {seen.reward:+g}", flush=True)
            if event.type is trio_cogment.EventType.ACTIVE:
                await session.do_action(encode_action(await choose(event.tick_id)))
        done.set()

    done = trio.Event()
    async with (
        trio_cogment.connect(f"grpc://127.0.0.1:{port}", spec=tc.RL_SPEC) as client,
        trio.open_nursery() as tasks,
    ):
        tasks.start_soon(tc.join_trials, client, "player_0", play)
        await done.wait()
        tasks.cancel_scope.cancel()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--person", action="store_true", help="be the person, at this terminal")
    parser.add_argument("--alone", action="store_true", help="play the person, too")
    options = parser.parse_args()
    if options.person:
        trio.run(join, options.port, ask)
        return
    person = threading.Thread(target=trio.run, args=(join, options.port, rock_then_paper))
    if options.alone:
        person.start()
    score = teach(options.port)
    if options.alone:
        person.join()
    print(f"the teacher scored {score:+g}")


if __name__ == "__main__":
    main()
