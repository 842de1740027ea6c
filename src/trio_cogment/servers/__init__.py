"""The servers of the platform: orchestrator, datastore, model registry, directory; and the directory's client.

All of them are built alike. The server is an object that other code of the process may use directly; entering its
`async with` block starts its tasks and leaving it stops them in order. The gRPC service is a thin module in front of
it, which checks requests and builds replies: a service knows its server, and no server knows its services. What decides
anything is pure and below, as tables or as functions on messages.

No server imports another. The orchestrator reaches a datastore, a hook or an actor by an endpoint, whether it is in the
same process or not; only what discovery finds first differs (`discovery`).
"""
