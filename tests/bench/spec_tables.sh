#!/bin/sh
# Tables of the BASS and BMC papers on speculation, in their form, as Markdown: models of the
# papers' shapes with random weights, simulated acceptance.
#
#   sh tests/bench/spec_tables.sh [TABLE ...] [-- OPTION ...]
#
# Options are those of bmc-spec for speculative runs, as --batch-knee 264. By default, all tables:
#
#   bass-1 .. bass-3  time per output token of the first, last and all sequences, by batch
#   bass-4, bass-5    drafts: time per output token of the draft, and of the first sequence
#   bass-6            ablation: attention calls, fixed draft lengths
#   bmc-III           32 sequences of uneven lengths, with and without speculation
#   bmc-12            figure 12: tasks of Spec-Bench, a tree of 26 tokens of an EAGLE head
#   bmc-13            figure 13: HumanEval's lengths, a parallel draft model (PARD)
#
# Tables I and VIII of the BMC paper are tune_spec.sh, figure 5 of the BASS paper is passk.sh.
# Methods alternate in each round; values are medians. Throttling is off (--always).
#
#   QUICK      1: tiny models of the same families, few tokens, batch 2, one round: tries the
#              script, measures nothing
#   SCALE      share of the layers that target and draft keep, at least one (default: the largest of
#              1, 1/2, 1/4 .. that fits); multiply times by its inverse to compare them with the
#              paper's. Ratios are the paper's only while the draft keeps the same share
#   MEMORY_MB  for target and draft, whose files need as much of TMPDIR (60 % of MemAvailable)
#   N, PROMPT, BATCHES, ACCEPTANCE     instead of the table's
#   SETTINGS   the same, types of "WEIGHTS:CACHE .."
#   ROUNDS     (3; QUICK: 1)
#   THREADS    (all cores)
#   BMC_BIN    folder of the programs (bin)
#   OPTIONS    of bmc-spec for all runs, as "--attn blas"
#   TARGETS    only the table's rows of these targets, as opt-13b
#   SAMPLES    file to which the values of all rounds are appended, a JSON object per cell
#   REQUESTS   of bmc-III (32), and questions per task of bmc-12 (2)
#   QUESTIONS  Spec-Bench's question.jsonl: lengths of the prompts of bmc-12, and of the prompts and
#              references of its GSM8K questions for bmc-III; 4 tokens count as 3 words (default:
#              mean lengths of that file)
#
# The draft length of the BASS tables adapts by algorithm 1 of the paper (-k bass). Prompts are
# random tokens. Acceptance rates are those of BASS paper, tables 4 and 5, or 0.8 where
# there is none: of each draft token, whatever precedes it, in a tree of the best child of each
# node. Needs jq.
# shellcheck disable=SC2086 # options are words
set -eu
export BMC_CONFIG=none # no defaults of this account
questions=${QUESTIONS:+$(realpath "$QUESTIONS")} samples=${SAMPLES:+$(realpath "$SAMPLES")}
cd "$(dirname "$0")/../.."
bin=${BMC_BIN:-bin} rounds=${ROUNDS:-3} threads=${THREADS:-$(nproc)} quick=${QUICK:-}
[ -z "$quick" ] || rounds=${ROUNDS:-1}

