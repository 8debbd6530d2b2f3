#!/bin/sh
# Rates of a prompt in a process that reads the model from the disk, over those in one that finds it in the page cache,
# in alternating rounds: TinyLlama's shape unless MODEL is given. The page cache gives up the model's pages before each
# cold run (coreutils' dd, oflag=nocache).
#
#   MODEL  a .bmc file   PROMPT  tokens (512)   ROUNDS  (9)   OLD  another bmc-gen, measured in the same rounds
set -eu
ROUNDS=${ROUNDS:-9}
. "$(dirname "$0")/lib.sh" >/dev/null

prompt=${PROMPT:-512}
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-first.XXXXXX")
trap 'rm -rf "$work"' EXIT
model=${MODEL:-$work/model.bmc}
[ -n "${MODEL:-}" ] || bin/bmc-convert -q --synth models.d/shapes/tinyllama-1.1b.shape --type q4_0 -o "$model"
ids=$(seq -s , 10 $((prompt + 9)))

# Milliseconds until the first token, after the model was opened.
first_token() { # PROGRAM
    "$1" -q -m "$model" --prompt-ids "$ids" -n 1 --stats "$work/stats.json" >/dev/null
    jq .prefill_ms "$work/stats.json"
}
give_up_pages() { dd of="$model" oflag=nocache conv=notrunc,fdatasync count=0 2>/dev/null; }

for program in bin/bmc-gen ${OLD:-}; do
    for _ in $(seq "$rounds"); do
        give_up_pages
        cold=$(first_token "$program") warm=$(first_token "$program")
        echo "$warm $cold"
    done >"$work/times"
    awk '{ print $1 / $2 }' "$work/times" | median >"$work/share"
    echo "$program, $prompt tokens, $(stat -c %s "$model") bytes: $(cut -d ' ' -f 1 "$work/times" | median) ms with the model in the page cache, $(cut -d ' ' -f 2 "$work/times" | median) ms from the disk: $(cat "$work/share") of the warm rate"
    [ "$program" != bin/bmc-gen ] || cp "$work/share" "$work/ours"
done
verdict "$(cat "$work/ours")" ">=" 0.9 "share of the warm rate"
