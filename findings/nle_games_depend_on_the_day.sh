#!/usr/bin/env bash
# A seeded game of NetHack depends on the day on which it is played: the moon, and Fridays the 13th.
#
# Versions:  nle==1.3.0, gymnasium==1.2.0 (which it pins); a C compiler
# Guessed:   with its seeds fixed, env.unwrapped.seed(core, disp, reseed=False), a game is the same whenever it is played: it
#            is an environment for research.
# Behaviour: the game asks the machine for the date. With the same seeds the first message, which is part of the observation,
#            is "You are lucky!  Full moon tonight." on 24 Nov 2026 and "Be careful!  New moon tonight." on 9 Dec; luck,
#            and with it what happens later, follows. fix_moon_phase=True, which is not the default, takes it from the seeds.
# Matters:   an episode that is stored as seeds and actions does not replay on another day, and a benchmark's scores differ
#            by the week in which it was run.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
command -v cc >/dev/null || { echo "there is no C compiler, cc" >&2; exit 77; }
printf '%s\n' '#include <stdlib.h>' '#include <time.h>' \
  'time_t time(time_t *t) { time_t now = atol(getenv("DAY")); if (t) *t = now; return now; }' >"$folder/day.c"
cc -shared -fPIC -o "$folder/day.so" "$folder/day.c"
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install nle==1.3.0 gymnasium==1.2.0
cat >"$folder/begin.py" <<'PYTHON'
import sys

import gymnasium
import nle  # noqa: F401  # registers the environments

env = gymnasium.make("NetHackScore-v0", disable_env_checker=True, fix_moon_phase=sys.argv[1] == "fixed")
env.unwrapped.seed(3, 3, False)
observation, _ = env.reset()
print(bytes(observation["message"]).rstrip(b"\0").decode())
PYTHON
begun() { DAY=$(date -u -d "$1 12:00" +%s) LD_PRELOAD="$folder/day.so" "$folder/venv/bin/python" -W ignore "$folder/begin.py" "$2"; }
for day in 2026-11-24 2026-11-29 2026-12-09; do echo "$day: $(begun $day default) / fixed: $(begun $day fixed)"; done
[[ $(begun 2026-11-24 default) == *"Full moon"* ]] || { echo "it behaves otherwise now"; exit 1; }
[[ $(begun 2026-12-09 default) == *"New moon"* ]] || { echo "it behaves otherwise now"; exit 1; }
[[ $(begun 2026-11-24 fixed) == $(begun 2026-12-09 fixed) ]] || { echo "it behaves otherwise now"; exit 1; }