# table, form, target, draft, acceptance rate, draft options, tokens of prompt and answer, settings,
# batches. Prompts of 1024 tokens stand for XSum's articles with one example, 160 for HumanEval's.
configurations() {
    sed 's/^ *//' <<'END'
    bass-1  latency  opt-13b     opt-125m             0.785 -k:bass     1024 128 bf16:bf16,q8_channel:q8 1,2,4,8
    bass-2  latency  codegen-16b codegen-350m         0.8   -k:bass     160  256 bf16:bf16,q8_channel:q8 1,2,4,8
    bass-3  latency  bass-7.8b   bass-draft-310m      0.874 -k:bass     160  256 bf16:bf16,q8_channel:q8 1,2,4,8,16
    bass-4  drafts   bass-7.8b   bass-draft-310m      0.874 -k:bass     160  256 q8_channel:q8           1,2,4,8,16
    bass-4  drafts   bass-7.8b   bass-draft-510m      0.885 -k:bass     160  256 q8_channel:q8           1,2,4,8,16
    bass-4  drafts   bass-7.8b   bass-draft-1b        0.872 -k:bass     160  256 q8_channel:q8           1,2,4,8,16
    bass-5  drafts   opt-13b     opt-125m             0.785 -k:bass     1024 128 q8_channel:q8           1,2,4,8
    bass-5  drafts   opt-13b     opt-350m             0.763 -k:bass     1024 128 q8_channel:q8           1,2,4,8
    bass-6  ablation opt-13b     opt-125m             0.785 -k:bass     1024 128 q8_channel:q8           2,4,8
    bass-6  ablation codegen-16b codegen-350m         0.8   -k:bass     160  256 q8_channel:q8           2,4,8
    bass-6  ablation bass-7.8b   bass-draft-310m      0.874 -k:bass     160  256 q8_channel:q8           2,4,8
    bmc-III uneven   opt-1.3b    opt-125m             0.785 -           60   67  bf16:bf16               32
    bmc-III uneven   opt-2.7b    opt-125m             0.785 -           60   67  bf16:bf16               32
    bmc-III uneven   opt-6.7b    opt-125m             0.785 -           60   67  bf16:bf16               32
    bmc-12  tasks    llama-2-7b  llama-2-7b-eagle     0.8   --tree:26   -    256 bf16:bf16               1
    bmc-13  even     llama-3-8b  llama-3.2-1b-pard    0.8   -k:8        160  256 bf16:bf16               1
END
}

# Of Spec-Bench: task, mean tokens of a first turn.
task_lengths='MT-Bench 65,translation 34,summarization 761,QA 12,math 60,RAG 679'

fail() {
    echo "spec_tables: $1" >&2
    exit "${2:-1}"
}

tables=
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    configurations | grep -q "^$1 " || fail "$1: no such table; there are: $(configurations | cut -d ' ' -f 1 | uniq | paste -sd ' ')" 2
    tables="$tables $1"
    shift
done
[ $# -eq 0 ] || shift
: "${tables:=$(configurations | cut -d ' ' -f 1 | uniq)}"
[ -z "${SCALE:-}" ] || echo "$SCALE" | awk -F / '{ x = $1 / ($2 ? $2 : 1); exit !(/^[0-9.]+(\/[0-9]+)?$/ && x > 0 && x <= 1) }' ||
    fail "SCALE=$SCALE: needs a share of at most 1, as 1/4" 2
[ -z "$questions" ] || [ -f "$questions" ] || fail "$questions: no such file"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM

# ---- models ----

# megabytes SHAPE TYPE PERCENT: size of a model with that share of its layers, rounded up
megabytes() {
    awk -v type="$2" -v percent="$3" '{ s[$1] = $2 } END {
        h = s["hidden"]; ffn = s["ffn"] ? s["ffn"] : 4 * h; kv = s["kv_heads"] ? s["kv_heads"] / s["heads"] : 1
        layer = h * h * (2 + 2 * kv) + h * ffn * (s["norm_eps"] ? 3 : 2)
        bytes = type == "f32" ? 4 : type ~ /16/ ? 2 : 1.1
        printf "%d\n", (layer * s["layers"] * percent / 100 + 2 * s["vocab"] * h) * bytes / 1e6 + 1 }' "models.d/shapes/$1.shape"
}

# Memory and disk that models may have.
limit=$(awk '$1 == "MemAvailable:" { printf "%d", $2 * 0.6 / 1000 }' /proc/meminfo)
limit=${MEMORY_MB:-$limit}
disk=$(df -Pk "$scratch" | awk 'NR == 2 { printf "%d", $4 * 0.9 / 1000 }')
[ "$disk" -ge "$limit" ] || limit=$disk

# percent_that_fits TABLE TARGET SETTINGS: the largest share of layers with which the target and any
# of the table's drafts fit
percent_that_fits() {
    percent=100
    while :; do
        largest=0
        for setting in $3; do
            for draft in $(configurations | awk -v table="$1" -v target="$2" '$1 == table && $3 == target { print $4 }'); do
                mb=$(($(megabytes "$2" "${setting%:*}" "$percent") + $(megabytes "$draft" "${setting%:*}" "$percent")))
                [ "$mb" -le "$largest" ] || largest=$mb
            done
        done
        [ "$largest" -gt "$limit" ] || break
        percent=$(awk -v p="$percent" 'BEGIN { print p / 2 }')
        awk -v p="$percent" 'BEGIN { exit p < 2 }' || fail "$2 does not fit in $limit MB (MEMORY_MB) with any number of layers"
    done
    echo "$percent"
}

