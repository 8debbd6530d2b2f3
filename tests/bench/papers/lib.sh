# Shared by the scripts of the papers' entries, one per paper, whose functions print an entry's results as JSON lines
# (entry.h describes them). Run from the source tree after `make`; needs jq.
#
#   PAPERS_SIZE  short (default) or full: the papers' sizes, or as near as this machine allows
#   THREADS      (all cores)      ROUNDS  alternating rounds (5)
#   PYTHON       an interpreter with torch and transformers, for comparisons with them

cd "$(dirname "$0")/../../.."
size=${PAPERS_SIZE:-short} threads=${THREADS:-$(nproc)} rounds=${ROUNDS:-5}
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-papers.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

fail() {
    echo "$1" >&2
    exit 1
}

# pick SHORT FULL: the value for this size
pick() { if [ "$size" = full ]; then echo "$2"; else echo "$1"; fi; }

# turns SHORT FULL: rounds of expensive entries, which alternate runs of programs
turns() { echo "${ROUNDS:-$(pick "$1" "$2")}"; }

note() { jq -nc --arg text "$1" '{kind: "note", text: $text}'; }
form() { jq -nc --arg text "$1" '{kind: "form", text: $text}'; }
skip() {
    jq -nc --arg text "$1" '{kind: "skip", text: $text}'
    exit 0
}
markdown() { jq -Rsc '{kind: "markdown", text: .}'; }

# claim NAME SAMPLES LEAST [LARGEST [LABEL]]: a ratio of the paper beside ours, one sample per round
claim() {
    jq -nc --arg name "$1" --argjson samples "$2" --argjson lo "$3" --argjson hi "${4:-$3}" --arg title "${5:-$1}" \
        '{kind: "claim", name: $name, label: $title, samples: $samples, paper: [$lo, $hi]}'
}

# direction NAME SAMPLES WAY [LABEL]: the same where the paper gives no size: 1 above 1, -1 below, 0 equal
direction() {
    jq -nc --arg name "$1" --argjson samples "$2" --argjson way "$3" --arg title "${4:-$1}" \
        '{kind: "claim", name: $name, label: $title, samples: $samples, direction: $way}'
}

# share NAME SAMPLES LEAST [LARGEST [LABEL]]: a quantity of which only the size is claimed, within 10 %
share() { claim "$1" "$2" "$3" "${4:-$3}" "${5:-$1}" | jq -c '.direction = 0'; }

# counted NAME VALUE LEAST [LARGEST [LABEL]]: a ratio of counts or sizes, which is not timed
counted() { claim "$1" "[$2]" "$3" "${4:-$3}" "${5:-$1}" | jq -c '.exact = true'; }

# equal NAME VALUES: results that must be the same
equal() { jq -nc --arg name "$1" --argjson values "$2" '{kind: "equal", name: $name, values: $values}'; }

# prof FILE OPTION..: a subcommand of bmc-prof, its JSON in $work/FILE
prof() {
    out=$work/$1
    shift
    bin/bmc-prof "$@" -t "$threads" --format json >"$out" 2>"$work/error" || fail "bmc-prof: $(tail -n 1 "$work/error")"
}

# usecases FILE P:G.. -- OPTION..: rows with the generated tokens per second of prompts of P tokens and answers of G together,
# from the times of bmc-prof bench
usecases() {
    file=$1 cases=
    shift
    while [ "$1" != -- ]; do
        cases="$cases $1"
        shift
    done
    shift
    : >"$work/cases"
    for case in $cases; do
        prof prefill bench -p "${case%:*}" -n 0 "$@"
        prof decode bench -p 0 -n "${case#*:}" -d "${case%:*}" "$@"
        jq -c -s '(.[0].rows | map({(.policy): .}) | add) as $prefill | .[1].rows[] | . as $decode | $prefill[.policy] as $p |
            {policy, batch, n_prompt: $p.n_prompt, n_gen, samples: {tok_s_end_to_end: [range(.samples.tok_s_end_to_end | length) |
                $decode.n_gen / ($p.n_prompt / $p.samples.tok_s_end_to_end[.] + $decode.n_gen / $decode.samples.tok_s_end_to_end[.])]}}' \
            "$work/prefill" "$work/decode" >>"$work/cases"
    done
    jq -c -s '{rows: .}' "$work/cases" >"$work/$file"
}

# over FILE KEY A B: samples of KEY of row A over those of row B, per round; A and B are conditions of jq
over() {
    jq -c "([.rows[] | select($3)][0].samples[\"$2\"]) as \$a | ([.rows[] | select($4)][0].samples[\"$2\"]) as \$b |
        [range(\$a | length) | \$a[.] / \$b[.]]" "$work/$1"
}

# no_transformers: true if PYTHON has no transformers
no_transformers() { ! "${PYTHON:-false}" -c 'import torch, transformers' 2>/dev/null; }

# transformers FILE SHAPE LAYERS OPTION..: rates of transformers and of bmc-gen in turns (hf.py), JSON in $work/FILE
transformers() {
    out=$work/$1
    shift
    "$PYTHON" tests/bench/hf.py "$@" --rounds "$rounds" --threads "$threads" >"$out" 2>"$work/error" || fail "$(tail -n 1 "$work/error")"
    note "$1, $2 layers: transformers $(jq -r .transformers "$out"), torch $(jq -r .torch "$out"), bf16; tokens equal to the first way's: $(jq -r '[.same | to_entries[] | "\(.key) \(.value * 100 | round) %"] | join(", ")' "$out")"
}

# faster FILE A B: samples of the rate of way A over that of way B
faster() { jq -c --arg a "$2" --arg b "$3" '.tok_s as $x | [range($x[$a] | length) | $x[$a][.] / $x[$b][.]]' "$work/$1"; }

# curve FILE: a figure of total_ms by T from rows of bmc-prof sweep; TITLE
curve() {
    jq -c --arg title "$2" '[.rows[] | select(.T)] | sort_by(.T) | (.[0].total_ms) as $one |
        {kind: "figure", title: $title, x_name: "T, allocations", y_name: "time relative to T = 1", log2_x: true, series: [
            {name: "measured, with least and largest round", x: map(.T), y: map(.total_ms / $one), lo: map(.total_ms_min / $one), hi: map(.total_ms_max / $one)}]}' "$work/$1"
}

# entry NAME..: runs the function of an entry, the rest of the script's command line
entry=${1:?the name of an entry}
