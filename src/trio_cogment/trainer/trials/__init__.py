"""Runs of trials: started by the trainer itself or by workers, and their samples as steps and episodes."""