# kept_layers SHAPE: $percent of its layers, at least one
kept_layers() {
    awk -v percent="$percent" -v quick="$quick" '$1 == "layers" {
        n = int($2 * percent / 100 + 0.5)
        print (n < 1 ? 1 : quick && n > 2 ? 2 : n) }' "models.d/shapes/$1.shape"
}

# make_model FILE SHAPE TYPE SEED
make_model() {
    # shellcheck disable=SC2016 # awk's
    awk -v layers="$(kept_layers "$2")" -v quick="$quick" '
        BEGIN { if (quick) { tiny["hidden"] = 64; tiny["heads"] = 4; tiny["ffn"] = 128; tiny["vocab"] = 320; tiny["rope_dim"] = 8
                             tiny["embed"] = 32; tiny["eos"] = 2; tiny["mask_token"] = 319; tiny["kv_heads"] = 4 } }
        $1 == "layers" { $2 = layers }
        $1 in tiny { $2 = tiny[$1] }
        { print }' "models.d/shapes/$2.shape" >"$scratch/this.shape"
    "$bin"/bmc-convert --synth "$scratch/this.shape" --type "$3" --seed "$4" -o "$1" >"$scratch/out" 2>"$scratch/error" || fail "$2: $(head -n 1 "$scratch/error")"
}

# member SHAPE KEY: a line of a shape file
member() { awk -v key="$2" '$1 == key { print $2 }' "models.d/shapes/$1.shape"; }

# ---- runs ----

# requests BATCH: copies of one prompt, with seeds of their own
requests() {
    jq -nc --argjson batch "$1" --argjson p "$prompt" --argjson n "$n" \
        'range($batch) | {ids: [range($p) | 40 + . * 7 % 250], n: $n, seed: .}' >"$scratch/in"
}

# lengths: one request per line "PROMPT ANSWER" of standard input
lengths() {
    jq -Rnc '[inputs] | to_entries[] | .key as $i | .value | split(" ") | map(tonumber) | {ids: [range(.[0]) | 40 + (. * 7 + $i * 31) % 250], n: .[1], seed: $i}' >"$scratch/in"
}

