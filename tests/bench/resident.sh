#!/bin/sh
# Resident memory beyond mapped weights and cache, B = 1: peak anonymous memory of bmc-gen while it
# prefills 512 tokens and generates 32, less the cache. Needs 2.2 GB of disk in TMPDIR.
set -eu
. "$(dirname "$0")/lib.sh"

work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-resident.XXXXXX")
trap 'rm -rf "$work"' EXIT
bin/bmc-convert --synth "$shape" -o "$work/model.bmc"

for kv in bmc upfront; do
    bin/bmc-gen -m "$work/model.bmc" --no-spec --prompt-ids "$(seq -s ' ' 1 512)" -n 32 -c 1024 --ids --ignore-eos --kv $kv -t "$threads" -q \
        --stats "$work/stats.json" >/dev/null &
    pid=$! most=0
    while now=$(awk '/^RssAnon/ { print $2 }' /proc/$pid/status 2>/dev/null) && [ -n "$now" ]; do
        [ "$now" -le "$most" ] || most=$now
        sleep 0.02
    done
    wait $pid
    cache=$(jq .kv_resident_bytes "$work/stats.json")
    echo "--kv $kv: anonymous memory $((most / 1024)) MiB, of it cache $((cache / 1048576)) MiB"
    verdict "$(awk -v a="$most" -v c="$cache" 'BEGIN { print a / 1024 - c / 1048576 }')" '<=' 64 "MiB beyond weights and cache"
done
