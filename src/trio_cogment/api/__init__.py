"""Messages of the Cogment API (protobuf package `cogmentAPI`), generated from `protos/` by `nox -s protos`."""
