#!/bin/sh
# Needle-in-a-haystack and multi-key retrieval over the model of tests/fixtures/needle (made by make_needle.py), with the
# whole cache in memory, with all heads offloaded, and with the context cut to what memory holds: HeadInfer paper, figure 6,
# tables 1, 2, 8 and 9, in form. A line of JSON per question.
#
#   LENGTHS  contexts in tokens ("1024 4096 16000")
#   NEEDLES  of a context, one for each depth from 0 to 100 % (11)
#   SEEDS    contexts of each length ("1 2")
#   WAYS     "standard headinfer truncated": the whole cache; headwise with two buffers of one head; the last tokens that the
#            memory of headinfer holds as a standard cache
#   DIR      folder of the file (/var/tmp)
#   BMC_BIN, THREADS
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."
bin=${BMC_BIN:-bin} threads=${THREADS:-$(nproc)} needles=${NEEDLES:-11} dir=${DIR:-/var/tmp}
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-needle.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
fail() {
    echo "needle: $1" >&2
    exit 1
}
"$bin"/bmc-convert -q tests/fixtures/needle -o "$work/needle.bmc" 2>"$work/error" || fail "$(head -n 1 "$work/error")"

# context LENGTH SEED: $work/context, ids; $work/needles, lines "DEPTH KEY VALUE VALUE VALUE"
context() {
    awk -v length_="$1" -v seed="$2" -v needles="$needles" -v work="$work" '
        function draw(n) { state = (state * 1103515245 + 12345) % 2147483648; return int(state / 65536) % n }
        function put(id) { ids = ids (n++ ? "," : "") id }
        BEGIN {
            state = seed * 7919 + 17
            for (i = 0; i < 128; i++) { value[i] = 68 + i; if (i < 64) key[i] = 4 + i }
            for (i = 127; i > 0; i--) { j = draw(i + 1); t = value[i]; value[i] = value[j]; value[j] = t }
            for (i = 63; i > 0; i--) { j = draw(i + 1); t = key[i]; key[i] = key[j]; key[j] = t }
            hay = length_ - 1 - 5 * needles - 6
            put(0)
            for (i = 0; i < needles; i++) {
                at = needles > 1 ? int(hay * i / (needles - 1)) : int(hay / 2)
                while (h < at) { put(196 + draw(128)); h++ }
                put(2); put(key[i]); for (j = 0; j < 3; j++) put(value[3 * i + j])
                print (needles > 1 ? i / (needles - 1) : 0.5), key[i], value[3 * i], value[3 * i + 1], value[3 * i + 2] >(work "/needles")
            }
            while (h < hay) { put(196 + draw(128)); h++ }
            print "[" ids "]" >(work "/context")
        }'
}

# ask WAY LENGTH SEED OPTION ..: all questions; $work/cut has the tokens that are kept of the context's end (0: all)
ask() {
    way=$1 length=$2 seed=$3
    shift 3
    jq -nc --slurpfile context "$work/context" --rawfile needles "$work/needles" --argjson cut "$cut" '
        ($context[0] | if $cut > 0 and length > $cut then [0] + .[length - $cut + 1:] else . end) as $c |
        $needles | split("\n")[] | select(. != "") | split(" ") | map(tonumber) | {id: (.[0] | tostring), ids: ($c + [3, .[1]]), n: 4}' >"$work/in"
    "$bin"/bmc-gen -q -m "$work/needle.bmc" --jsonl -np 1 -t "$threads" --temp 0 --ignore-eos --cache-type bf16 --profile none -f "$work/in" --stats "$work/stats" "$@" \
        >"$work/out" 2>"$work/error" || fail "$way: $(head -n 1 "$work/error")"
    jq -nc --arg way "$way" --argjson length "$length" --argjson seed "$seed" --slurpfile out "$work/out" --slurpfile stats "$work/stats" --rawfile needles "$work/needles" '
        $needles | split("\n") | map(select(. != "") | split(" ") | map(tonumber)) | to_entries[] | .value as $n | $out[.key] as $o |
        {way: $way, length: $length, seed: $seed, needles: '"$needles"', depth: $n[0], ids: $o.ids, right: ($o.ids[:3] == $n[2:5]),
         resident: $stats[0].kv_resident_bytes, ms: $stats[0].prefill_ms}'
}

entry=128 # bytes of K and V of a head: 32 in bf16
for length in ${LENGTHS:-1024 4096 16000}; do
    for seed in ${SEEDS:-1 2}; do
        context "$length" "$seed"
        ram=$((2 * (length + 600) * entry + (4 << 20)))
        for way in ${WAYS:-standard headinfer}; do
            cut=0
            case $way in
            standard) ask standard "$length" "$seed" --kv bmc ;;
            headinfer) ask headinfer "$length" "$seed" --kv "headwise:dir=$dir,ram=$ram,group=1" ;;
            truncated)
                cut=$((ram / (8 * entry)))
                ask truncated "$length" "$seed" --kv bmc
                ;;
            *) fail "WAYS: $way: no such way" ;;
            esac
        done
    done
done
