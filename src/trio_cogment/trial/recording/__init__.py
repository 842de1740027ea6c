"""Recorded trials: the inputs and effects of the machines of trials, written to text files and replayed.

`TrialRecorder` records, `RecordedTrial` is what it has recorded, and `replay` gives the inputs of a recorded trial to a
new machine.
"""

from trio_cogment.trial.recording._replay import replay
from trio_cogment.trial.recording._trial_lines import TrialFileError
from trio_cogment.trial.recording._trial_recorder import RecordedTrial, TrialRecorder

__all__ = ["RecordedTrial", "TrialFileError", "TrialRecorder", "replay"]