# run NAME ROUND MODEL SETTING BATCH OPTION ..: writes $scratch/stats.NAME.ROUND
run() {
    stats=$scratch/stats.$1.$2 model=$scratch/$3.bmc cache=${4#*:} parallel=$5
    shift 5
    "$bin"/bmc-spec -q -m "$model" --cache-type "$cache" --jsonl -np "$parallel" -t "$threads" --temp 0.2 --ignore-eos --always \
        --profile none --stats "$stats" -f "$scratch/in" ${OPTIONS:-} "$@" >"$scratch/out" 2>"$scratch/error" || fail "$(head -n 1 "$scratch/error")"
}

# values NAME FILTER: that of each round's statistics, as JSON
values() { jq -sc "map($2)" "$scratch"/stats."$1".*; }

# sample KEY VALUE ..: appends an object to $SAMPLES; values are JSON
sample() {
    [ -n "${SAMPLES:-}" ] || return 0
    printf '"table" "%s" "target" "%s" "draft" "%s"' "$table" "$target" "$draft" >"$scratch/sample"
    while [ $# -gt 0 ]; do
        printf ' "%s" %s' "$1" "$2" >>"$scratch/sample"
        shift 2
    done
    jq -sc '[. as $x | range(0; length; 2) | {key: $x[.], value: $x[. + 1]}] | from_entries' "$scratch/sample" >>"$samples"
}

median='def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2] + .[length / 2 - 1]) / 2 end; def two: . * 100 | round / 100;'

# ---- forms: each prints the rows of a configuration ----

# Tables 1 to 3: regular decoding and speculation by precision and batch.
latency_head() {
    echo "| Prec. | Batch | Method | First | | Last | | All | | tokens per pass |"
    echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
}
latency() {
    for setting in $settings; do
        prepare "$setting"
        for batch in $batches; do
            requests "$batch"
            for round in $(seq "$rounds"); do
                run regular "$round" target "$setting" "$batch" $drafting -k 0
                run speculative "$round" target "$setting" "$batch" $drafting "$@"
            done
            sample setting "\"$setting\"" batch "$batch" rd "$(values regular '[.first_ptl_ms, .last_ptl_ms, .all_ptl_ms]')" \
                speculative "$(values speculative '[.first_ptl_ms, .last_ptl_ms, .all_ptl_ms]')"
            jq -nr --arg setting "$setting" --arg batch "$batch" --argjson r "$(values regular '[.first_ptl_ms, .last_ptl_ms, .all_ptl_ms, .tokens_per_step]')" \
                --argjson s "$(values speculative '[.first_ptl_ms, .last_ptl_ms, .all_ptl_ms, .tokens_per_step]')" "$median"'
                def cells($x): [range(3) as $i | ($x | map(.[$i]) | median) as $ms | "\($ms | two) ms | \(($r | map(.[$i]) | median) / $ms | two)x"] + [$x | map(.[3]) | median | two | tostring] | join(" | ");
                "| \($setting) | \($batch) | RD | \(cells($r)) |", "| \($setting) | \($batch) | speculative | \(cells($s)) |"'
            rm "$scratch"/stats.*
        done
    done
}

# Tables 4 and 5: a draft per column.
drafts_head() { :; }
drafts() {
    prepare "$settings"
    {
        printf 'draft model\t%s\n#layer\t%s\n#head\t%s\nhidden dimension\t%s\n' "$draft" "$(member "$draft" layers)" "$(member "$draft" heads)" "$(member "$draft" hidden)"
        printf '#param, as measured\t%s\n' "$("$bin"/bmc-convert --info --format json "$scratch/draft.bmc" | jq -r '"\(.parameters / 1e4 | round / 100)M in \(.layers) layers"')"
        printf 'token acceptance rate (simulated)\t%s %%\n' "$(awk -v p="$acceptance" 'BEGIN { print p * 100 }')"
        for metric in draft first; do
            for batch in $batches; do
                requests "$batch"
                for round in $(seq "$rounds"); do
                    case $metric in
                    draft) run draft "$round" draft "$settings" "$batch" --lookup -k 0 ;;
                    first) run first "$round" target "$settings" "$batch" $drafting "$@" ;;
                    esac
                done
                sample metric "\"$metric\"" batch "$batch" ms "$(values "$metric" "$(if [ "$metric" = draft ]; then echo .all_ptl_ms; else echo .first_ptl_ms; fi)")"
                case $metric in
                draft) printf 'draft PTL, batch size %s\t' "$batch" && values draft .all_ptl_ms ;;
                first) printf '1st Seq PTL, batch size %s\t' "$batch" && values first .first_ptl_ms ;;
                esac | jq -Rr "$median"' split("\t") | "\(.[0])\t\(.[1] | fromjson | median | two) ms"'
                rm "$scratch"/stats.*
            done
        done
    } >"$scratch/column.$column"
}
drafts_tail() { # the columns side by side
    paste "$scratch"/column.* | awk -F '\t' '{ line = "| " $1; for (i = 2; i <= NF; i += 2) line = line " | " $i; print line " |"
        if (NR == 1) { line = "| ---"; for (i = 2; i <= NF; i += 2) line = line " | ---"; print line " |" } }'
    rm "$scratch"/column.*
}

