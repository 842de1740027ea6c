"""The attacks of `benchmarks/attack.py` work, at a size at which they harm nobody. How they end is the benchmark's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ATTACK = Path(__file__).resolve().parents[1] / "benchmarks" / "attack.py"
#: What a server says that lives and takes its time to answer.
ANSWERS = ("OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED")
#: As gRPC has it for a message that cannot be read; see docs/grpc-statuses.md.
UNREADABLE = "INTERNAL /cogmentAPI.TrialLifecycleSP/StartTrial: undecodable message"


def attack(*options: str) -> Any:
    command = [sys.executable, str(ATTACK), "--after=0.3", *options]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=110).stdout
    return json.loads(output.splitlines()[-1])


def test_every_attack_is_answered_and_the_neighbours_trial_ticks_afterwards() -> None:
    outcomes = attack("--smoke", "--scale=0.001", "--seconds=0.3")
    assert len(outcomes) >= 50
    strange = {
        name: answers
        for name, answers in outcomes.items()
        if not answers or not all(answer.startswith((*ANSWERS, UNREADABLE)) for answer in answers)
    }
    assert not strange


def test_an_attack_is_measured_beside_a_ticking_trial_and_an_honest_transfer() -> None:
    values = attack("--only=slow_transfers", "--scale=0.05", "--seconds=1", "--before=0.5", "--json")
    assert values["attacks"] == 1
    assert values["honest_slow_transfers"] == 1
    assert values["kept_ticks_slow_transfers"] > 0
    assert values["cpu_s_slow_transfers"] > 0
