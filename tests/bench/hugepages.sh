#!/bin/sh
# Decoding with --hugepages against the mapped file, in turns: tok/s of decoding, and milliseconds of the whole process with the file in
# the page cache, in which the copy counts.
#
#   MODEL    a model file, as bmc-convert --synth tinyllama-1.1b --type q8_0 makes (required)
#   TOKENS   (32)
set -eu
. "$(dirname "$0")/lib.sh"

model=${MODEL:?names a model file} tokens=${TOKENS:-32}
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-hugepages.XXXXXX")
trap 'rm -rf "$work"' EXIT

# One run: appends its figures to two files of $work.
run() { # NAME OPTION..
    name=$1 && shift
    start=$(date +%s%N)
    bin/bmc-gen -m "$model" -t "$threads" --prompt-ids 1,2,3 --ignore-eos -n "$tokens" -q "$@" --stats "$work/stats.json" >/dev/null
    echo $((($(date +%s%N) - start) / 1000000)) >>"$work/$name.ms"
    jq .decode_tok_s "$work/stats.json" >>"$work/$name.tok_s"
}

run unmeasured
for round in $(seq "$rounds"); do
    run mapped
    run copied --hugepages
done
for figure in tok_s ms; do
    mapped=$(median <"$work/mapped.$figure") copied=$(median <"$work/copied.$figure")
    ratio=$(paste "$work/copied.$figure" "$work/mapped.$figure" | awk '{ print $1 / $2 }' | median)
    echo "$figure: mapped $mapped, --hugepages $copied, ratio $ratio"
done
