#!/bin/sh
# Longest context in a given memory by the number of heads resident at a time, and its cost: the
# form of tables 3 and 5 to 7 of the HeadInfer paper, with bf16 entries.
#
#   SHAPES   for the longest contexts, with billions of weights ("llama-3-8b:8.03 mistral-7b:7.24
#            qwen2-7b:7.62 llama-2-7b:6.74"), in
#            MEMORY_GB (24), weights in bf16: arithmetic, which headwise.sh compares with the
#            system's figures
#   DEPTHS   entries ("32768 131072") of four layers of llama-3-8b, attended in a decode step by
#            groups of SIZES ("8 4 2 1"; auto: of as many heads as the cache chooses), each with the least memory that it needs, or
#            all with RAM bytes: "-" where that is too little;
#            PROMPTS ("2048 8192") are computed over two layers, with random weights
#   DIR      folder of the file (/var/tmp): 16 KiB per entry
set -eu
SHAPE=llama-3-8b
. "$(dirname "$0")/lib.sh"
depths=${DEPTHS:-32768 131072} sizes=${SIZES:-8 4 2 1} prompts=${PROMPTS:-2048 8192} dir=${DIR:-/var/tmp}
memory_gb=${MEMORY_GB:-24}

printf '\nLongest contexts in %s GB, thousands of tokens:\n\n' "$memory_gb"
echo "| shape | GB of weights | whole cache | layer by layer | 4 heads per group | 2 | 1 |"
echo "| --- | --- | --- | --- | --- | --- | --- |"
for shape_of in ${SHAPES:-llama-3-8b:8.03 mistral-7b:7.24 qwen2-7b:7.62 llama-2-7b:6.74}; do
    name=${shape_of%:*}
    token=$(bin/bmc-prof memory --shape "$name" --kv upfront --cache-type bf16 -p 1 -n 1 --format json | jq '.rows[0].token_bytes')
    awk -v name="$name" -v memory="$memory_gb" -v token="$token" -v billions="${shape_of#*:}" '
        { member[$1] = $2 }
        END {
            heads = member["kv_heads"] ? member["kv_heads"] : member["heads"]
            head = token / member["layers"] / heads
            left = memory * 1e9 - 2e9 * billions
            printf "| %s | %.1f | %.0f |", name, 2 * billions, left / token / 1e3
            n = split(heads " 4 2 1", size)
            for (i = 1; i <= n; i++)
                printf " %.0f |", left / (2 * size[i] * head) / 1e3 # two buffers of a group
            print "" }' "models.d/shapes/$name.shape"
done

headwise=$(driver headwise)
row=$((2 * 128 * 2)) spare=$((8 << 20))
ram_of() { echo "ram=${RAM:-$((2 * $2 * ($1 + 512) * row + spare))},group=$2"; } # two buffers, and the entries of long steps

printf '\nA decode step of four layers of %s, ms per layer (in memory: MiB; heads per group):\n\n' "$shape"
echo "| entries | in memory |$(for size in $sizes; do printf ' %s heads per group |' "$size"; done)"
echo "| --- | --- |$(for size in $sizes; do printf ' --- |'; done)"
for depth in $depths; do
    printf '| %s |' "$depth"
    for option in "ram=$((2 * depth * 32 * row))" $(for size in $sizes; do ram_of "$depth" "$size"; done); do
        step=$("$headwise" "$depth" 4 "headwise:dir=$dir,$option" "$threads" "$rounds") || { printf ' - |' && continue; }
        echo "$step" | jq -j 'def r: . * 10 | round / 10; " \(.step_ms / 4 | r) (\(.measured / 1048576 | round); \(if .group == 0 then "all" else .group end)) |"'
    done
    echo
done

printf '\nSeconds for a prompt, two layers of %s in bf16:\n\n' "$shape"
echo "| tokens | in memory |$(for size in $sizes; do printf ' %s heads per group |' "$size"; done)"
echo "| --- | --- |$(for size in $sizes; do printf ' --- |'; done)"
for prompt in $prompts; do
    printf '| %s |' "$prompt"
    for kv in upfront $(for size in $sizes; do echo "headwise:dir=$dir,$(ram_of "$prompt" "$size")"; done); do
        bin/bmc-prof bench --shape "$shape" --layers 2 --type bf16 --kv "$kv" --attend valid --cache-type bf16 -N $((prompt + 8)) -p "$prompt" -n 0 -np 1 \
            -t "$threads" -r 1 --warmup 0 --format json | jq -j '" \(.rows[0].step_ms / 100 | round / 10) |"'
    done
    echo
done
