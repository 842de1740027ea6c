"""OpenEnv: seats of trials served as OpenEnv environments, and OpenEnv servers as the environments of trials.

`messages`, `schemas`, `foreign_schemas`, `session` and `gathering` are pure. Around them are the server
(`trials`, `connection`, `app`, `server`) and the client (`client`), which need the extra `openenv`.
"""
