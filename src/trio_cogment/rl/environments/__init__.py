"""Environments of Gymnasium, PettingZoo and dm_env as the environments of trials."""
