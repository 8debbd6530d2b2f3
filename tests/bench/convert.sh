#!/bin/sh
# Conversion of a model against a plain copy of its files, alternating: wall time until the data
# are on disk.
#
#   sh tests/bench/convert.sh SOURCE [OTHER_CONVERT]    SOURCE of a gigabyte or more; optionally
#     another build's program
#
# ROUNDS (5), in a new folder of TMPDIR.
set -eu
export BMC_CONFIG=none # no defaults of this account
source=$(realpath "$1") other=${2:+$(realpath "$2")} rounds=${ROUNDS:-5}
cd "$(dirname "$0")/../.."
bin=$(realpath bin)
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-convert.XXXXXX")
trap 'rm -rf "$work"' EXIT

# seconds NAME COMMAND..: how long it took, to the file of that name.
seconds() {
    name=$1
    shift
    rm -rf "$work/out"
    sync "$work"
    begin=$(date +%s%N)
    "$@" >/dev/null 2>&1
    sync "$work" -f
    echo $((($(date +%s%N) - begin) / 1000000)) >>"$work/$name"
}

median() { sort -n "$work/$1" | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }

for round in $(seq "$rounds"); do
    seconds cp cp -rL "$source" "$work/out"
    seconds convert "$bin/bmc-convert" "$source" -o "$work/out"
    [ -z "$other" ] || seconds other "$other" "$source" -o "$work/out"
done
for name in cp convert ${other:+other}; do
    echo "$name: $(median $name) ms, $(awk -v a="$(median $name)" -v b="$(median cp)" 'BEGIN { printf "%.2f", a / b }') times cp"
done
