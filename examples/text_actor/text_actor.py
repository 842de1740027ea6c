"""An actor that reads its observation as text and answers with text, as a language model does."""

import re

import trio_cogment.rl as tc

BEATS = {"0": "1", "1": "2", "2": "0"}  # paper beats rock, scissors beat paper, rock beats scissors


async def ask(prompt: str) -> str:
    """Answer a prompt. Call a language model here; this one plays what would have beaten the last move."""
    seen = re.search(r"Observation:\n(\d)", prompt)
    assert seen is not None
    return f"They may do that again, so my answer is {BEATS.get(seen[1], '0')}."


def main() -> None:
    game = tc.make_parallel("rps_v2", max_cycles=6, seats={"player_1": tc.text(ask)})
    game.reset(seed=1)
    score = 0.0
    for move in (0, 0, 1, 1, 2, 2):
        _, rewards, _, _, _ = game.step({"player_0": move})
        score += rewards["player_0"]
        print(f"I play {move}: {rewards['player_0']:+g}")
    print(f"against text: {score:+g}")
    game.close()


if __name__ == "__main__":
    main()
