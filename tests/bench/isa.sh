#!/bin/sh
# Checks that the default kernel set is the fastest one on this machine. For each type of weights,
# decode steps of 1, 8 and 32 sequences and a prefill of 512 tokens are timed with every set at its
# default precision, in alternating rounds, and compared with the default in the same round. Exit
# status 1 if a set is faster than the default by more than TOLERANCE (5) percent in the median of
# the rounds, and faster at all in three quarters of them. The default runs twice a round; the
# difference of its two times (column "again") is added to the tolerance of that step, since the
# same kernels can differ by more than 5 % on a shared machine.
#
#   SETS       sets to compare (all usable ones but blas and ref)
#   TYPES      types of weights (bf16 f16 f32 q8_0 q4_1)
#   LAYERS     layers of the shape (2)
#   AGAIN      further rounds for a type that failed, before the verdict (ROUNDS)
set -eu
. "$(dirname "$0")/lib.sh"

tolerance=${TOLERANCE:-5}
default=$(bin/bmc-prof --version | sed -n 's/^isa: *\([a-z0-9]*\);.*/\1/p')
usable=$(bin/bmc-prof --version | sed -n 's/^isa: .*usable: //p' | tr -d ,)
sets=${SETS:-$(echo "$usable" | sed 's/\b\(blas\|ref\)\b//g')}
case " $sets " in *" $default "*) ;; *) sets="$sets $default" ;; esac
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-isa.XXXXXX")
trap 'rm -rf "$work"' EXIT

of_set() { # TYPE SET OPTION..: the set "again" is the default once more
    type=$1 isa=$2
    shift 2
    [ "$isa" != again ] || isa=$default
    bench --layers "${LAYERS:-2}" --type "$type" --isa "$isa" -d 8 -r 1 --megabytes 16 "$@"
}

# Appends "CELL SET ROUND MS" to the times of a type.
measure() { # TYPE FIRST_ROUND LAST_ROUND
    for round in $(seq "$2" "$3"); do
        turn="$sets again"
        [ $((round % 2)) -eq 1 ] || turn=$(printf '%s\n' $turn | tac) # alternate the order
        for set in $turn; do
            { of_set "$1" "$set" -np 1 -p 512 -n 64 && of_set "$1" "$set" -np 8,32 -p 1 -n 12; } |
                jq -r --arg round "$round" --arg set "$set" 'select(.test == "decode" or .n_prompt == 512) | "\(.test)-\(if .test == "decode" then .batch else .n_prompt end) \($set) \($round) \(.latency_p50_ms // .step_ms)"'
        done
    done >>"$work/$1"
}

# A row for each cell: the default's time, each set's ratio to it, and the fastest set. The status is 1 when a cell has missed.
table() { # TYPE
    awk -v type="$1" -v sets="$sets" -v own="$default" -v least="$(awk -v t="$tolerance" 'BEGIN { print 1 - t / 100 }')" '
        function median(x, n,    i, j, t) {
            for (i = 2; i <= n; i++)
                for (j = i; j > 1 && x[j] < x[j - 1]; j--) { t = x[j]; x[j] = x[j - 1]; x[j - 1] = t }
            return (x[int((n + 1) / 2)] + x[int(n / 2) + 1]) / 2
        }
        { ms[$1, $2, $3] = $4; if (!($1 in cells)) { order[++n_cells] = $1; cells[$1] = 1 } if ($3 > rounds) rounds = $3 }
        END {
            n_sets = split(sets " again", set, " ")
            for (c = 1; c <= n_cells; c++) {
                cell = order[c]; worst = 1; best = own
                for (r = 1; r <= rounds; r++) x[r] = ms[cell, own, r]
                line = sprintf("| %s | %s | %.2f |", type, cell, median(x, rounds))
                for (r = 1; r <= rounds; r++) x[r] = ms[cell, "again", r] / ms[cell, own, r]
                noise = median(x, rounds) - 1
                if (noise < 0) noise = -noise
                for (s = 1; s <= n_sets; s++) {
                    for (r = 1; r <= rounds; r++) x[r] = ms[cell, set[s], r] / ms[cell, own, r]
                    ratio = median(x, rounds)
                    line = line sprintf(" %.2f |", ratio)
                    lost = set[s] != "again" && ratio < least - noise && x[int((3 * rounds + 3) / 4)] < 1 # median() has sorted them
                    if (set[s] != "again" && ratio < worst) { worst = ratio; best = set[s] }
                    if (lost) losers = losers " " set[s]
                }
                missed += losers != ""
                print line " " best (losers != "" ? ", MISSED by" losers " |" : " |")
                losers = ""
            }
            exit missed > 0 || n_cells == 0
        }' "$work/$1"
}

echo "default $default; time of a step with it, and times with each set as multiples of that"
echo
echo "| weights | step | $default, ms | $(echo $sets again | sed 's/ / | /g') | fastest |"
echo "| --- | --- | --- |$(for _ in $sets again; do printf ' --- |'; done) --- |"
missed=
for type in ${TYPES:-bf16 f16 f32 q8_0 q4_1}; do
    measure "$type" 1 "$rounds"
    table "$type" >"$work/rows" || {
        measure "$type" $((rounds + 1)) $((rounds + ${AGAIN:-$rounds}))
        table "$type" >"$work/rows" || missed="$missed $type"
    }
    cat "$work/rows"
done
[ -z "$missed" ] || {
    echo "the default is more than $tolerance % slower than another set for:$missed"
    exit 1
}
echo "the default is within $tolerance % of the fastest set everywhere"
