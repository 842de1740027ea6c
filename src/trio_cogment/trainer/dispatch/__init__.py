"""What starts runs: their admission, and their workers as processes."""
