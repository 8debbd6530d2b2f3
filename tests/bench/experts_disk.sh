#!/bin/sh
# Experts from disk: decoding with a share of the experts in memory, over what the disk's rate allows, which is measured
# before and after each run by random reads of the same size from the same file. The prompt, which is not measured, uses all
# experts: memory is then full, and the kernel has cleared all of its pages.
#
#   MODEL   model file (default: SHAPE with LAYERS layers and random weights at TYPE, written to DIR)
#   SHAPE   qwen3-30b-a3b, LAYERS 12, TYPE q4_0, DIR /var/tmp
#   SHARE   percent of the experts in memory (50)
#   TOKENS  generated tokens per run, of random text, so that all experts are used (48)
#   PROMPT  tokens of the prompt, random, too (96)
set -eu
SHAPE=${SHAPE:-qwen3-30b-a3b} ROUNDS=${ROUNDS:-3}
. "$(dirname "$0")/lib.sh"
model=${MODEL:-} tokens=${TOKENS:-48} prompt=${PROMPT:-96} share=${SHARE:-50}
stats=$(mktemp)
made=
trap 'rm -rf "$stats" $made' EXIT
if [ -z "$model" ]; then
    made=$(mktemp -d "${DIR:-/var/tmp}/bmc-experts.XXXXXX")
    # with large embeddings the hidden states of random weights differ from token to token, as in trained models
    sed -e "s/^layers .*/layers ${LAYERS:-12}/" -e "\$ a embed_scale 100" "models.d/shapes/$shape.shape" >"$made/part.shape"
    model=$made/part.bmc
    bin/bmc-convert --synth "$made/part.shape" --type "${TYPE:-q4_0}" -o "$model"
fi
disk=$(driver experts_disk)
bin/bmc-convert --info --format json "$model" >"$stats"
layer=$(jq '[.rows[] | select(.name | test("experts_(gate|up|down).weight")) | .bytes] | add' "$stats")
experts=$(jq .experts "$stats")
used=$(jq .experts_used "$stats")
matrix=$(jq '[.rows[] | select(.name | test("experts_up.weight")) | .bytes][0]' "$stats")
ram=$((layer * share / 100))
rate() { "$disk" "$model" $((matrix / experts)) $((3 * used)) 2; }

echo "$(basename "$model"): $((layer >> 20)) MiB of experts, $((ram >> 20)) in memory; random text of $tokens tokens"
echo
echo "| prefetch | tok/s | hits | MiB read | of these needed | prefetch precision | disk before, after, MB/s | over what the disk allows |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
ratios=$(mktemp)
# Generates so many tokens; all are equally likely at this temperature.
generate() { # TOKENS PREFETCH
    ids=$(awk -v seed="$round" -v n="$prompt" 'BEGIN { srand(seed); for (i = 0; i < n; i++) printf "%d ", 10 + rand() * 30000 }')
    bin/bmc-gen --no-spec -q -m "$model" --prompt-ids "$ids" -n "$1" --ignore-eos --ids --temp 1e6 --top-k 0 --top-p 1 --min-p 0 --seed "$round" \
        -t "$threads" --experts "ram=$ram,prefetch=$2" --stats "$stats" >/dev/null
}
for round in $(seq "$rounds"); do
    generate 1 off
    filled=$(jq '[.experts_uses, .experts_hits, .experts_needed_bytes, .experts_wait_ms]' "$stats")
    for prefetch in on off; do
        before=$(rate)
        generate "$tokens" $prefetch
        after=$(rate)
        jq -r --arg prefetch $prefetch --argjson before "$before" --argjson after "$after" --argjson filled "$filled" '
            def r(n): . * pow(10; n) | round / pow(10; n);
            .decode_ms as $ms | ((.experts_needed_bytes - $filled[2]) / (($before + $after) / 2) * 1e3 / $ms) as $ratio |
            "\($ratio) | \($prefetch) | \(.decode_tok_s | r(2)) | \((.experts_hits - $filled[1]) / (.experts_uses - $filled[0]) | r(3)) | \(.experts_read_bytes / 1048576 | r(0)) | " +
            "\(.experts_needed_bytes / .experts_read_bytes | r(3)) | " +
            "\(if .experts_prefetched > 0 then .experts_prefetch_hits / .experts_prefetched | r(3) else "" end) | " +
            "\($before / 1e6 | r(0)), \($after / 1e6 | r(0)) | \($ratio | r(3)) |"' "$stats" >"$stats.line"
        sed 's/^[^|]*//' "$stats.line"
        sed 's/ |.*//' "$stats.line" >>"$ratios.$prefetch"
    done
done
echo
for prefetch in on off; do
    verdict "$(median <"$ratios.$prefetch")" ">=" 0.8 "tok/s over what the disk's rate allows, prefetch $prefetch"
done
rm -f "$ratios" "$ratios.on" "$ratios.off" "$stats.line"
