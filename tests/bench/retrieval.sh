#!/bin/sh
# Needles in prose, and other synthetic tasks of Ruler, by real models: the share of right answers with the whole cache, and with
# shares of the heads streaming that bmc-prof heads chose by its own text, or by ordinary text. A line of JSON per
# question, with the hash of the way's logits, on standard output, a line "MODEL TASK WAY FOUND of ALL" per way on standard error; FOUND counts parts of answers.
#
#   sh tests/bench/retrieval.sh MODEL.gguf|MODEL.bmc ..
#
#   TASKS    "needle": a number in prose; track: five variables in prose, each assigned from the one before; common: the ten words
#            of a list that occur four times as often as the others; frequent: the three most frequent words, frequencies as 1 / rank^2
#   LENGTHS  contexts in tokens, about ("1000 2000 3000 4000")
#   DEPTHS   of the needles, in percent of the context, one context each; the last must be before the recent window
#            ("0 13 26 39 52 65")
#   WAYS     "full own:0.5 text:0.5": the whole cache; that share of the heads streaming, chosen by bmc-prof heads
#            without a text, or with the last 12,000 characters of TEXT; and headwise: head by head from a file; evicted: all
#            heads streaming (StreamingLLM); cache:TYPE: the whole cache in that type; kv:POLICY; h2o:SHARE: that share of the entries,
#            by h2o.py (PYTHON, models of GGUF files)
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

