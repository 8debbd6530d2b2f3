#!/bin/sh
# Decoding with weights in huge pages, in turns: tok/s of decoding, and milliseconds of the whole process with the file in the page cache.
#
#   mapped   the file as bmc-convert writes it: in huge pages of the page cache where the file system has large folios
#   pieces   a copy of it that was written in pieces of 64 KiB, mapped: in small pages until it is read from disk again
#   copied   with --hugepages, whose copy counts in the time of the process
#
#   MODEL    a model file, as bmc-convert --synth tinyllama-1.1b --type q8_0 makes, written since the last start of the system (required)
#   TOKENS   (32)
set -eu
. "$(dirname "$0")/lib.sh"

model=${MODEL:?names a model file} tokens=${TOKENS:-32}
work=$(mktemp -d "$(dirname "$model")/bmc-hugepages.XXXXXX")
trap 'rm -rf "$work"' EXIT
dd if="$model" of="$work/pieces.bmc" bs=64k 2>/dev/null

# One run: appends its figures to two files of $work.
run() { # NAME MODEL OPTION..
    name=$1 file=$2 && shift 2
    start=$(date +%s%N)
    bin/bmc-gen -m "$file" --no-spec -t "$threads" --prompt-ids 1,2,3 --ignore-eos -n "$tokens" -q "$@" --stats "$work/stats.json" >/dev/null
    echo $((($(date +%s%N) - start) / 1000000)) >>"$work/$name.ms"
    jq .decode_tok_s "$work/stats.json" >>"$work/$name.tok_s"
}

# Bytes of files that a process which generates has mapped in huge pages.
mapped_huge() { # MODEL
    bin/bmc-gen -m "$1" --no-spec -t "$threads" --prompt-ids 1,2,3 --ignore-eos -n 1000 -q >/dev/null &
    sleep 3
    awk '$1 == "FilePmdMapped:" { print $2 / 1024 " MiB" }' /proc/$!/smaps_rollup
    kill $!
}

run unmeasured "$model"
run unmeasured "$work/pieces.bmc"
for round in $(seq "$rounds"); do
    run mapped "$model"
    run pieces "$work/pieces.bmc"
    run copied "$model" --hugepages
done
echo "in huge pages of the page cache: mapped $(mapped_huge "$model"), pieces $(mapped_huge "$work/pieces.bmc")"
for figure in tok_s ms; do
    line="$figure:"
    for name in mapped pieces copied; do
        line="$line $name $(median <"$work/$name.$figure")"
    done
    for name in pieces copied; do
        line="$line, mapped / $name $(paste "$work/mapped.$figure" "$work/$name.$figure" | awk '{ print $1 / $2 }' | median)"
    done
    echo "$line"
done
