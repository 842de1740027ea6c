"""Recorded trials: what the machines of trials are given and do, written to text files and replayed.

`TrialRecorder` records, `RecordedTrial` is what it has recorded, and `replay` gives the inputs of a recorded trial to a
new machine.
"""

from trio_cogment.recording._trial_lines import TrialFileError
from trio_cogment.recording._trial_recorder import RecordedTrial, TrialRecorder, replay

__all__ = ["RecordedTrial", "TrialFileError", "TrialRecorder", "replay"]
