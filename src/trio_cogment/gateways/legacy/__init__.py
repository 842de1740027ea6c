"""The legacy Cogment API, generation 0.3: old agents and environments in trials of today."""
