#!/bin/sh
# Prefill with tensor parallelism on two ranks, by this build and an older one, alternating: the
# gain from overlapping all-gathers with compute. Network namespaces, between which tc sets the
# rate. Random weights of the shape. Needs root, `make mpi`, ip and tc.
#
#   BEFORE   folder of the other build, with its lib/bmc-mpi.so
#   LAYERS   layers of the shape (4)     TYPE   of the weights (bf16)
#   PROMPT   tokens (512)
#   RATES    (1Gb 10Gb)     DELAY   as in namespaces.sh
#
# Columns: milliseconds of the prefill, and those in which a rank waited; the median of the ratios
# of the rounds.
set -eu
. "$(dirname "$0")/namespaces.sh"
. "$(dirname "$0")/lib.sh"
[ -e "${BEFORE:-}/lib/bmc-mpi.so" ] || skip "BEFORE names no build with lib/bmc-mpi.so"
[ -e lib/bmc-mpi.so ] || skip "no lib/bmc-mpi.so: make mpi builds it"

sed "s/^layers .*/layers ${LAYERS:-4}/" "models.d/shapes/$shape.shape" >"$work/large.shape"
bin/bmc-convert --synth "$work/large.shape" --type "${TYPE:-bf16}" -o "$work/large.bmc"
id_requests 1 "${PROMPT:-512}" 2 >"$work/in"

# run NAME FOLDER: its figures join those of that name.
run() {
    on_both "$2/bin/bmc-gen" -q -m "$work/large.bmc" --parallelism tensor --jsonl -f "$work/in" -t 1 --profile none --kv bmc --ignore-eos \
        --prefix-cache-mb 0 --stats "$work/stats" >/dev/null
    jq -r '[.prefill_ms, .rank_wait_ms, .logits_hash] | @tsv' "$work/stats" >>"$work/$1"
}

printf '\n%s of %s layers, %s, a prompt of %s tokens\n\n' "$shape" "${LAYERS:-4}" "${TYPE:-bf16}" "${PROMPT:-512}"
printf '| network | before, ms | waited | now, ms | waited | ratio |\n| --- | --- | --- | --- | --- | --- |\n'
for rate in ${RATES:-1Gb 10Gb}; do
    shape_network "$rate"
    rm -f "$work/before" "$work/now"
    for _ in $(seq "$rounds"); do
        run before "$(cd "$BEFORE" && pwd)"
        run now "$PWD"
    done
    [ "$(cut -f 3 "$work/before" "$work/now" | sort -u | wc -l)" -eq 1 ] || {
        echo "logits: not the same in all runs"
        exit 1
    }
    printf '| %s' "$rate"
    for name in before now; do
        printf ' | %.0f | %.0f' "$(cut -f 1 "$work/$name" | median)" "$(cut -f 2 "$work/$name" | median)"
    done
    printf ' | %.2f |\n' "$(paste "$work/now" "$work/before" | awk '{ print $1 / $4 }' | median)"
done
