"""The client of dm_env_rpc servers, for Trio programs; and a world as a `dm_env.Environment`, for scripts."""
