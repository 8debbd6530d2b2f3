#!/bin/sh
# A page of measurements of one model, build/papers/NAME.md: policy x cache type x drafter with memory, copies, padding and time;
# divergence and perplexity by cache type and window (quality.sh); needles in prose (retrieval.sh): `make papers MODEL=any.gguf`.
#
#   sh tests/bench/papers/model.sh MODEL.gguf|MODEL.bmc
#
#   TEXT       English prose, in paragraphs (/usr/share/common-licenses/GPL-3); DRAFT: a draft model (the model itself at DRAFT_TYPE, q2_k)
#   POLICIES, TYPES, DRAFTERS   ("upfront iterative bmc paged reserve segment headwise:group=1", "f16 q8 q4", "none suffix draft")
#   GEN, CTX   tokens for each of four requests, whose prompts are 1 to 4 quarters of PROMPT (1000) characters of TEXT (64); the context (2048)
#   ROUNDS     pairs of runs, baseline and cell, for times (3; 0: no times); CHARACTERS of TEXT for divergences (16500); PARTS "runs drafts quality needles"
#   LENGTHS, WAYS     of retrieval.sh ("1000 2000", "full headwise cache:q8 cache:q4 own:0.5 evicted")
set -eu
command="make papers MODEL=${1##*/}"
for variable in TEXT DRAFT_TYPE POLICIES TYPES DRAFTERS GEN CTX PROMPT ROUNDS CHARACTERS LENGTHS WAYS THREADS; do
    eval "value=\${$variable:-}"
    [ $variable != TEXT ] || value=${value##*/}
    case $value in '') ;; *\ *) command="$command $variable='$value'" ;; *) command="$command $variable=$value" ;; esac
done
model=$(realpath "${1:?a model: FILE.gguf or FILE.bmc}")
text=$(realpath "${TEXT:-/usr/share/common-licenses/GPL-3}")
. "$(dirname "$0")/lib.sh"
rounds=${ROUNDS:-3} parts=${PARTS:-runs drafts quality needles} ctx=${CTX:-2048}
gen=${GEN:-64} draft_type=${DRAFT_TYPE:-q2_k} policies=${POLICIES:-upfront iterative bmc paged reserve segment headwise:group=1} types=${TYPES:-f16 q8 q4} drafters=${DRAFTERS:-none suffix draft}
name=$(basename "${model%.*}") out=${OUT:-build/papers}

convert() { bin/bmc-convert -q "$@" 2>"$work/error" || fail "$(head -n 1 "$work/error")"; }

# run POLICY TYPE DRAFTER [REQUESTS]: the requests as one batch; statistics as a line of JSON. DRAFTER may be followed by options.
run() {
    policy=$1 type=$2 drafter=$3 requests=${4:-4}
    case $drafter in
    none) set -- bmc-gen --no-spec ;;
    draft*) set -- bmc-spec -d "$draft" ${drafter#draft} ;;
    *) set -- bmc-spec --$drafter ;;
    esac
    program=$1
    shift
    "bin/$program" -q -m "$work/model.bmc" --jsonl -np "$requests" -c "$ctx" -f "$work/in.$requests" --kv "$policy" --cache-type "$type" --temp 0 --ignore-eos \
        --profile none -t "$threads" --stats "$work/stats" "$@" >"$work/answers" 2>"$work/error" || fail "$policy, $type, $drafter: $(head -n 1 "$work/error")"
    jq -c --arg policy "$policy" --arg type "$type" --arg drafter "$drafter" --slurpfile answers "$work/answers" \
        '. + {policy: $policy, type: $type, drafter: $drafter, ids: ($answers | map(.ids)), ms: (.decode_ms + .sample_ms)}' "$work/stats"
}

# timed POLICY TYPE DRAFTER: time over upfront, f16, without drafts, in turns
timed() {
    for _ in $(seq "$rounds"); do { run upfront f16 none; run "$@"; } | jq -sc '{key: (.[1] | "\(.policy) \(.type) \(.drafter)"), ratio: (.[1].ms / .[0].ms)}'; done
}

