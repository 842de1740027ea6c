#!/usr/bin/env bash
# Kuhn poker of TextArena deals other cards from one seed if the object has been used before.
#
# Versions:  textarena==0.7.4
# Guessed:   reset(seed=1) deals the same cards, whether or not there was a game before.
# Behaviour: the deck is a list of the object that is shuffled in place, and the next reset shuffles the shuffled one:
#            the same seed deals other cards in the second game. New objects deal the same.
# Matters:   a stored seed gives its game only with a new object; of games that were collected with one object, none but
#            the first is reproduced.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install textarena==0.7.4
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import textarena


def dealt(game: object, times: int) -> list[str]:
    """Return which cards the players have after each of so many resets with one seed."""
    found = []
    for _ in range(times):
        game.reset(num_players=2, seed=1)
        found.append(str(game.state.game_state["player_cards"]))
    return found


fresh = {dealt(textarena.make("KuhnPoker-v0-raw"), 1)[0] for _ in range(4)}
used = dealt(textarena.make("KuhnPoker-v0-raw"), 8)
print("new objects:", fresh, "one object:", used)
assert len(fresh) == 1, "it behaves otherwise now"
assert len(set(used)) > 1, "it behaves otherwise now"
PYTHON
