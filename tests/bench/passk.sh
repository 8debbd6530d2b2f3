#!/bin/sh
# pass@k of generated programs (Chen and others, 2021), and the metrics of BASS paper, figure 5 and
# tables 2 and 3, for problems in HumanEval's format: one JSON object per line with task_id, prompt,
# entry_point, test and canonical_solution.
#
#   sh tests/bench/passk.sh PROBLEMS.jsonl [OPTION ...]
#   SAMPLES_FROM=SAMPLES.jsonl sh tests/bench/passk.sh PROBLEMS.jsonl
#
# Options are those of bmc-spec; relative paths in them begin at the source tree. Figure 5:
#
#   BATCHES="1 2 4 8" TEMPS="0.2 0.6" sh tests/bench/passk.sh HumanEval.jsonl -m CODE.bmc \
#       -d DRAFT.bmc --ignore-eos --budget 2.5s
#
#   BATCHES       samples per task (10), generated as one batch; one row for each number
#   TEMPS         temperatures (0.2)
#   TOP_P, SEED   (0.95, 0)
#   N             tokens per sample (256)
#   LIMIT         tasks (all)
#   STRIP         1: prompts end before their last newline, since few tokenizers have a token boundary between it and the
#                 indentation that follows
#   K             of pass@k ("1"), as "1 10"
#   SAMPLES_FROM  take the samples from this file instead: objects with task_id, completion and,
#                 optionally, mean_logprob; or `canonical`: the problems' own solutions
#   RESULTS       write each sample with its result to this file
#   PYTHON        interpreter below /usr (/usr/bin/python3)
#   BMC_BIN       folder of the programs (bin)
#
# A completion ends before the first of "\nclass", "\ndef", "\n#", "\nif" and "\nprint", and is
# correct if prompt, completion and test run to the end. Programs run in sandbox.sh, whose variables
# apply (TIMEOUT, MEMORY_MB ..); if it cannot be set up, nothing is generated or run. The sandbox
# contains hostile programs; it does not keep one from forging a success, as by finding the
# random text that its last statement prints.
#
# pass@k is 1 - C(n - c, k) / C(n, k) for c correct ones of n samples, mean over tasks; "-" if a
# task has fewer than k. pass@first is the share of tasks whose sample of the best mean
# log-probability is correct, pass@batch that of tasks with a correct sample (with --budget:
# Pass@First and Pass@Finished of figure 5, where a task without a finished sample has failed).
# Needs jq, Python, util-linux.
set -eu
export BMC_CONFIG=none # no defaults of this account
fail() {
    echo "passk: $1" >&2
    exit "${2:-1}"
}
[ $# -gt 0 ] || fail "needs a file of problems; see the head of $0" 2
problems=$1
[ -f "$problems" ] || fail "$problems: no such file"
problems=$(realpath "$problems")
[ -z "${RESULTS:-}" ] || { : >"$RESULTS" && RESULTS=$(realpath "$RESULTS"); }
from=${SAMPLES_FROM:-}
case $from in '' | canonical) ;; *) [ -f "$from" ] || fail "$from: no such file"; from=$(realpath "$from") ;; esac
shift
cd "$(dirname "$0")/../.."
bin=${BMC_BIN:-bin} n=${N:-256} python=${PYTHON:-/usr/bin/python3} k=${K:-1}
case $python in /usr/*) ;; *) fail "PYTHON=$python: programs see /usr only" ;; esac
python=$(realpath "$python") # not by /etc/alternatives
[ -x "$python" ] || fail "$python: no such program; Python runs the generated programs (PYTHON=FILE)"
echo "$k" | grep -qxE '[1-9][0-9]*( [1-9][0-9]*)*' || fail "K=$k: needs positive numbers, as \"1 10\"" 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# Only the first line of jq's messages.
checked() { jq "$@" 2>"$work/error" || fail "$(sed -E '1!d; s/^(jq|gojq): //; s/^error( \([^)]*\))?: //' "$work/error")"; }

checked -c -n --arg file "$problems" --argjson limit "${LIMIT:-1000000}" '
    [inputs] | if length == 0 then error("\($file): no problem") else . end |
    to_entries | map(.key as $i | .value | if type != "object" then error("\($file): problem \($i + 1) is no object") else . end |
        . as $p | ("task_id", "prompt", "entry_point", "test") as $m |
        if $p[$m] | type != "string" then error("\($file): problem \($i + 1) needs \"\($m)\", a string") else . end) |
    [.[range(0; length; 4)]] |
    map(if .entry_point | test("^[A-Za-z_][A-Za-z0-9_]*$") | not then error("\($file): \(.task_id): entry_point is no name: \(.entry_point)") else . end) |
    (group_by(.task_id)[] | select(length > 1) | error("\($file): \(.[0].task_id) is there twice")),
    .[:$limit][]' "$problems" >"$work/problems"

# generate TEMPERATURE BATCH OPTION ..: samples of all problems; none where the budget is too short
generate() {
    temp=$1 batch=$2
    shift 2
    while IFS= read -r problem; do
        printf '%s' "$problem" | jq -j --arg strip "${STRIP:-0}" '(if $strip == "1" then .prompt | sub("\\s+$"; "") else .prompt end) + "\n"' >"$work/prompt" # the last newline of a file is dropped
        if ! "$bin"/bmc-spec -q --no-parse-special -f "$work/prompt" --samples "$batch" -n "$n" --temp "$temp" --top-p "${TOP_P:-0.95}" --seed "${SEED:-0}" "$@" \
            >"$work/answers" 2>"$work/error"; then
            grep -q 'answers was finished in time' "$work/error" || fail "$(head -n 1 "$work/error")"
        fi
        printf '%s' "$problem" | jq -c --slurpfile answers "$work/answers" \
            '.task_id as $id | $answers[] | {task_id: $id, completion: .text, mean_logprob}'
    done <"$work/problems"
}

# candidates: programs of the samples, best first: task, sample, and the program in base64.
candidates() {
    checked -c -n --slurpfile problems "$work/problems" --slurpfile samples "$work/samples" '
        INDEX($problems[]; .task_id) as $by |
        $samples | map(if type == "object" and (.task_id | type) == "string" and (.completion | type) == "string" then . else
            error("sample: needs \"task_id\" and \"completion\", strings; found: \(tojson | .[:80])") end) |
        map(select($by[.task_id])) |
        if length == 0 and ($samples | length) > 0 then error("no sample is of one of the problems") else . end |
        group_by(.task_id)[] | sort_by(-(.mean_logprob // 0)) | to_entries[] | .key as $rank | .value | $by[.task_id] as $p |
        {task_id, rank: $rank, ranked: (.mean_logprob != null), completion,
         cut: (reduce ("\nclass", "\ndef", "\n#", "\nif", "\nprint") as $stop (.completion; split($stop)[0] // ""))} |
        . + {program: ($p.prompt + .cut + "\n" + $p.test + "\ncheck(" + $p.entry_point + ")\n" | @base64)}' >"$work/candidates"
}

# judge: runs the candidates. A correct one reaches the statement after the test, which prints a
# random text.
judge() {
    : >"$work/verdicts"
    jq -r .program "$work/candidates" | while IFS= read -r program; do
        proof=$(od -An -N16 -tx8 /dev/urandom | tr -d ' \n')
        {
            echo "$program" | base64 -d
            printf 'print("\\n%s")\n' "$proof"
        } >"$work/program"
        status=0
        # From standard input, which the program cannot read again to find the proof.
        sh tests/bench/sandbox.sh "$python" -I - <"$work/program" >"$work/out" 2>"$work/error" || status=$?
        [ "$status" -ne 125 ] || fail "$(tail -n 1 "$work/error")"
        verdict=failed
        [ "$status" -ne 137 ] || verdict="timed out"
        if [ "$status" -eq 0 ] && [ "$(tail -c 33 "$work/out" | tr -d '\0')" = "$proof" ]; then verdict=passed; fi
        echo "\"$verdict\"" >>"$work/verdicts"
    done
    [ "$(wc -l <"$work/verdicts")" -eq "$(wc -l <"$work/candidates")" ] || exit 1
    jq -c --slurpfile verdicts "$work/verdicts" -n '[inputs] | to_entries[] | .key as $i | .value | del(.program) + {result: $verdicts[$i], passed: ($verdicts[$i] == "passed")}' \
        "$work/candidates" >"$work/results"
    [ -z "${RESULTS:-}" ] || cat "$work/results" >>"$RESULTS"
}

# row FIRST CELLS: the table's row
row() {
    jq -rn --arg cells "$1" --arg k "$k" --slurpfile problems "$work/problems" --slurpfile results "$work/results" '
        def passk(n; c; k): if n - c < k then 1 else 1 - reduce range(n - c + 1; n + 1) as $i (1; . * (1 - k / $i)) end;
        def mean: add / length;
        def percent: if . == null then "-" else "\(. * 1000 | round / 10) %" end;
        def share(f): map(if f then 1 else 0 end) | mean;
        ($results | group_by(.task_id) | INDEX(.[]; .[0].task_id)) as $by | [$problems[] | $by[.task_id] // []] as $tasks |
        [$k | split(" ")[] | tonumber as $k | if all($tasks[]; length >= $k) then [$tasks[] | passk(length; map(select(.passed)) | length; $k)] | mean else null end] as $passk |
        (if all($results[]; .ranked) then $tasks | share(.[0].passed // false) else null end) as $first |
        "| \($cells) | \($tasks | length) | \($results | length) | \($passk + [$first, ($tasks | share(any(.passed)))] | map(percent) | join(" | ")) |"'
}

if [ -n "$from" ]; then
    source="samples: $(basename "$from")"
    if [ "$from" = canonical ]; then
        checked -c 'if .canonical_solution | type == "string" then {task_id, completion: .canonical_solution} else error("\(.task_id): no canonical_solution") end' "$work/problems" >"$work/samples"
    else
        checked -c . "$from" >"$work/samples"
    fi
    candidates
else
    source="$n tokens per sample, bmc-spec $*"
fi
sh tests/bench/sandbox.sh --check || exit 1

echo "$(basename "$problems"): $source"
echo
echo "| temperature | batch | tasks | samples | $(for i in $k; do printf 'pass@%s | ' "$i"; done)pass@first | pass@batch |"
echo "| --- | --- | --- | --- | $(for i in $k; do printf -- '--- | '; done)--- | --- |"
if [ -n "$from" ]; then
    judge
    row "- | -"
    exit 0
fi
for temp in ${TEMPS:-0.2}; do
    for batch in ${BATCHES:-10}; do
        generate "$temp" "$batch" "$@" >"$work/samples"
        candidates
        judge
        row "$temp | $batch"
    done
done