# Table 6: choices of the implementation, first sequence.
ablation_head() { :; }
ablation() {
    [ "$column" -eq 1 ] || echo
    echo "| $target: 1st Seq PTL (ms), batch | $(echo "$batches" | sed 's/ / | /g') |"
    echo "| --- | $(for batch in $batches; do printf -- '--- | '; done)"
    prepare "$settings"
    sed 's/^ *//' <<'END' >"$scratch/choices"
        one call, adaptive length=
        BASS-PAD: one padded call=--ragged pad
        BASS-SPLIT: a call per sequence=--ragged split
        fixed draft size 4=-k 4
        fixed draft size 6=-k 6
        fixed draft size 8=-k 8
END
    for batch in $batches; do
        requests "$batch"
        for round in $(seq "$rounds"); do
            i=0
            while IFS= read -r choice; do
                i=$((i + 1))
                case $choice in
                *=-k*) run "$i.$batch" "$round" target "$settings" "$batch" $drafting ${choice#*=} ;; # no adaptive length, nor options of it
                *) run "$i.$batch" "$round" target "$settings" "$batch" $drafting "$@" ${choice#*=} ;;
                esac
            done <"$scratch/choices"
        done
    done
    i=0
    while IFS= read -r choice; do
        i=$((i + 1))
        for batch in $batches; do sample choice "\"${choice#*=}\"" batch "$batch" ms "$(values "$i.$batch" .first_ptl_ms)"; done
        for batch in $batches; do values "$i.$batch" .first_ptl_ms; done |
            jq -sr --arg name "${choice%%=*}" "$median"'"| \($name) | \(map(median | two | tostring) | join(" | ")) |"'
    done <"$scratch/choices"
    rm "$scratch"/stats.*
}

# Table III, figures 12 and 13: the requests under both policies, with and without speculation.
policies_head() {
    echo "| $1 | regular, iterative (tok/s) | regular, bmc | speculative, iterative | speculative, bmc | bmc over iterative: regular | speculative | over regular iterative: speculative | speculative, bmc | tokens per pass |"
    echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
}
room=32 # of the context, for draft tokens beyond the last one
policies() { # LABEL OPTION ..
    label=$1
    shift
    for round in $(seq "$rounds"); do
        for kv in iterative bmc; do
            run "regular-$kv" "$round" target "$settings" "$batches" $drafting --kv "$kv" -c "$context" -k 0
            run "speculative-$kv" "$round" target "$settings" "$batches" $drafting $draft_options "$@" --kv "$kv" -c "$context"
        done
    done
    for name in regular-iterative regular-bmc speculative-iterative speculative-bmc; do
        values "$name" '[.sampled_tokens, .prefill_ms + .decode_ms + .sample_ms, .tokens_per_step * .steps, .steps]'
    done | jq -sc . | tee -a "$scratch/sums" >"$scratch/case"
    sample label "\"$label\"" ways "$(cat "$scratch/case")"
    policy_row "$label" <"$scratch/case"
    rm "$scratch"/stats.*
}
policy_row() { # of one or several cases: for each way its rounds of [tokens, ms, tokens of passes, passes]
    jq -sr --arg name "$1" "$median"'map(map(map({x: .}))) | transpose | map(transpose | map(map(.x) | transpose | map(add))) |
        map(map(.[0] / .[1] * 1000) | median) as $x |
        "| \($name) | \(($x | map(two)) + ([$x[1] / $x[0], $x[3] / $x[2], $x[2] / $x[0], $x[3] / $x[0]] | map("\(two)x")) + [.[3] | map(.[2] / .[3]) | median | two] | map(tostring) | join(" | ")) |"'
}

even_head() { policies_head "model"; }
even() {
    prepare "$settings"
    requests "$batches"
    context=$((prompt + n + room))
    policies "$target, $draft" "$@"
}

uneven_head() { policies_head "model"; }
uneven() {
    prepare "$settings"
    count=${REQUESTS:-32}
    if [ -n "$questions" ]; then
        jq -r -n --argjson count "$count" 'def tokens: [splits("\\s+")] | length * 4 / 3 | ceil;
            [inputs | select(.category == "math_reasoning")][:$count][] | "\(.turns[0] | tokens) \(.reference[0] | tokens)"' "$questions"
    else # between a third and twice the mean
        awk -v count="$count" -v p="$prompt" -v n="$n" 'BEGIN { for (i = 0; i < count; i++) print int(p / 3 + p * 5 / 3 * (i * 11 % 32) / 31 + 1), int(n / 3 + n * 5 / 3 * (i * 5 % 32) / 31 + 1) }'
    fi >"$scratch/lengths"
    context=$(awk '$1 + $2 > most { most = $1 + $2 } END { print most + 0 }' "$scratch/lengths")
    [ "$context" -gt 0 ] || fail "$questions: no question of category math_reasoning"
    context=$((context + room))
    lengths <"$scratch/lengths"
    policies "$target, $draft" "$@"
}

