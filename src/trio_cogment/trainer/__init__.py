"""The trainer: runs of training programs, their workers, telemetry and control."""
