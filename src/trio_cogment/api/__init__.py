"""Generated messages: the Cogment API (protobuf package `cogmentAPI`) and the project's own; see `nox -s protos`.

The API is the contract with the published SDKs: its messages are those of the reference on the wire, and what this
project adds are fields that others skip. They are in the default descriptor pool, under the reference's names. Services
are not generated: `rpc.service` builds them from the descriptors at run time.

Messages of other projects (`dm_env_rpc`, `legacy`, `trainer`) have descriptor pools of their own, because the packages
of these projects declare the same names and may be installed beside this one.
"""
