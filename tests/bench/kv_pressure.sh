#!/bin/sh
# bmc-gen --kv-pressure under a real limit of a control group that falls while 16 requests are computed: memory.high and then
# memory.max of version 2, or memory.limit_in_bytes of version 1. Run as root, or in a group that may have others below it.
#
#   MODEL   (models.d/grimm)
#   STEPS   (q8,refuse)
#   KV      (bmc)
#   TOKENS  of an answer (1500)
#   GROUP   folder below which the group is made (that of this process)
#
# Without a kill or a failed request, the script ends with "replay equal" and exit status 0.
set -eu
. "$(dirname "$0")/lib.sh"
model=${MODEL:-models.d/grimm} steps=${STEPS:-q8,refuse} kv=${KV:-bmc} tokens=${TOKENS:-1500}
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-pressure.XXXXXX") group=
trap '[ -z "$group" ] || rmdir "$group" 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# mount_of TYPE [CONTROLLER]: where control groups are mounted.
mount_of() { awk -v type="$1" -v option="${2:-}" '$3 == type && (option == "" || ("," $4 ",") ~ ("," option ",")) { print $2; exit }' /proc/mounts; }

v2=$(mount_of cgroup2)
if [ -n "$v2" ] && grep -qw memory "$v2/cgroup.controllers"; then
    base=${GROUP:-$v2$(sed -n 's/^0:://p' /proc/self/cgroup)} high=memory.high max=memory.max used=memory.current
    echo +memory >"$base/cgroup.subtree_control" || { echo "$base: the memory controller is not for groups below: give GROUP"; exit 2; }
else
    v1=$(mount_of cgroup memory)
    [ -n "$v1" ] || { echo "no control groups for memory"; exit 2; }
    base=${GROUP:-$v1$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)} high= max=memory.limit_in_bytes used=memory.usage_in_bytes
    [ -d "$base" ] || base=$v1
fi
group=$base/bmc-pressure.$$
mkdir "$group" || exit 2
id_requests 16 64 "$tokens" >"$work/in"
bin/bmc-gen -q -m "$model" --jsonl -f /dev/null # converted before, and in the page cache

run() { sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" bin/bmc-gen -q -m "$model" --jsonl --ignore-eos -np 16 -t "$threads" --kv "$kv" -f "$work/in" --stats "$work/stats" "$@"; }

run >"$work/all"
most=$(jq .kv_resident_bytes "$work/stats") all=$(jq .peak_resident_bytes "$work/stats")
echo "without a limit: $most bytes of cache, $all resident"
run --kv-pressure "$steps" --kv-pressure-log "$work/log" >"$work/now" &
run=$!
for part in 8 6 5 4 3; do # eighths of the cache are left
    sleep 1
    kill -0 $run 2>/dev/null || break
    limit=$((all - most + most * part / 8))
    [ -z "$high" ] || echo "$limit" >"$group/$high"
    echo $((${high:+$((96 << 20)) + }limit)) >"$group/$max" 2>/dev/null || echo "the kernel cannot reclaim down to $limit"
    echo "limit $limit, $(cat "$group/$used") used"
done
status=0
wait $run || status=$?
echo "exit status $status: $(jq -c '{sequences, finished_error, kv_converted, kv_suspended, kv_resident_bytes}' "$work/stats")"
[ $status = 0 ]
jq -se --argjson n "$tokens" 'length == 16 and all(.finish == "length" and (.ids | length) == $n)' "$work/now" >"$work/complete"
hash=$(jq -r .logits_hash "$work/stats")
[ -z "$high" ] || echo max >"$group/$high"
echo $((1 << 40)) >"$group/$max"
run --kv-pressure-replay "$work/log" --check-hash "$hash" >"$work/again"
cmp "$work/now" "$work/again"
echo "replay equal"
