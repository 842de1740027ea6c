"""The gateway: parts of trials, for clients of dm_env_rpc."""
