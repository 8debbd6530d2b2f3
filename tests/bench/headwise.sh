#!/bin/sh
# A cache larger than memory (HeadInfer paper, tables 10 and 11): memory, and reads overlapped with
# attention, for bf16 entries of llama-3-8b's heads, with the minimum memory of each group size.
# Times are of one layer: attention of a decode step, beside reading the entries alone (with fio's
# direct reads, if installed) and attention over entries in memory. Memory is of 4 layers, computed
# and as reported by the system. Disk space in DIR: 4 KiB per entry of a layer.
#
#   DEPTHS  entries (131072; "131072 1000000" for the whole table)
#   SIZES   heads per group ("4 2 1"; memory: 8 as well, which is layer-wise offload)
#   DIR     folder of the file (/var/tmp)
#   PARTS   of the output ("times memory streaming loss")
#
# Then every second head is a streaming head (table 14): time of a decode step and of CHUNK (512) tokens of a prompt,
# and bytes; and their effect on log-probabilities of grimm, with lists made by bmc-prof heads from one story, scored on others.
set -eu
SHAPE=llama-3-8b
. "$(dirname "$0")/lib.sh"
parts=" ${PARTS:-times memory streaming loss} "
depths=${DEPTHS:-131072} sizes=${SIZES:-4 2 1} dir=${DIR:-/var/tmp}

headwise=$(driver headwise)
row=$((2 * 128 * 2))  # bytes of K and V of a head
spare=$((8 << 20))    # entries in transit to the file, of a layer

# measure DEPTH LAYERS MORE_OF_THE_OPTION [HEADS [QUERIES]]
measure() { "$headwise" "$1" "$2" "headwise:dir=$dir,$3" "$threads" "$rounds" ${4:+"$4"} ${5:+"$5"}; }

# ram_of DEPTH LAYERS GROUP: two buffers, and the entries of long steps
ram_of() { echo "ram=$((2 * $3 * ($1 + 512) * row + $2 * spare)),group=$3"; }

# fio_rate SIZE: bytes per ms of direct reads of 1 MiB.
fio_rate() {
    file=$(mktemp "$dir/bmc-fio.XXXXXX")
    fio --name=read --rw=read --bs=1M --direct=1 --ioengine=io_uring --iodepth=32 --size="$1" --filename="$file" --loops=3 \
        --output-format=json 2>/dev/null | jq '.jobs[0].read.bw_bytes / 1000'
    rm -f "$file"
}
part() { case $parts in *" $1 "*) ;; *) return 1 ;; esac; }

work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-headwise.XXXXXX")
trap 'rm -rf "$work"' EXIT
pace=null
if ! part times; then :; elif command -v fio >/dev/null; then pace=$(fio_rate 1G); else echo "fio is not installed: the baseline is reading by the cache itself"; fi

