#!/bin/sh
# Step times predicted by bmc-prof ranks for two hosts, against those measured with two ranks in
# network namespaces, between which tc sets the rate, and the delay if the kernel has netem. Random
# weights of the shape. Needs root, `make mpi`, ip and tc (iproute2).
#
#   LAYERS   layers of the shape (4)
#   BATCH    batch size (8)
#   PROMPT   (16) and ANSWER (32): tokens of a request
#   RATES    (1Gb 10Gb)     DELAY   as in namespaces.sh
#
# The latency between programs includes the delay, both systems and MPI; it is measured with a
# model that has almost no arithmetic. Both ranks share this machine's memory and caches, so the
# compute of one host is measured by two at the same time.
set -eu
. "$(dirname "$0")/namespaces.sh"
. "$(dirname "$0")/lib.sh"
[ -e lib/bmc-mpi.so ] || skip "no lib/bmc-mpi.so: make mpi builds it"

batch=${BATCH:-8} prompt=${PROMPT:-16} answer=${ANSWER:-32}

requests() { # PROMPT ANSWER BATCH
    jq -nc --argjson p "$1" --argjson n "$2" --argjson b "$3" 'range($b) as $i | {ids: [range($p) | 5 + (. * 7 + $i * 11) % 290], n: $n}'
}

# two MODEL SPLIT REQUESTS BATCH: a step of two ranks gives each sequence a token.
two() {
    on_both "$PWD/bin/bmc-gen" --no-spec -q -m "$1" --parallelism "$2" --jsonl -f "$3" -np "$4" -t 1 \
        --profile none --kv bmc --ignore-eos --prefix-cache-mb 0 --stats "$work/stats" >/dev/null
    jq --argjson b "$4" '(.decode_ms + .sample_ms) / (.decode_tokens / $b)' "$work/stats"
}

# expect OUT MODEL OPTION..: rows of two processes at the same time.
expect() {
    out=$1 model=$2
    shift 2
    bin/bmc-prof ranks -m "$model" -t 1 -r 3 --ranks 2 --format json "$@" >"$work/beside" 2>/dev/null &
    bin/bmc-prof ranks -m "$model" -t 1 -r 3 --ranks 2 --format json "$@" >"$out" 2>/dev/null
    wait
}
expected() { jq --arg parallelism "$2" '.rows[] | select(.parallelism == $parallelism).step_ms' "$1"; }

printf 'family llama\nlayers 16\nhidden 64\nheads 4\nkv_heads 2\nffn 96\nvocab 300\ncontext 512\nnorm_eps 1e-5\neos 0\n' >"$work/tiny.shape"
sed "s/^layers .*/layers ${LAYERS:-4}/" "models.d/shapes/$shape.shape" >"$work/large.shape"
for name in tiny large; do
    bin/bmc-convert --synth "$work/$name.shape" --type bf16 -o "$work/$name.bmc"
done
requests 2 300 1 >"$work/in.tiny"
requests "$prompt" "$answer" "$batch" >"$work/in.large"

printf '\n%s of %s layers, batch %s\n\n| network | parallelism | predicted ms | measured ms |\n| --- | --- | --- | --- |\n' "$shape" "${LAYERS:-4}" "$batch"
for rate in ${RATES:-1Gb 10Gb}; do
    shape_network "$rate"
    expect "$work/tiny" "$work/tiny.bmc" -p 2 -n 300 --network 1000Tb,0us
    # 4 all-gathers in each of 16 layers, a command and its result
    latency=$(two "$work/tiny.bmc" tensor "$work/in.tiny" 1 | awk -v own="$(expected "$work/tiny" tensor)" '{ printf "%.1f", ($1 - own) / 66 * 1e3 }')
    expect "$work/large" "$work/large.bmc" -np "$batch" -p "$prompt" -n "$answer" --network "$rate,${latency}us"
    for parallelism in tensor pipeline; do
        for _ in $(seq "$rounds"); do
            two "$work/large.bmc" "$parallelism" "$work/in.large" "$batch"
        done | median >"$work/measured"
        wanted=$(expected "$work/large" "$parallelism") measured=$(cat "$work/measured")
        printf '| %s,%sus | %s | %.2f | %.2f |\n' "$rate" "$latency" "$parallelism" "$wanted" "$measured"
        verdict "$(awk -v a="$wanted" -v b="$measured" 'BEGIN { d = a / b - 1; print d < 0 ? -d : d }')" '<=' 0.2 \
            "$parallelism at $rate: expected against measured" >>"$work/verdicts"
    done
done
[ "$delay" != 0 ] || printf '\nThis kernel has no netem: the delay is that of the pair of interfaces.\n'
cat "$work/verdicts"
