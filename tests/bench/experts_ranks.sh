#!/bin/sh
# A mixture of experts on two ranks of one thread: tensor parallelism within experts against whole experts distributed, and one process
# of two threads. Needs `make mpi`.
#
#   MODEL    a mixture of experts, as bmc-convert --synth qwen3-30b-a3b makes one with fewer layers
#   WAYS     configurations to run (all); PROMPT (512) and ANSWER (48): tokens
#   MPIRUN   (mpirun --bind-to core --map-by slot:PE=1)
#
# Columns: tokens per second of decoding one sequence and eight, and of a prompt; bytes sent by all ranks per token of one sequence;
# the share of time that rank 0 waited for the other; peak memory of one rank. Medians of alternating rounds, and of the rounds' ratios.
set -eu
SHAPE=$(basename "${MODEL:?a model file}")
. "$(dirname "$0")/lib.sh"

model=$MODEL prompt=${PROMPT:-512} answer=${ANSWER:-48}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-experts.XXXXXX")
trap 'rm -rf "$work"' EXIT
id_requests 1 8 "$answer" >"$work/1.in"
id_requests 8 8 "$answer" >"$work/8.in"
id_requests 1 "$prompt" 1 >"$work/prompt.in"

run() { # WAY INPUT
    launch="${MPIRUN:-mpirun --bind-to core --map-by slot:PE=1} -n 2" t=1 how="--parallelism $1"
    [ "$1" != one ] || launch='' t=2 how=''
    # shellcheck disable=SC2086 # lists of words
    $launch bin/bmc-gen --no-spec -q -m "$model" --jsonl -f "$work/$2.in" -np 8 -t $t --profile none -c $((prompt + answer)) --ignore-eos \
        --prefix-cache-mb 0 $how --stats "$work/stats" >/dev/null
    jq -r --arg of "$2" '[if $of == "prompt" then .prefill_tok_s else .decode_tok_s end, .sent_bytes_per_token // 0,
        (.rank_wait_ms // 0) / (.prefill_ms + .decode_ms), (.rank_peak_bytes // .peak_resident_bytes) / 1048576, .logits_hash] | @tsv' \
        "$work/stats" >>"$work/$1.$2"
}

for round in $(seq "$rounds"); do
    for input in ${INPUTS:-1 8 prompt}; do for way in ${WAYS:-one tensor expert}; do run "$way" "$input"; done; done
done

column() { [ ! -e "$work/$1" ] || cut -f "$2" "$work/$1" | median; }
printf '\n| ranks x threads | one sequence | eight | prompt | bytes per token | time waiting, one and eight | peak MiB of a rank |\n| --- | --- | --- | --- | --- | --- | --- |\n'
for way in ${WAYS:-one tensor expert}; do
    printf '| %s | %.2f | %.2f | %.1f | %.0f | %.2f, %.2f | %.0f |\n' "$way" "$(column "$way.1" 1)" "$(column "$way.8" 1)" "$(column "$way.prompt" 1)" \
        "$(column "$way.1" 2)" "$(column "$way.1" 3)" "$(column "$way.8" 3)" "$(column "$way.1" 4)"
done
for input in ${INPUTS:-1 8 prompt}; do
    [ "$(cut -f 5 "$work"/*".$input" | sort -u | wc -l)" -eq 1 ] || {
        echo "logits: not the same in all runs"
        exit 1
    }
    [ ! -e "$work/expert.$input" ] || echo "whole experts over tensor parallelism, $input: $(paste "$work/expert.$input" "$work/tensor.$input" | awk '{ print $1 / $6 }' | median)"
done
echo "logits: the same in all runs"
