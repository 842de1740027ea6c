"""A dm_env_rpc server as the environment of trials."""
