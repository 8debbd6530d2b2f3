#!/bin/sh
# Whole-process time of a token from a GGUF file that was converted before, against that from the .bmc file which
# bmc-convert makes of it, in alternating rounds.
#
#   MODEL  a GGUF file or folder (models.d/real/SmolLM2-135M-Instruct.Q4_1.gguf)   ROUNDS  (31)
set -eu
ROUNDS=${ROUNDS:-31}
. "$(dirname "$0")/lib.sh" >/dev/null

model=${MODEL:-models.d/real/SmolLM2-135M-Instruct.Q4_1.gguf}
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-start.XXXXXX")
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache

# Milliseconds of a run.
start() { # MODEL
    from=$(date +%s%N)
    bin/bmc-gen -q -m "$1" --prompt-ids 1 -n 1 -t 1 >/dev/null
    echo $(($(date +%s%N) - from)) | awk '{ printf "%.3f\n", $1 / 1e6 }'
}

bin/bmc-convert -q "$model" -o "$work/model.bmc"
echo "first start, with the conversion: $(start "$model" 2>/dev/null) ms, $(du -k "$work/model.bmc" | cut -f1) KiB"
for _ in 1 2 3; do start "$model" && start "$work/model.bmc"; done >/dev/null # page cache
for _ in $(seq "$rounds"); do
    gguf=$(start "$model") bmc=$(start "$work/model.bmc")
    echo "$gguf $bmc"
done >"$work/times"
echo "medians of $rounds rounds: $(cut -d' ' -f1 "$work/times" | median) ms from $model, $(cut -d' ' -f2 "$work/times" | median) ms from the .bmc file"
verdict "$(awk '{ print $1 - $2 }' "$work/times" | median)" "<=" 5 "median difference in ms"
