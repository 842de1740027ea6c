#!/usr/bin/env bash
# TRL's packing leaves out what a sequence has beyond the length, where its other strategies go on with it.
#
# Versions:  trl==1.16.0, datasets==5.2.0, transformers==5.24.0, torch==2.14.1
# Guessed:   pack_dataset(), whose purpose is that nothing is wasted, puts the tokens of a long sequence into several packs.
# Behaviour: "bfd", the default of the function and of SFTConfig, cuts each sequence at seq_length: of ten tokens and a
#            length of four six are gone, without a warning. "bfd_split" and "wrapped" have all of them.
# Matters:   transcripts of long trials lose their ends, where the result and the final answer are; the number of examples
#            looks right, and short trials are whole.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install trl==1.16.0 datasets==5.2.0 transformers==5.24.0 torch==2.14.1
HF_HUB_OFFLINE=1 HF_HOME="$folder/hub" "$folder/venv/bin/python" -W ignore - 2>"$folder/errors" <<'PYTHON' || { tail -n 5 "$folder/errors" >&2; exit 1; }
import trl
from datasets import Dataset

given = Dataset.from_dict({"input_ids": [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [11, 12], [13, 14, 15]]})


def tokens(**options: str) -> list[int]:
    return sorted(token for row in trl.pack_dataset(given, 4, **options) for token in row["input_ids"])


found = {name: tokens(strategy=name) for name in ("bfd", "bfd_split", "wrapped")}
print(found)
assert tokens() == found["bfd"] == [1, 2, 3, 4, 11, 12, 13, 14, 15], "it behaves otherwise now"
assert found["bfd_split"] == found["wrapped"] == list(range(1, 16)), "it behaves otherwise now"
assert trl.SFTConfig.__dataclass_fields__["packing_strategy"].default == "bfd", "it behaves otherwise now"
PYTHON
