#!/usr/bin/env bash
# obstore: a conditional put after somebody wrote the same bytes again fails in memory and succeeds on S3.
#
# Versions:  obstore==0.12.1, moto[server]==5.2.5
# Guessed:   an ETag is that of one write: once a second writer has put the object, though with the same bytes, the
#            first one's put with mode={"e_tag": ...} of before raises PreconditionError, in any store.
# Behaviour: MemoryStore counts its writes, so it raises. On a server of S3 the ETag of an object that was put at once
#            is made of its content: after the same bytes it is the same, and the first writer's put overwrites.
# Matters:   who takes a document over by writing it as it is (a lease, an owner's mark) has fenced nobody. The tests in
#            memory pass. Something that differs with each write has to be in the content.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install obstore==0.12.1 "moto[server]==5.2.5"
"$folder/venv/bin/python" - <<'PYTHON'
import logging

import obstore
from moto.server import ThreadedMotoServer
from obstore.exceptions import PreconditionError
from obstore.store import MemoryStore, S3Store

logging.getLogger("werkzeug").setLevel(logging.ERROR)


def first_writer(store):
    """Say what becomes of the first writer's second put."""
    before = obstore.put(store, "document", b"same")["e_tag"]
    obstore.put(store, "document", b"same")  # the second writer takes it over
    try:
        obstore.put(store, "document", b"of the first one", mode={"e_tag": before})
        return "overwrites"
    except PreconditionError:
        return "is refused"


server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
host, port = server.get_host_and_port()
try:
    import boto3

    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
    endpoint = f"http://{host}:{port}"
    boto3.client("s3", endpoint_url=endpoint, **keys).create_bucket(Bucket="bucket")
    bucket = S3Store(
        "bucket", endpoint=endpoint, access_key_id="a", secret_access_key="b", region="us-east-1",
        client_options={"allow_http": True},
    )
    seen = {"memory": first_writer(MemoryStore()), "S3": first_writer(bucket)}
finally:
    server.stop()
print(seen)
assert seen == {"memory": "is refused", "S3": "overwrites"}, "it behaves otherwise now"
PYTHON
