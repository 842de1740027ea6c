"""Other protocols of reinforcement learning, joined to trials."""
