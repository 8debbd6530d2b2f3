# Shared by the bench scripts, which are run from the source tree after `make`, source this file,
# and need jq.
#
#   SHAPE    shape to measure (tinyllama-1.1b), with random bf16 weights
#   THREADS  (all cores)
#   ROUNDS   alternating rounds, of which medians are taken (5)

cd "$(dirname "$0")/../.."
export BMC_CONFIG=none # no defaults of this account
shape=${SHAPE:-tinyllama-1.1b} threads=${THREADS:-$(nproc)} rounds=${ROUNDS:-5}

# Rows of bmc-prof bench, one line of JSON each.
bench() { bin/bmc-prof bench --shape "$shape" -t "$threads" --warmup 0 --format jsonl "$@" 2>/dev/null; }

# Median of the numbers on standard input.
median() { sort -g | awk '{ x[NR] = $1 } END { if (NR) print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'; }

divide() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.3f", a / b }'; }

# Builds a driver of this folder, prints its path. BUILD is another build's folder.
driver() {
    make -s "${BUILD:-build/gcc}/bench/$1" >&2
    echo "${BUILD:-build/gcc}/bench/$1"
}

# id_requests TIMES PROMPT ANSWER [APART]: so many requests for --jsonl, prompts of ids; APART 0: all of them the same.
id_requests() {
    jq -nc --argjson times "$1" --argjson p "$2" --argjson n "$3" --argjson apart "${4:-31}" \
        'range($times) as $i | {ids: [range($p) | 5 + (. * 7 + $i * $apart) % 300], n: $n}'
}

# verdict RATIO RELATION LIMIT WHAT: the line that a script ends in.
verdict() {
    awk -v ratio="$1" -v relation="$2" -v limit="$3" -v what="$4" 'BEGIN {
        met = relation == ">=" ? ratio >= limit : ratio <= limit
        printf "%s: %.3f (target: %s %s) %s\n", what, ratio, relation, limit, met ? "met" : "MISSED"
    }'
}

echo "$shape, $threads threads, medians of $rounds alternating rounds, isa $(bin/bmc-prof --version | sed -n 's/^isa: *\([a-z0-9]*\).*/\1/p'), $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)"