# prepare: the draft model, and requests of uneven prompts in batches of 1, 4 and 8
prepare() {
    draft=${DRAFT:-$work/draft.bmc}
    [ -n "${DRAFT:-}" ] || convert "$model" --type "$draft_type" -o "$draft"
    for requests in 1 4 8; do
        tr '\n' ' ' <"$text" | jq -Rc --argjson n "$gen" --argjson r $requests --argjson p "${PROMPT:-1000}" '. as $t | range($r) | {prompt: $t[. * $p:. * $p + (. + 1) * $p / $r], n: $n}' >"$work/in.$requests"
    done
}

# Shared by programs of jq.
rows='def median: sort | (.[(length - 1) / 2 | floor] + .[length / 2 | floor]) / 2;
    def digits($n): . * pow(10; $n) | round / pow(10; $n);
    def spread: "\(median | digits(2)) (\(min | digits(2)) to \(max | digits(2)))";
    def line: "| " + (map(tostring) | join(" | ")) + " |";
    def head: line, "|" + (map(" --- |") | add);
    def distinct(f): reduce .[] as $x ([]; if index([$x | f]) then . else . + [$x | f] end);'

runs() {
    for policy in $policies; do for type in $types; do for drafter in $drafters; do run "$policy" "$type" "$drafter"; done; done; done >"$work/cells"
    {
        for policy in $policies; do [ "$policy" = upfront ] || timed "$policy" f16 none; done
        for type in $types; do [ "$type" = f16 ] || timed bmc "$type" none; done
        for drafter in $drafters; do [ "$drafter" = none ] || { timed upfront f16 "$drafter"; timed bmc f16 "$drafter"; }; done
    } >"$work/times"
    jq -rs --slurpfile times "$work/times" --arg gen "$gen" --arg draft "the model itself at $draft_type" --argjson timed "$rounds" "$rows"'
        ($times | group_by(.key) | map({(.[0].key): (map(.ratio) | spread)}) | add) as $time | . as $all | distinct(.type) as $types |
        "## Policy, cache type, drafter", "",
        "Four requests of uneven lengths as one batch, \($gen) greedy tokens each, context of \(.[0].N); `draft` is \($draft).",
        (if $timed > 0 then "Time is that of decoding over `upfront` with an f16 cache and no drafts: median, least and greatest ratio of pairs of runs in turns.", "" else "" end),
        (["policy", "drafter"] + ($types | map("\(.), MiB")) + ["entries copied", "padding, % of attended", "tokens per pass"] + (if $timed > 0 then ["time, f16"] else [] end) | head),
        (distinct([.policy, .drafter])[] as [$policy, $drafter] | [$all[] | select(.policy == $policy and .drafter == $drafter)] |
            ["`\($policy)`", $drafter] + map(.kv_resident_bytes / 1048576 | digits(1)) +
            (.[0] | [.kv_copied_rows, (.kv_padded_rows / .kv_rows_computed * 100 | digits(1)), ([.tokens_per_step, 1] | max | digits(2))]) +
            (if $timed > 0 then [$time["\($policy) f16 \($drafter)"] // if $policy == "upfront" and $drafter == "none" then 1 else "" end] else [] end) | line), "",
        ($types[] as $t | [$all[] | select(.type == $t)] |
            "\($t): the logits of all \(length) runs are \(if distinct(.logits_hash) | length == 1 then "equal" else "DIFFERENT, and the tokens \(if distinct(.ids) | length == 1 then "equal" else "DIFFERENT" end)" end)" +
            ($time["bmc \($t) none"] | if . then "; the time of `bmc` is \(.)." else "." end), "")' "$work/cells"
}

# Real drafts (BASS paper): by position, padded and per sequence, algorithm 1 with and without a budget for the batch.
drafts() {
    for requests in 1 4 8; do
        for _ in $(seq $((rounds > 0 ? rounds : 1))); do
            for way in "draft -k 0" "draft --always" "draft --always -k bass" "draft --always -k bass --batch-knee 1000" "draft --always -k bass --ragged pad" "draft --always -k bass --ragged split"; do
                run bmc f16 "$way" $requests | jq -c --argjson b $requests '. + {requests: $b}'
            done
        done
    done >"$work/drafts"
    jq -rs --arg draft "the model itself at $draft_type" --argjson timed "$rounds" "$rows"'
        "## Drafts", "", "Drafts by \($draft), batches of uneven prompts, f16 caches, policy `bmc`\(if $timed > 0 then "; times over decoding without drafts in the same round" else "" end). Drafting never pauses (`--always`), `-k bass` is algorithm 1",
        "of the BASS paper, whose lengths `--batch-knee 1000` does not limit; `--ragged pad` and `split` are its BASS-PAD and BASS-SPLIT.", "",
        (["batch", "drafter", "mean draft length", "tokens per pass", "accepted by position"] + (if $timed > 0 then ["time, all sequences", "first sequence"] else [] end) | head),
        (group_by(.requests)[] | (map(select(.drafter == "draft -k 0"))) as $plain | distinct(.drafter)[] as $way | map(select(.drafter == $way)) | select($way != "draft -k 0") | . as $runs |
            (.[0] | [.requests, "`\($way)`", (.draft_length_history // [] | if length > 0 then add / length | digits(1) else "" end), (.tokens_per_step | digits(2)),
                (.acceptance_by_position[:6] | map(digits(2)) | join(", "))]) +
            (if $timed > 0 then [([range($runs | length) | $runs[.].ms / $plain[.].ms] | spread), ([range($runs | length) | $runs[.].first_ptl_ms / $plain[.].first_ptl_ms] | spread)] else [] end) | line)' "$work/drafts"
}

quality() {
    jq -Rsj --argjson n "${CHARACTERS:-16500}" ".[:\$n]" "$text" >"$work/text"
    printf '\n## Divergence\n\n'
    TABLES="arithmetic caches windows" CACHES=${CACHES:-$types} THREADS=$threads sh tests/bench/quality.sh --text "$work/text" "$model"
}

needles() {
    printf '\n## Retrieval\n\nShare of right answers (`tests/bench/retrieval.sh`) in contexts of about %s tokens of TEXT. `headwise`: head by head from a file;\n' "${LENGTHS:-1000 2000}"
    printf '`own:0.5`: half of the heads streaming, chosen by `bmc-prof heads`; `evicted`: all heads streaming, 4 sinks and 256 recent entries (StreamingLLM).\n\n'
    for tasks in needle "track common frequent"; do
        THREADS=$threads TEXT=$text TASKS=$tasks LENGTHS=${LENGTHS:-1000 2000} WAYS=${WAYS:-full headwise cache:q8 cache:q4 own:0.5 evicted} \
            DEPTHS=$([ "$tasks" = needle ] && echo "0 13 26 39 52 65" || echo "0 40") sh tests/bench/retrieval.sh "$work/model.bmc" 2>>"$work/found" >>"$work/questions" || fail "$(tail -n 1 "$work/found")"
    done
    awk '{ if (!(($2 " " $3) in cell)) { if (!($2 in task)) { task[$2]; tasks[++n] = $2 } if (!($3 in way)) { way[$3]; ways[++m] = $3 } } cell[$2 " " $3] = $4 " of " $6 }
        END { printf "| cache |"; for (i = 1; i <= n; i++) printf " %s |", tasks[i]; printf "\n|"; for (i = 0; i <= n; i++) printf " --- |"
            for (j = 1; j <= m; j++) { printf "\n| `%s` |", ways[j]; for (i = 1; i <= n; i++) printf " %s |", cell[tasks[i] " " ways[j]] } print "" }' "$work/found"
    jq -rs 'group_by([.task, .length, .depth]) | map(select((map(select(.way == "full"))[0].text) != (map(select(.way == "headwise"))[0].text))) |
        "\nTexts of `full` and `headwise`: \(if length == 0 then "all equal" else "\(length) DIFFERENT" end)."' "$work/questions"
}

case $model in *.bmc) ln -s "$model" "$work/model.bmc" ;; *) convert "$model" -o "$work/model.bmc" ;; esac
mkdir -p "$out"
prepare
{
    printf '# %s\n\nBy `%s`; %s, %s threads, %s.\n\n' "$name" "$command" "$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)" "$threads" \
        "$(bin/bmc-prof --version | head -n 2 | tr -s '\n ' ' ')$(date -u +%F)"
    for part in $parts; do "$part"; done
} >"$work/page"
mv "$work/page" "$out/$name.md"
echo "papers: $out/$name.md" >&2
