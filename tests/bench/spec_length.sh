#!/bin/sh
# Draft length by batch size (BASS paper, algorithm 1): tokens per second, mean accepted length and
# mean draft length under several draft budgets, beside plain decoding. All settings of a batch
# alternate in every round; ratios are medians over rounds.
#
#   sh tests/bench/spec_length.sh [OPTION ...]      options of bmc-spec for speculative runs
#   MODEL=tinyllama-1.1b.bmc DRAFT=tinyllama-draft-55m.bmc P=0.8 sh tests/bench/spec_length.sh
#
#   MODEL, DRAFT  model files (the default models); DRAFT=lookup drafts by prompt lookup
#   P             simulated acceptance rate (unset: the drafter's own)
#   BATCHES       batch sizes ("1 4 8")
#   FREE_ROWS     draft budgets ("16 32 64 128 264"); default: the option is not given
#   BINS          folders of programs to compare ("bin"), one after the other in each round
#   ALWAYS        "--always" (the default), or empty: drafting may pause
#   N, ROUNDS     tokens per sequence (96), rounds (3)
# Needs jq.
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."
model=${MODEL:-models.d/grimm.bmc} draft=${DRAFT:-models.d/grimm-draft.bmc} n=${N:-96} rounds=${ROUNDS:-3} bins=${BINS:-bin}
batches=${BATCHES:-1 4 8} batch_knee=${FREE_ROWS:-16 32 64 128 264}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
drafter="-d $draft"
[ "$draft" != lookup ] || drafter=--lookup
isa=$(bin/bmc-spec --version | sed -n "s/^isa: *\([a-z0-9]*\).*/\1/p")
printf '%s, acceptance %s, %s tokens a sequence, %s rounds, isa %s, %s threads, %s\n\n' "$(basename "$model")" "${P:-measured}" "$n" "$rounds" \
    "$isa" "$(nproc)" "$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)"
echo "| batch | programs | budget | limit | draft length, mean (max) | accepted per pass | plain tok/s | tok/s | ratio (min..max) |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"

# run STATS BIN SEED OPTION ..
run() {
    stats=$1 bin=$2 seed=$3
    shift 3
    # shellcheck disable=SC2086
    $bin/bmc-spec -q -m "$model" $drafter --jsonl -np "$batch" -c $((n + 64)) --ignore-eos --seed "$seed" ${ALWAYS---always} --profile none --stats "$stats" "$@" <"$scratch/in" >"$scratch/out"
}

for batch in $batches; do
    if [ -n "${P:-}" ]; then
        jq -nc --argjson b "$batch" --argjson n "$n" 'range($b) | . as $i | {ids: [range(16) | 40 + (. * 7 + $i) % 50], n: $n}' >"$scratch/in"
    else
        jq -nc --argjson b "$batch" --argjson n "$n" '["Once upon a time", "The king said", "There was a girl", "In the forest", "The old woman", "A fish and a dog", "The wolf", "One day"] as $p |
            range($b) | {prompt: $p[. % 8], n: $n}' >"$scratch/in"
    fi
    for round in $(seq "$rounds"); do
        for bin in $bins; do
            tag=$(echo "$bin" | tr / _)
            [ -e "$scratch/plain.$round" ] || run "$scratch/plain.$round" "$bin" "$round" -k 0
            for rows in $batch_knee; do
                set_rows="--batch-knee $rows"
                [ "$rows" != default ] || set_rows=
                # shellcheck disable=SC2086
                run "$scratch/spec.$tag.$rows.$round" "$bin" "$round" ${P:+--simulate-acceptance $P} $set_rows "$@"
            done
        done
    done
    for bin in $bins; do
        tag=$(echo "$bin" | tr / _)
        for rows in $batch_knee; do
            jq -sc . "$scratch"/plain.* >"$scratch/p"
            jq -sc . "$scratch/spec.$tag.$rows".* >"$scratch/s"
            jq -nr --slurpfile p "$scratch/p" --slurpfile s "$scratch/s" --arg bin "$bin" --arg rows "$rows" '
                def median: sort | .[length / 2 | floor];
                def r2: . * 100 | round / 100;
                def rate: .decode_tokens / (.decode_ms + .sample_ms) * 1000;
                $p[0] as $p | $s[0] as $s | [range($p | length) | ($s[.] | rate) / ($p[.] | rate)] as $x | [$s[].draft_length_history[]] as $h |
                "| \($s[0].batch) | \($bin) | \($s[0].batch_knee) | \($s[0].k) | \($h | add / length | r2) (\($h | max)) | \([$s[].tokens_per_step - 1] | add / length | r2) | " +
                "\([$p[] | rate] | median | r2) | \([$s[] | rate] | median | r2) | \($x | median | r2) (\($x | min | r2)..\($x | max | r2)) |"'
        done
    done
    rm -f "$scratch"/plain.* "$scratch"/spec.*
done
