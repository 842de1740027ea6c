#!/usr/bin/env bash
# obstore refuses, as the condition of a put, the version that its own put or head has returned.
#
# Versions:  obstore==0.12.1
# Guessed:   put() returns {"e_tag": ..., "version": ...}, and mode= takes a dict of the same two names, each of them
#            str | None by its type: what was returned can be given back, for "replace it if it still is this one".
# Behaviour: where a store has no versions, "version" is None, and mode= with it raises TypeError: 'None' is not an
#            instance of 'str'. With the name left out, the same put succeeds.
# Matters:   a document that is changed by compare-and-swap fails at its second write, in every store without versions,
#            by an error that names neither the argument nor the object; a type checker says that it is right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install obstore==0.12.1
"$folder/venv/bin/python" - <<'PYTHON'
import obstore
from obstore.store import MemoryStore

store = MemoryStore()
returned = dict(obstore.put(store, "document", b"one"))
print("put returned", returned)
assert returned["version"] is None, "it behaves otherwise now"
try:
    obstore.put(store, "document", b"two", mode=returned)
    raise SystemExit("it behaves otherwise now")
except TypeError as error:
    print("given back:", error)
    assert str(error) == "'None' is not an instance of 'str'", "it behaves otherwise now"
obstore.put(store, "document", b"two", mode={"e_tag": returned["e_tag"]})
print("without its version:", bytes(obstore.get(store, "document").bytes()))
PYTHON
