#!/bin/sh
# Model parallelism against one process: R ranks of t threads, R x t = all cores, and one process
# on all cores. Random weights of the shape; needs `make mpi`.
#
#   TYPE     of the weights (bf16)
#   RANKS    (2); MEMORY_RANKS (4), for memory only
#   BATCH    sequences for pipeline parallelism (32), in IN_FLIGHT (4) micro-batches; with data
#            parallelism every rank has a batch of that size
#   STREAM   requests for data parallelism (64)
#   PROMPT   (64) and ANSWER (32): tokens of a request
#   WAYS     configurations to run (all)
#   MPIRUN   (mpirun --bind-to core --map-by slot:PE=t): with SMT threads as cores, mpirun
#            --use-hwthread-cpus --bind-to hwthread
#
# Columns: generated tokens per second of decoding (of a stream: of its total time, prefill
# included); bytes sent by all ranks per token; the share of time that ranks waited for others;
# peak memory of one rank. Medians of alternating rounds. Then transfer times of a token's bytes at
# 1 and 10 Gbit/s, by arithmetic.
set -eu
. "$(dirname "$0")/lib.sh"

type=${TYPE:-bf16} ranks=${RANKS:-2} many=${MEMORY_RANKS:-4} batch=${BATCH:-32} groups=${IN_FLIGHT:-4}
prompt=${PROMPT:-64} answer=${ANSWER:-32} stream=${STREAM:-64}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-split.XXXXXX")
trap 'rm -rf "$work"' EXIT
bin/bmc-convert --synth "$shape" --type "$type" -o "$work/model.bmc"

for n in 1 "$batch" "$stream"; do id_requests "$n" "$prompt" "$answer" >"$work/$n.in"; done

# run NAME RANKS THREADS REQUESTS BATCH OPTION..: one run; its figures join those of that name.
run() {
    name=$1 r=$2 t=$3 n=$4 b=$5
    shift 5
    launch=
    [ "$r" -eq 1 ] || launch="${MPIRUN:-mpirun --bind-to core --map-by slot:PE=$t} -n $r"
    [ $((r * t)) -le "$threads" ] || launch="mpirun --oversubscribe --bind-to none -n $r" # for memory: time does not count
    # shellcheck disable=SC2086 # a list of words
    $launch bin/bmc-gen --no-spec -q -m "$work/model.bmc" --jsonl -f "$work/$n.in" -np "$b" -t "$t" --profile none --kv bmc \
        -c $((prompt + answer)) --ignore-eos --prefix-cache-mb 0 --stats "$work/stats" "$@" >/dev/null
    jq -r --arg of "${name#*.}" '(.prefill_ms + .decode_ms + .sample_ms) as $ms |
        [if $of == "stream" then .sampled_tokens * 1000 / $ms else .decode_tok_s end, .sent_bytes_per_token // 0, (.rank_wait_ms // 0) / $ms,
        (.rank_peak_bytes // .peak_resident_bytes) / 1048576, .logits_hash] | @tsv' "$work/stats" >>"$work/$name"
}

column() { cut -f "$2" "$work/$1" | median; }
row() { # NAME TEXT
    [ ! -e "$work/$1" ] ||
        printf '| %s | %.2f | %.0f | %.2f | %.1f |\n' "$2" "$(column "$1" 1)" "$(column "$1" 2)" "$(column "$1" 3)" "$(column "$1" 4)"
}
# over A B LIMIT TEXT: tokens per second, the median of the rounds' ratios.
over() {
    [ -e "$work/$1" ] && [ -e "$work/$2" ] || return 0
    verdict "$(paste "$work/$1" "$work/$2" | awk '{ print $1 / $6 }' | median)" '>=' "$3" "tok/s $4"
}

each=$((threads / ranks))
[ "$each" -ge 1 ] || each=1
all='one.1 tensor.1 one.b group.b tensor.b requests.b layers.b one.stream requests.stream many.tensor many.layers'
way() { # NAME
    group=$((batch / groups))
    case $1 in
    one.1) run "$1" 1 "$threads" 1 1 ;;
    tensor.1) run "$1" "$ranks" "$each" 1 1 --parallelism tensor ;;
    one.b) run "$1" 1 "$threads" "$batch" "$batch" ;;
    group.b) run "$1" 1 "$threads" "$batch" "$group" ;;
    tensor.b) run "$1" "$ranks" "$each" "$batch" "$batch" --parallelism tensor ;;
    requests.b) run "$1" "$ranks" "$each" "$batch" "$group" --parallelism data ;;
    one.stream) run "$1" 1 "$threads" "$stream" "$group" ;;
    requests.stream) run "$1" "$ranks" "$each" "$stream" "$group" --parallelism data ;;
    layers.b) run "$1" "$ranks" "$each" "$batch" "$batch" --parallelism pipeline --micro-batches "$groups" ;;
    many.*) [ -e "$work/$1" ] || run "$1" "$many" 1 1 1 --parallelism "${1#many.}" ;; # for memory, once
    esac
}
for round in $(seq "$rounds"); do
    for name in ${WAYS:-$all}; do way "$name"; done
done

printf '\n%s, %s\n\n| ranks x threads, sequences | tok/s | bytes per token | time waiting | peak MiB of a rank |\n| --- | --- | --- | --- | --- |\n' "$shape" "$type"
row one.1 "1 x $threads, 1"
row tensor.1 "$ranks x $each by tensors, 1"
row one.b "1 x $threads, $batch"
row group.b "1 x $threads, $((batch / groups)) at a time"
row tensor.b "$ranks x $each by tensors, $batch"
row layers.b "$ranks x $each by layers, $batch in $groups groups"
row requests.b "$ranks x $each by requests, $((batch / groups)) at a time in each"
row one.stream "1 x $threads, $stream requests, $((batch / groups)) at a time"
row requests.stream "$ranks x $each by requests, $stream requests, $((batch / groups)) at a time in each"
row many.tensor "$many x 1 by tensors, 1"
row many.layers "$many x 1 by layers, 1"

for name in tensor.1 tensor.b layers.b; do
    [ ! -e "$work/$name" ] ||
        column $name 2 | awk -v name="$name" '{ printf "%s: %.0f bytes a token are %.3f ms at 1 Gbit/s, %.3f ms at 10\n", name, $1, $1 * 8e-6, $1 * 8e-7 }'
done
for of in 1 b stream; do
    [ "$(cut -f 5 "$work"/*."$of" 2>/dev/null | sort -u | wc -l)" -le 1 ] || {
        echo "logits: not the same in all runs"
        exit 1
    }
done
echo "logits: the same in all runs"
over tensor.1 one.1 0.85 "by tensors against one process"
over layers.b group.b 0.85 "by layers against one process with batches of that size"
over requests.b group.b 0.95 "by requests against one process with batches of that size"
over requests.stream one.stream 0.95 "by requests of a stream against one process with batches of that size"
for name in tensor layers; do
    [ -e "$work/many.$name" ] && [ -e "$work/one.1" ] || continue
    quarter=$(column one.1 4 | awk -v n="$many" '{ print $1 / n + 60 }')
    verdict "$(divide "$(column many.$name 4)" "$quarter")" '<=' 1 "memory of a rank by $name against its share and 60 MiB"
done
