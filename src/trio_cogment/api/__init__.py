"""Generated messages: the Cogment API (protobuf package `cogmentAPI`) and the project's own; see `nox -s protos`."""