part times && for depth in $depths; do
    all=$((depth * 8 * row))
    memory=$(measure "$depth" 1 "ram=$((2 * all + spare))" | jq .step_ms)
    printf '\n%s entries, %s MiB; attention with the cache in memory takes %s ms\n\n' "$depth" $((all >> 20)) "$memory"
    echo "| heads per group | ms per step | reading alone | reading, fio | step over reading | share of attention overlapped |"
    echo "| --- | --- | --- | --- | --- | --- |"
    for size in $sizes; do
        [ "$((size * 2))" -lt 8 ] || continue # two buffers hold all heads of one layer
        measure "$depth" 1 "$(ram_of "$depth" 1 "$size")" | jq -r --argjson attention "$memory" --argjson pace "$pace" '
            def r: . * 100 | round / 100;
            (if $pace then .bytes / $pace else null end) as $fio | ($fio // .read_ms) as $read | ([$read, $attention] | min) as $least |
            "| \(.group) | \(.step_ms | r) | \(.read_ms | r) | \(if $fio then $fio | r else "" end) | \(.step_ms / $read | r) | " +
            "\([1, ($read + $attention - .step_ms) / $least] | min | r) |"'
    done
done

depth=65536 layers=4 all=$((65536 * 4 * 8 * row))
if part memory; then
    printf '\n%s layers of %s entries:\n\n' $layers $depth
    echo "| heads per group | MiB, computed | measured | measured over computed |"
    echo "| --- | --- | --- | --- |"
fi
part memory && for option in "ram=$((2 * all))" $(for size in 8 $sizes; do ram_of $depth 1 "$size"; done); do
    measure $depth $layers "$option" | jq -r 'def r: . * 100 | round / 100;
        "| \(if .group == 0 then "all (a standard cache)" else .group end) | \(.counted / 1048576 | r) | \(.measured / 1048576 | r) | \(.measured / .counted | r) |"'
done

# ---- streaming heads ----

{ echo "sink 4"; echo "recent 256"; for head in 0 2 4 6; do echo "0 $head"; done; } >"$work/half"
part streaming && for depth in $depths; do
    chunk=${CHUNK:-512}
    printf '\n%s entries of a layer, every second head streaming (4 attention sinks, last 256 positions):\n\n' "$depth"
    echo "| cache | tokens | ms | with streaming heads | ratio | MiB resident | with streaming heads |"
    echo "| --- | --- | --- | --- | --- | --- | --- |"
    for where in "memory ram=$((2 * (depth + chunk) * 8 * row))" "file $(ram_of "$depth" 1 1)"; do
        option=${where#* }
        for tokens in 1 $chunk; do
            { measure "$depth" 1 "$option" - $tokens; measure "$depth" 1 "$option" "$work/half" $tokens; } | jq -rs --arg where "${where%% *}" '
                def r: . * 100 | round / 100; def mib: . / 1048576 | r;
                "| \($where) | \(.[0].queries) | \(.[0].step_ms | r) | \(.[1].step_ms | r) | \(.[1].step_ms / .[0].step_ms | r) | " +
                "\(.[0].measured | mib) | \(.[1].measured | mib) |"'
        done
    done
done

part loss || exit 0
model=${MODEL:-models.d/grimm.bmc}
for seed in 1 2 3 4; do
    bin/bmc-gen -q -m "$model" -p 'Once upon a time' --echo -n 900 --temp 1 --top-k 0 --top-p 1 --min-p 0 --ignore-eos --seed $seed >"$work/$seed"
done
loss() { # OPTION..: nats per token of the stories that no list was made from
    for seed in 2 3 4; do bin/bmc-gen -q -m "$model" --kv headwise --score --summary --format json -f "$work/$seed" "$@"; done |
        jq -s '(map(.mean_logprob * .tokens) | add) / (map(.tokens) | add) | -.'
}
full=$(loss)
printf '\ngrimm (8 layers of 2 KV heads), stories of 900 tokens, %s nats per token with the full cache; streaming heads have 4 attention sinks and:\n\n' "$(awk -v x="$full" 'BEGIN { printf "%.4f", x }')"
echo "| recent window | streaming heads | additional nats per token | with the same number of retrieval heads instead |"
echo "| --- | --- | --- | --- |"
for recent in 32 64 128 256; do
    for sparsity in 0.25 0.5 0.75; do
        bin/bmc-prof heads -m "$model" -f "$work/1" --recent $recent --sparsity $sparsity -o "$work/list" --format json >"$work/rows"
        # The same number of retrieval heads, but those with the lowest scores.
        jq -r --argjson recent $recent '"sink 4", "recent \($recent)", (.rows | (map(select(.sparse | not)) | length) as $n |
            sort_by(.score)[:$n][] | "\(.layer) \(.head)")' "$work/rows" >"$work/opposite"
        awk -v full="$full" -v a="$(loss --retrieval-heads "$work/list")" -v b="$(loss --retrieval-heads "$work/opposite")" -v recent=$recent -v part=$sparsity \
            'BEGIN { printf "| %d | %d of 16 | %.4f | %.4f |\n", recent, part * 16, a - full, b - full }'
    done
done