# prompts TASK: TAB-separated length, depth, answer, prompt. A token is 4.6 characters of prose. Each context begins with another
# paragraph; words of lists are the longer ones of the text.
prompts() {
    awk -v RS= -v task="$1" -v lengths="${LENGTHS:-1000 2000 3000 4000}" -v depths="${DEPTHS:-0 13 26 39 52 65}" '
    function draw(n) { state = (state * 1103515245 + 12345) % 2147483648; return int(state / 65536) % n }
    { gsub(/[ \t\n]+/, " "); sub(/^ /, ""); gsub(/["\\]/, "") }
    length > 40 { paragraph[n++] = $0; for (i = 1; i <= NF; i++) if ($i ~ /^[a-z]+$/ && length($i) > 4 && length($i) < 8 && !($i in seen)) { seen[$i]; word[words++] = $i } }
    function prose(characters, inserts, fraction,   at, i, out) { # insert[1..inserts] at equal distances from the fraction on
        for (at = asked; length(out) < characters || i < inserts; at++) {
            while (i < inserts && length(out) >= characters * (fraction + (1 - fraction) * i / inserts)) out = out insert[++i] "\\n\\n"
            out = out paragraph[at % n] "\\n\\n"
        }
        return out
    }
    function needle(length_, depth,   name, answer) {
        answer = 10000 + draw(22768); name = city[1 + asked++ % cities]
        insert[1] = "The secret number of " name " is " answer "."
        return answer "\t" prose(4.6 * length_, 1, depth / 100) "The secret number of " name " is"
    }
    function track(length_, depth,   i, value, name, before, answer) {
        value = 10000 + draw(22768); before = value; asked++
        for (i = 1; i <= 5; i++) {
            name = sprintf("%c%c%c", 65 + draw(26), 65 + draw(26), 65 + draw(26))
            insert[i] = "VAR " name " = " (i > 1 ? "VAR " : "") before; before = name; answer = answer (i > 1 ? " " : "") name
        }
        return answer "\t" prose(4.6 * length_, 5, depth / 100) "Question: which variables have the value " value ", directly or through others?\\nAnswer: these five variables have the value " value ":"
    }
    function list(length_, asked_, zipf,   i, j, k, all, out, answer, one, first) { # 2.2 tokens per word and number
        first = draw(words); asked++
        for (i = 0; all < length_ / 2.2; i++) {
            k = zipf ? int(length_ / 2.2 * 0.6 / ((i + 1) * (i + 1))) : i < asked_ ? int(length_ / 2.2 / 20) : int(length_ / 2.2 / 80)
            if (k < 1) k = 1
            if (i < asked_) answer = answer (i ? " " : "") word[(first + i) % words]
            for (j = 0; j < k; j++) one[all++] = word[(first + i) % words]
        }
        for (i = all - 1; i > 0; i--) { j = draw(i + 1); k = one[i]; one[i] = one[j]; one[j] = k }
        for (i = 0; i < all; i++) out = out (i ? " " : "") one[i]
        return answer "\t" "These words occur in a list, some of them more often than others:\\n\\n" out "\\n\\nQuestion: what are the " asked_ " most common words in the list?\\nAnswer: the " asked_ " most common words in the list are:"
    }
    END {
        cities = split("Lisbon Vienna Oslo Cairo Lima Tokyo Madrid Dublin Prague Athens", city, " ")
        m = split(lengths, length_, " "); k = split(depths, depth, " "); state = 17
        for (i = 1; i <= m; i++)
            for (j = 1; j <= k; j++) {
                if (task == "track") asking = track(length_[i], depth[j])
                else asking = task == "needle" ? needle(length_[i], depth[j]) : list(length_[i], task == "common" ? 10 : 3, task == "frequent")
                print length_[i] "\t" depth[j] "\t" asking
            }
    }' "$text"
}
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
    for task in ${TASKS:-needle}; do
        case $task in needle) n=8 ;; track | frequent) n=24 ;; common) n=60 ;; *) fail "TASKS: $task: no such task" ;; esac
        prompts "$task" >"$work/prompts"
        jq -Rc --argjson n $n 'split("\t") | {id: .[2], prompt: ("\"" + .[3] + "\"" | fromjson), n: $n}' "$work/prompts" >"$work/in"
        for way in ${WAYS:-full own:0.5 text:0.5}; do
            case $way in
            full | h2o:*) set -- --kv bmc ;;
            headwise) set -- --kv headwise:group=1 ;;
            cache:*) set -- --kv bmc --cache-type "${way#*:}" ;;
            kv:*) set -- --kv "${way#*:}" ;;
            evicted)
                printf 'sink 4\nrecent %s\n' "$recent" >"$work/heads"
                set -- --kv headwise --retrieval-heads "$work/heads"
                ;;
            own:* | text:*)
                heads "${way%%:*}" "${way#*:}"
                set -- --kv headwise --retrieval-heads "$work/heads"
                ;;
            *) fail "WAYS: $way: no such way" ;;
            esac
            rm -f "$work/stats"
            case $way in
            h2o:*)
                "${PYTHON:?}" tests/bench/h2o.py "$model" "${way#*:}" "$threads" <"$work/in" >"$work/out" 2>"$work/error" || fail "$(tail -n 1 "$work/error")"
                echo '{}' >"$work/stats"
                ;;
            *)
                "$bin"/bmc-gen -q -m "$work/model" --jsonl -np 1 -t "$threads" --temp 0 --profile none -f "$work/in" --stats "$work/stats" "$@" >"$work/out" 2>"$work/error" ||
                    fail "$(head -n 1 "$work/error")"
                ;;
            esac
            jq -nc --arg model "${model##*/}" --arg task "$task" --arg way "$way" --slurpfile out "$work/out" --slurpfile stats "$work/stats" --rawfile prompts "$work/prompts" '
                $prompts | split("\n") | map(select(. != "") | split("\t")) | to_entries[] | .value as $p | $out[.key].text as $text |
                ($p[2] | split(" ")) as $parts | {model: $model, task: $task, way: $way, length: ($p[0] | tonumber), depth: ($p[1] | tonumber), answer: $p[2], text: $text,
                 hash: $stats[0].logits_hash, resident: $stats[0].kv_resident_bytes, parts: ($parts | length), found: (if $task == "needle" then $text | test("^ *" + $p[2] + "([^0-9]|$)") | if . then 1 else 0 end
                                                   else $parts | map(. as $part | select($text | test("\\b" + $part + "\\b"))) | length end)}' | tee "$work/rows"
            jq -rs --arg name "${model##*/} $task $way" '"\($name) \(map(.found) | add) of \(map(.parts) | add)"' "$work/rows" >&2
        done
    done
done
