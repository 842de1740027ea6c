#!/usr/bin/env bash
# A second game of one TextArena environment shows the player the whole game before it.
#
# Versions:  textarena==0.7.4
# Guessed:   reset() begins a new game: what get_observation() returns after it is the prompt of that game alone.
# Behaviour: the wrapper that textarena.make() puts around every game gathers text, and a reset does not empty it. After
#            a reset the observation is the first game's prompt and moves, and then the new prompt.
# Matters:   who collects several games with one object trains and judges a language model on prompts with other games
#            in them; the prompts grow with every game.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install textarena==0.7.4
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import textarena

game = textarena.make("TicTacToe-v0")
game.reset(num_players=2, seed=1)
_, first = game.get_observation()
game.step("[4]")
game.get_observation()
game.reset(num_players=2, seed=1)
_, second = game.get_observation()
print(len(first), len(second))
assert second != first, "it behaves otherwise now"
assert second.startswith(first), "it behaves otherwise now"
assert second.count(first.strip()) == 2, "it behaves otherwise now"
PYTHON
