"""Gateways: other protocols of reinforcement learning, joined to trials.

A gateway speaks a foreign protocol to its clients and Cogment's API to an orchestrator. It is a participant like any
other: what it does, any program could do with the SDK, and the orchestrator knows of no gateway.

The protocols differ from trials in one point above all: their clients pull. A client asks for a step and waits for its
answer, and between two requests it may be gone; a trial pushes, and does not stop for one actor. Between the two is a
seat with its mailbox (`trio_cogment.seats`). What remains in each folder is the foreign protocol itself: its messages,
its rules about which request is allowed when, and the mapping of its values to payloads.

A gateway acts for others. Whatever a client causes at the orchestrator is called in the client's name (`callers`), so
rights and quotas are those of who asked and not those of the gateway.
"""
