#!/bin/sh
# Several instances against one process (BMC paper, VIII: figure 14 and table VII in form): ranks of bmc-gen, which divide
# the cores and a batch of requests, over models of random bf16 weights. Iterative is equivalent to Hugging Face
# transformers, paged to vLLM. Rates are generated tokens per second of all ranks, end to end. Needs `make mpi`.
#
#   SHAPES   (opt-350m opt-1.3b)    BATCHES  ("32 128")    POLICIES  ("iterative paged:16 bmc")
#   LAYERS   layers of the shape (2)
#   PROMPT   (64) and ANSWER (64): tokens of a request
#   LAUNCHER starts -n RANKS processes with %t threads each (mpirun --bind-to core --map-by slot:PE=%t); on a busy machine
#            "mpirun --oversubscribe"
set -eu
shapes=${SHAPES:-opt-350m opt-1.3b} SHAPE=${SHAPES:-opt-350m opt-1.3b}
. "$(dirname "$0")/lib.sh"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
launcher=${LAUNCHER:-mpirun --bind-to core --map-by slot:PE=%t}
prompt=${PROMPT:-64} answer=${ANSWER:-64}
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-instances.XXXXXX")
trap 'rm -rf "$work"' EXIT

# run BATCH RANKS POLICY: the statistics of a run
run() {
    each=$((threads / $2)) start=
    [ "$2" -eq 1 ] || start="$(echo "$launcher" | sed "s/%t/$each/g") -n $2"
    # shellcheck disable=SC2086 # words
    $start bin/bmc-gen --no-spec -q --jsonl --ignore-eos --prefix-cache-mb 0 --profile none --stats - -m "$work/model.bmc" \
        -np $((($1 + $2 - 1) / $2)) -t $each -c $((prompt + answer)) --kv "$3" <"$work/requests" | tail -n 1
}

for name in $shapes; do
    sed "s/^layers .*/layers ${LAYERS:-2}/" "models.d/shapes/$name.shape" >"$work/$name.shape"
    bin/bmc-convert --synth "$work/$name.shape" --type bf16 -o "$work/model.bmc"
    printf '\n%s\n\n| batch | ranks | threads of each | policy | tok/s | step, ms | memory, MiB | against the first |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n' "$name"
    for batch in ${BATCHES:-32 128}; do
        id_requests "$batch" "$prompt" "$answer" 7 >"$work/requests"
        rm -f "$work"/rows
        for _ in $(seq "$rounds"); do
            for ranks in $(seq "$threads"); do
                [ $((threads % ranks)) -eq 0 ] || continue
                for policy in ${POLICIES:-iterative paged:16 bmc}; do
                    run "$batch" "$ranks" "$policy" | jq -c --arg policy "$policy" --argjson ranks "$ranks" '{$policy, $ranks,
                        rate: (.sampled_tokens / (.prefill_ms + .decode_ms + .sample_ms) * 1e3), step: (.decode_ms / (.decode_steps / .ranks)), memory: .pss_bytes}' >>"$work/rows"
                done
            done
        done
        jq -rs --argjson batch "$batch" --argjson threads "$threads" 'def median: sort | .[(length - 1) / 2 | floor];
            . as $all | reduce .[] as $x ([]; if any(.[]; .policy == $x.policy and .ranks == $x.ranks) then . else . + [$x] end) |
            map(. as $w | $all | map(select(.policy == $w.policy and .ranks == $w.ranks)) | {policy: $w.policy, ranks: $w.ranks, rate: (map(.rate) | median), step: (map(.step) | median), memory: (map(.memory) | median)}) |
            .[0].rate as $first | .[] | "| \($batch) | \(.ranks) | \($threads / .ranks | floor) | \(.policy) | \(.rate * 10 | round / 10) | \(.step * 100 | round / 100) | \(.memory / 1048576 | round) | \(.rate / $first * 100 | round / 100) |"' "$work/rows"
    done
    rm "$work/model.bmc"
done
