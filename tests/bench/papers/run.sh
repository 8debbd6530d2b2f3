#!/bin/sh
# Remakes tables and figures of the papers: `make papers`.
#
#   sh tests/bench/papers/run.sh [BUDGET [ONLY]]
#
#   BUDGET  time for all of it, as 90s, 30m (default) or 8h; from 4h on entries run at the papers' sizes
#   ONLY    entries, or all of a paper, as "bmc/fig10 segment"
#
# Entries are in entries.list. Those without a result of this commit, machine and size run first, in the list's order; the
# others are not repeated unless AGAIN=1. What does not fit in the rest of the budget waits for the next run. Each
# result is a file in build/papers/results, written when it is complete, so an interrupted run continues.
# OUT is another folder than build/papers, SCRIPTS another one with scripts and entries.list. MEASURE is put before each script, as "chrt -f 50". PYTHON, PEERS and
# other variables are those of the scripts.
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../../.."
here=${SCRIPTS:-tests/bench/papers} budget=${1:-30m} only=${2:-} out=${OUT:-build/papers} page=${BUILD:-build/gcc}/bench/papers/page
[ -n "$budget" ] || budget=30m

usage() {
    echo "papers: $1" >&2
    exit 2
}

number=${budget%[smh]}
case $number in '' | *[!0-9]*) usage "BUDGET=$budget: needs a time, as 90s, 30m or 8h" ;; esac
case $budget in *h) seconds=$((number * 3600)) ;; *s) seconds=$number ;; *) seconds=$((number * 60)) ;; esac
PAPERS_SIZE=short
[ "$seconds" -lt 14400 ] || PAPERS_SIZE=full
export PAPERS_SIZE

# chosen: lines "KEY SECONDS ITEM; ITEM .." of the entries that ONLY names
chosen() {
    awk -F ' *[|] *' -v size=$PAPERS_SIZE -v only=" $(echo "$only" | tr , ' ') " '
        /^#/ || NF < 4 { next }
        { paper = $1; sub("/.*", "", paper) }
        only ~ /^ *$/ || index(only, " " $1 " ") || index(only, " " paper " ") { print $1, (size == "full" ? $3 : $2), $4 }' $here/entries.list
}
for name in $(echo "$only" | tr , ' '); do
    cut -d '|' -f 1 $here/entries.list | tr -d ' ' | grep -qE "^$name(/|\$)" || usage "ONLY=$name: no such entry; there are: $(sed -n '/^#/d; s/ *|.*//p' $here/entries.list | paste -sd ' ')"
done

[ -x "$page" ] || make -s "$page"
mkdir -p "$out/results"
results=$(realpath "$out/results")
commit=$(bin/bmc-prof --version | sed -n 's/^commit: *//p')
cpu=$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)
threads=${THREADS:-$(nproc)}
start=$(date +%s)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
stopped=
trap 'stopped=1' INT TERM

left() { echo $((start + seconds - $(date +%s))); }
write_page() { rm -f "$out"/*.svg && "$page" tests/bench/papers.md "$results" "$out"; }

# current FILE: true if it has a result of this commit, machine and size
current() {
    [ -z "${AGAIN:-}" ] && [ -s "$1" ] && jq -e --arg commit "$commit" --arg cpu "$cpu" --argjson threads "$threads" --arg size $PAPERS_SIZE \
        '.state != "failed" and .commit == $commit and .cpu == $cpu and .threads == $threads and .size == $size' "$1" >/dev/null
}

# measure KEY ITEMS: runs the entry's script and writes its result
measure() {
    key=$1 items=$2 file=$results/$(echo "$1" | tr / -).json began=$(date +%s) state=done reason=
    # shellcheck disable=SC2086 # a command
    ${MEASURE:-} timeout -k 5 "$(left)" sh "$here/${key%%/*}.sh" "${key#*/}" >"$scratch/parts" 2>"$scratch/log" || state=failed
    [ -z "$stopped" ] || return 0
    if [ $state = failed ]; then
        failed="$failed $key"
        reason=$(tail -n 1 "$scratch/log")
        [ "$(left)" -gt 0 ] || reason="the budget of $budget ended before it"
        : >"$scratch/parts"
    elif jq -se 'any(.kind == "skip")' "$scratch/parts" >/dev/null; then
        state=skipped reason=$(jq -sr 'map(select(.kind == "skip"))[0].text' "$scratch/parts")
    fi
    jq -s --arg key "$key" --arg items "$items" --arg state $state --arg reason "$reason" --arg size $PAPERS_SIZE --arg commit "$commit" --arg cpu "$cpu" \
        --argjson threads "$threads" --argjson seconds $(($(date +%s) - began)) --arg time "$(date -u +%FT%TZ)" --arg command "make papers BUDGET=$budget ONLY=$key" \
        '{key: $key, items: ($items | split("; ")), state: $state, reason: $reason, size: $size, commit: $commit, cpu: $cpu, threads: $threads,
          seconds: $seconds, time: $time, command: $command, parts: .}' "$scratch/parts" >"$scratch/result"
    mv "$scratch/result" "$file"
    echo "papers: $key: $state${reason:+: $reason} ($(($(date +%s) - began)) s)" >&2
}

# The entries without a current result, those without any first.
chosen | while read -r key estimate items; do
    file=$results/$(echo "$key" | tr / -).json
    if [ ! -s "$file" ]; then echo "0 $key $estimate $items"; elif ! current "$file"; then echo "1 $key $estimate $items"; fi
done | sort -s -n -k 1,1 >"$scratch/todo"
waiting= failed=
while read -r _ key estimate items <&3 && [ -z "$stopped" ]; do
    if [ "$estimate" = - ]; then
        waiting="$waiting $key (another size)"
    elif [ "$estimate" -gt "$(left)" ]; then
        waiting="$waiting $key"
    else
        measure "$key" "$items" </dev/null
    fi
done 3<"$scratch/todo"
write_page
echo "papers: $out/index.html, $out/index.md${waiting:+; not in this budget:$waiting}" >&2
[ -z "$stopped" ] || exit 130
[ -z "$failed" ] || { echo "papers: failed:$failed" >&2; exit 1; }
