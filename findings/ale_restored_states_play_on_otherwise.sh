#!/usr/bin/env bash
# A state of ALE that is restored plays on otherwise, with the same actions.
#
# Versions:  ale-py==0.12.1, gymnasium==1.4.0
# Guessed:   clone_state() and restore_state() bring a game back to where it was: the same actions after it give the
#            same pictures.
# Behaviour: the generator of sticky actions, which are on by default in the games of version 5, is not part of it: what
#            follows differs. clone_state(include_rng=True) has it, and then the pictures are the same.
# Matters:   a search that expands a node twice compares two games; an episode that is stored as a state and actions
#            does not replay.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install ale-py==0.12.1 gymnasium==1.4.0
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import ale_py
import gymnasium

gymnasium.register_envs(ale_py)
game = gymnasium.make("ALE/Pong-v5")
game.reset(seed=1)
for _ in range(60):
    game.step(2)


def played() -> list[int]:
    return [int(game.step(2 + number % 2)[0].sum()) for number in range(120)]


equal = {}
for include_rng in (False, True):
    state = game.unwrapped.clone_state(include_rng=include_rng)
    first = played()
    game.unwrapped.restore_state(state)
    equal[include_rng] = first == played()
print(equal)
assert equal == {False: False, True: True}, "it behaves otherwise now"
PYTHON
