"""Peers that speak gRPC, each in a process of its own: programs for `test_grpc_peers`."""
