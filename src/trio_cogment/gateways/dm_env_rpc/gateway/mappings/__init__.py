"""Payloads of trials as the tensors of dm_env_rpc, and back."""
