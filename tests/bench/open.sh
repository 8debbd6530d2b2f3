#!/bin/sh
# Time and memory to open a large model: bmc-gen --tokenize maps and checks it, and computes
# nothing. SHAPE (opt-6.7b: 13 GB of disk) is synthetic; VOCAB makes a tokenizer with that many
# entries and merges.
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."

shape=${SHAPE:-opt-6.7b} vocab=${VOCAB:-128000}
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-open.XXXXXX")
trap 'rm -rf "$work"' EXIT

# A tokenizer of about $vocab entries: letters, pairs of letters, and pairs with a third letter.
mkdir "$work/tok"
awk -v vocab="$vocab" 'BEGIN {
    for (i = 33; i < 127; i++) { c = sprintf("%c", i); if (c != "\"" && c != "\\") letter[++n] = c }
    printf "{\"model\":{\"type\":\"BPE\",\"vocab\":{"
    for (i = 1; i <= n; i++) printf "%s\"%s\":%d", (id ? "," : ""), letter[i], id++
    for (i = 1; i <= n; i++) for (j = 1; j <= n && id < vocab - 300; j++) { merge[++m] = letter[i] " " letter[j]; printf ",\"%s%s\":%d", letter[i], letter[j], id++ }
    for (i = 1; i <= n; i++) for (j = 1; j <= n; j++) for (k = 1; k <= n && id < vocab - 300; k++) { merge[++m] = letter[i] letter[j] " " letter[k]; printf ",\"%s%s%s\":%d", letter[i], letter[j], letter[k], id++ }
    printf "},\"merges\":["
    for (i = 1; i <= m; i++) printf "%s\"%s\"", (i > 1 ? "," : ""), merge[i]
    printf "]},\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},\"decoder\":{\"type\":\"ByteLevel\"}}\n"
}' >"$work/tok/tokenizer.json"
echo '{}' >"$work/tok/config.json"

sed "s/^vocab .*/vocab $vocab/" "models.d/shapes/$shape.shape" >"$work/large.shape"
bin/bmc-convert --synth "$work/large.shape" --tokenizer "$work/tok" -o "$work/large.bmc"
echo "$shape with a vocabulary of $vocab: $(stat -c %s "$work/large.bmc") bytes"
for run in 1 2 3 4 5; do
    bin/bmc-gen -m "$work/large.bmc" --prompt-ids 1 -n 0 -q --stats "$work/stats.json" >/dev/null
    printf x | /usr/bin/env time -f "open and tokenize, whole process: %e s, %M KiB resident" \
        bin/bmc-gen -m "$work/large.bmc" --tokenize --format jsonl >/dev/null
    jq -r '"load_ms \(.load_ms)"' "$work/stats.json"
done
