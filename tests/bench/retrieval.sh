#!/bin/sh
# Needles in prose, found by real models with streaming heads: how many answers are right with the whole cache, and with
# shares of the heads streaming that bmc-prof heads chose by its own text, or by ordinary text. A line of JSON per
# question on standard output, a line "MODEL WAY FOUND of ALL" per way on standard error.
#
#   sh tests/bench/retrieval.sh MODEL.gguf|MODEL.bmc ..
#
#   LENGTHS  contexts in tokens, about ("1000 2000 3000 4000")
#   DEPTHS   of the needles, in percent of the context, one context each; the last must be before the recent window
#            ("0 13 26 39 52 65")
#   WAYS     "full own:0.5 text:0.5": the whole cache; that share of the heads streaming, chosen by bmc-prof heads
#            without a text, or with the last 12,000 characters of TEXT
#   RECENT   window of streaming heads (256), beside 4 attention sinks
#   TEXT     English prose, in paragraphs (/usr/share/common-licenses/GPL-3)
#   BMC_BIN, THREADS
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."
bin=${BMC_BIN:-bin} threads=${THREADS:-$(nproc)} recent=${RECENT:-256} text=${TEXT:-/usr/share/common-licenses/GPL-3}
work=$(mktemp -d "${TMPDIR:-/tmp}/bmc-retrieval.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
fail() {
    echo "retrieval: $1" >&2
    exit 1
}

# The prompts: TAB-separated length, depth, answer, prompt. A token is 4.6 characters of prose. Each context begins with
# another paragraph.
awk -v RS= -v lengths="${LENGTHS:-1000 2000 3000 4000}" -v depths="${DEPTHS:-0 13 26 39 52 65}" '
    { gsub(/[ \t\n]+/, " "); sub(/^ /, ""); gsub(/["\\]/, "") } length > 40 { paragraph[n++] = $0 }
    END {
        cities = split("Lisbon Vienna Oslo Cairo Lima Tokyo Madrid Dublin Prague Athens", city, " ")
        m = split(lengths, length_, " "); k = split(depths, depth, " "); state = 17
        for (i = 1; i <= m; i++)
            for (j = 1; j <= k; j++) {
                state = (state * 1103515245 + 12345) % 2147483648
                answer = 10000 + int(state / 65536) % 22768; name = city[1 + asked++ % cities]
                prompt = ""; put = 0
                for (at = asked; length(prompt) < 4.6 * length_[i] || !put; at++) {
                    if (!put && length(prompt) >= 0.046 * length_[i] * depth[j]) {
                        prompt = prompt "The secret number of " name " is " answer ".\\n\\n"; put = 1
                    }
                    prompt = prompt paragraph[at % n] "\\n\\n"
                }
                print length_[i] "\t" depth[j] "\t" answer "\t" prompt "The secret number of " name " is"
            }
    }' "$text" >"$work/prompts"
jq -Rc 'split("\t") | {id: .[2], prompt: ("\"" + .[3] + "\"" | fromjson), n: 8}' "$work/prompts" >"$work/in"
tail -c 12000 "$text" >"$work/text"

# heads HOW SHARE: makes the list $work/heads
heads() {
    how=$1 share=$2
    if [ "$how" = text ]; then set -- -f "$work/text"; else set --; fi
    "$bin"/bmc-prof heads -m "$work/model" "$@" --recent "$recent" --sparsity "$share" -t "$threads" -o "$work/heads" >/dev/null 2>"$work/error" ||
        fail "$(head -n 1 "$work/error")"
}

for model; do
    rm -f "$work/model"
    case $model in
    *.gguf) "$bin"/bmc-convert -q "$model" -o "$work/model" 2>"$work/error" || fail "$(head -n 1 "$work/error")" ;;
    *) ln -sf "$(realpath "$model")" "$work/model" ;;
    esac
    for way in ${WAYS:-full own:0.5 text:0.5}; do
        case $way in
        full) set -- --kv bmc ;;
        own:* | text:*)
            heads "${way%%:*}" "${way#*:}"
            set -- --kv headwise --retrieval-heads "$work/heads"
            ;;
        *) fail "WAYS: $way: no such way" ;;
        esac
        "$bin"/bmc-gen -q -m "$work/model" --jsonl -np 1 -t "$threads" --temp 0 --profile none -f "$work/in" "$@" >"$work/out" 2>"$work/error" ||
            fail "$(head -n 1 "$work/error")"
        jq -nc --arg model "${model##*/}" --arg way "$way" --slurpfile out "$work/out" --rawfile prompts "$work/prompts" '
            $prompts | split("\n") | map(select(. != "") | split("\t")) | to_entries[] | .value as $p | $out[.key].text as $text |
            {model: $model, way: $way, length: ($p[0] | tonumber), depth: ($p[1] | tonumber), answer: $p[2], text: $text,
             found: ($text | test("^ *" + $p[2] + "([^0-9]|$)"))}' | tee "$work/rows"
        echo "${model##*/} $way $(grep -c '"found":true' "$work/rows") of $(wc -l <"$work/rows")" >&2
    done
done
