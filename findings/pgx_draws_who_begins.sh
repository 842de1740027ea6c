#!/usr/bin/env bash
# In games of pgx it is drawn who makes the first move: player 0 is not black, nor X, nor the first seat.
#
# Versions:  pgx==2.6.0, jax==0.10.2, jaxlib==0.10.2
# Guessed:   player 0 begins, as in OpenSpiel, PettingZoo and TextArena: rewards[0] is the first mover's.
# Behaviour: current_player of the first state is drawn from the key: of eight keys it is 0 for some and 1 for the others.
#            The observation is the mover's view, so that nothing else tells which seat it is.
# Matters:   who joins such a game with fixed seats, or compares its results by player with those of the same game
#            elsewhere, mixes first and second movers: a first mover's advantage vanishes from the statistics.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install pgx==2.6.0 jax==0.10.2 jaxlib==0.10.2
JAX_PLATFORMS=cpu "$folder/venv/bin/python" -W ignore - 2>"$folder/errors" <<'PYTHON' || { tail -n 5 "$folder/errors" >&2; exit 1; }
import jax
import pgx

found = {}
for name in ("tic_tac_toe", "connect_four", "go_9x9", "kuhn_poker"):
    game = pgx.make(name)
    found[name] = [int(game.init(jax.random.PRNGKey(key)).current_player) for key in range(8)]
    print(name, found[name])
assert all(set(players) == {0, 1} for players in found.values()), "it behaves otherwise now"
PYTHON
