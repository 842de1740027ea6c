"""OpenEnv: seats of trials served as OpenEnv environments, and OpenEnv servers as the environments of trials.

An OpenEnv client has a WebSocket to an environment of its own: it says `reset`, then `step` until the episode is done,
and gets one answer to each message. Here such an environment is a seat in a trial. A reset is therefore an appointment:
where a trial has several seats, it is answered when enough sockets have come for a trial to start (`gathering`), and a
socket that leaves in the middle ends the trial for all who sit in it, because none of them can go on without its
actions.

What a client may say when is decided in `session`, and what it is told in `messages`; both are pure, as are `schemas`
and `foreign_schemas`. Around them are the server (`trials`, `connection`, `app`, `server`) and the client (`client`),
which need the extra `openenv`.
"""
