#!/bin/sh
# Several instances against one process (BMC paper, VIII, figure 14 and table VII in form): R ranks of t threads, R x t = all
# cores, that divide B requests under bmc, against one process of all cores under iterative (Hugging Face's way), paged (vLLM's) and
# bmc. Random bf16 weights of each shape; needs `make mpi`.
#
#   SHAPES   (opt-350m opt-1.3b)    BATCHES  (32 128)
#   LAYERS   of the shape that are run (2)
#   PROMPT   (64) and ANSWER (64): tokens of a request
#   MPIRUN   (mpirun --bind-to core --map-by slot:PE=t): as root also --allow-run-as-root, on busy machines --oversubscribe
#
# Columns: prompts' and generated tokens per second of the whole run, from the first prompt to the last token; milliseconds of a
# decode step, which is what each sequence waits for its next token; memory of all processes, shared pages counted once (Pss); and
# tokens per second against iterative. Medians of alternating rounds.
set -eu
shapes=${SHAPES:-opt-350m opt-1.3b} SHAPE=${SHAPES:-opt-350m opt-1.3b}
. "$(dirname "$0")/lib.sh"

layers=${LAYERS:-2} prompt=${PROMPT:-64} answer=${ANSWER:-64}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-instances.XXXXXX")
trap 'rm -rf "$work"' EXIT

# run RANKS THREADS POLICY BATCH: one run, its figures as a line.
run() {
    launch=
    [ "$1" -eq 1 ] || launch="${MPIRUN:-mpirun --bind-to core --map-by slot:PE=$2} -n $1"
    # shellcheck disable=SC2086 # a list of words
    $launch bin/bmc-gen -q -m "$work/model.bmc" --jsonl -f "$work/in" -b $((($4 + $1 - 1) / $1)) -t "$2" --kv "$3" --profile none \
        -c $((prompt + answer)) --ignore-eos --share-mb 0 --stats "$work/stats" >/dev/null
    jq -r '[(.prefill_tokens + .sampled_tokens) / (.prefill_ms + .decode_ms + .sample_ms) * 1e3,
        .decode_ms * .ranks / .decode_steps, .pss_bytes / 1048576] | @tsv' "$work/stats"
}

# The ways that are compared: RANKS THREADS POLICY, a line each.
ways() {
    printf '1 %s iterative\n1 %s paged\n1 %s bmc\n' "$threads" "$threads" "$threads"
    for ranks in $(seq 2 "$threads"); do
        [ $((threads % ranks)) -ne 0 ] || echo "$ranks $((threads / ranks)) bmc"
    done
}

column() { cut -f "$2" "$work/$1" | median; }

for shape in $shapes; do
    sed "s/^layers .*/layers $layers/" "models.d/shapes/$shape.shape" >"$work/part.shape"
    bin/bmc-convert --synth "$work/part.shape" --type bf16 -o "$work/model.bmc"
    for batch in ${BATCHES:-32 128}; do
        jq -nc --argjson p "$prompt" --argjson n "$answer" --argjson b "$batch" \
            'range($b) as $i | {ids: [range($p) | 5 + (. * 7 + $i * 11) % 300], n: $n}' >"$work/in"
        rm -f "$work"/way.*
        for round in $(seq "$rounds"); do
            ways | while read -r ranks t policy; do
                run "$ranks" "$t" "$policy" "$batch" </dev/null >>"$work/way.$ranks.$policy"
            done
        done
        printf '\n%s, %s layers, %s requests of %s + %s tokens\n\n' "$shape" "$layers" "$batch" "$prompt" "$answer"
        printf '| ranks x threads | policy | tok/s | ms a step | Pss MiB | against iterative |\n| --- | --- | --- | --- | --- | --- |\n'
        first=$(column way.1.iterative 1)
        ways | while read -r ranks t policy; do
            way=way.$ranks.$policy
            printf '| %s x %s | %s | %.1f | %.2f | %.1f | %.2fx |\n' "$ranks" "$t" "$policy" "$(column "$way" 1)" \
                "$(column "$way" 2)" "$(column "$way" 3)" "$(divide "$(column "$way" 1)" "$first")"
        done
    done
done
