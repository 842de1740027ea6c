"""The dispatcher of runs: their admission, and their workers as processes."""
