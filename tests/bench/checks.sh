#!/bin/sh
# CPU seconds (user and system, of all processes) and seconds of each Bats file, most CPU first, then CPU seconds of the 40
# longest tests: what `make check` spends its time on. Beside other work CPU seconds grow, too, but less than seconds do.
#
#   make all tests && sh tests/bench/checks.sh [FILE.bats ..]
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
export BMC_BIN="${BMC_BIN:-$root/bin}" BMC_BUILD="${BMC_BUILD:-$root/build/gcc}" BMC_CONFIG=none
[ $# -gt 0 ] || set -- tests/*/*.bats
BMC_CPU_LOG=$(mktemp)
export BMC_CPU_LOG
trap 'rm -f "$BMC_CPU_LOG"' EXIT
for file; do
    bash -c 'TIMEFORMAT="%U %S %R"; { time bats --timing "$1" >/dev/null 2>&1; } || echo failed >&2' - "$file" 2>&1 | tr '\n' ' ' |
        awk -v file="$file" '{ printf "%8.1f %8.1f  %s%s\n", $1 + $2, $3, file, (NF > 3 ? " (failed)" : "") }'
done | sort -rn | awk 'BEGIN { print "     CPU     wall  file" } { print; cpu += $1 } END { printf "%8.1f           all\n", cpu }'
awk '{ at = $1; $1 = ""; if ($0 in begun) printf "%8.2f %s\n", (at - begun[$0]) / 100, $0; else begun[$0] = at }' "$BMC_CPU_LOG" |
    sort -rn | head -n 40