tasks_head() { policies_head "task"; }
tasks() {
    prepare "$settings"
    count=${REQUESTS:-2}
    if [ -n "$questions" ]; then
        jq -r -n --argjson count "$count" --argjson n "$n" '
            {"translation": "translation", "summarization": "summarization", "qa": "QA", "math_reasoning": "math", "rag": "RAG"} as $names |
            [inputs | {task: ($names[.category] // "MT-Bench"), p: (.turns[0] | [splits("\\s+")] | length * 4 / 3 | ceil)}] |
            group_by(.task)[][:$count][] | "\(.task) \(.p) \($n)"' "$questions"
    else
        echo "$task_lengths" | tr , '\n' | awk -v count="$count" -v n="$n" '{ for (i = 0; i < count; i++) print $1, $2, n }'
    fi | if [ "$prompt" = - ]; then cat; else awk -v p="$prompt" '{ print $1, p, $3 }'; fi >"$scratch/lengths"
    context=$(awk '$2 + $3 > most { most = $2 + $3 } END { print most + 0 }' "$scratch/lengths")
    context=$((context + room))
    rm -f "$scratch/sums"
    for task in $(cut -d ' ' -f 1 "$scratch/lengths" | uniq); do
        awk -v task="$task" '$1 == task { print $2, $3 }' "$scratch/lengths" | lengths
        policies "$task" "$@"
    done
    policy_row overall <"$scratch/sums"
}

# prepare SETTING: target and draft with these weights; $drafting are the options that draft.
prepare() {
    make_model "$scratch/target.bmc" "$target" "${1%:*}" 0
    make_model "$scratch/draft.bmc" "$draft" "${1%:*}" 1
    drafting="-d $scratch/draft.bmc --simulate-acceptance $acceptance"
}

# ---- tables ----

# configure CONFIGURATION: sets its variables, with those of the environment
configure() {
    set -- $1
    form=$2 target=$3 draft=$4 acceptance=${ACCEPTANCE:-$5} prompt=$7 n=$8 settings=${SETTINGS:-$(echo "$9" | tr , ' ')}
    draft_options=$(echo "$6" | sed 's/^-$//; s/:/ /')
    shift 9
    batches=${BATCHES:-$(echo "$1" | tr , ' ')} percent=100
    if [ -n "$quick" ]; then
        batches=${BATCHES:-2} prompt=16 n=16
    fi
    prompt=${PROMPT:-$prompt} n=${N:-$n}
    case $form in # one batch, one precision
    even | tasks | uneven) batches=${batches%% *} settings=${settings%% *} ;;
    drafts | ablation) settings=${settings##* } ;;
    esac
    if [ -n "${SCALE:-}" ]; then
        percent=$(echo "$SCALE" | awk -F / '{ print 100 * $1 / ($2 ? $2 : 1) }')
    elif [ -z "$quick" ]; then
        percent=$(percent_that_fits "$table" "$target" "$settings") || exit 1
    fi
}

echo "isa $("$bin"/bmc-spec --version | sed -n 's/^isa: *\([a-z0-9]*\).*/\1/p'), $threads threads, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)"
echo "medians of $rounds alternating rounds; random weights, simulated acceptance${quick:+; tiny models: nothing is measured}"
for table in $tables; do
    configurations | awk -v table="$table" -v targets="${TARGETS:-}" '$1 == table && (targets == "" || index(" " targets " ", " " $3 " "))' >"$scratch/rows"
    [ -s "$scratch/rows" ] || fail "TARGETS=$TARGETS: $table has none of them" 2
    printf '\n### %s\n\n' "$(echo "$table" | sed 's/bass-/BASS paper, table /; s/bmc-I/BMC paper, table I/; s/bmc-/BMC paper, figure /')"
    while IFS= read -r configuration; do
        configure "$configuration"
        echo "- $target ($(kept_layers "$target") of $(member "$target" layers) layers), drafts by $draft ($(kept_layers "$draft") of $(member "$draft" layers)); acceptance rate $acceptance, prompts of ${prompt#-} tokens, $n tokens each" | sed 's/prompts of  tokens, //'
    done <"$scratch/rows"
    echo
    column=0
    while IFS= read -r configuration <&4; do
        configure "$configuration"
        column=$((column + 1))
        [ "$column" -gt 1 ] || "${form}_head"
        $form "$@"
    done 4<"$scratch/rows"
    [ "$form" != drafts ] || drafts_tail
done
