#!/bin/sh
# ROUGE-2 of summaries (Lin, 2004), the metric of BASS paper, tables 1 and 5: the one-line descriptions of the required and
# important Debian packages of this machine, from their long descriptions, by a model with a chat template.
#
#   sh tests/bench/rouge.sh OPTION ..      of bmc-spec, as -m MODEL.bmc -d DRAFT.bmc; -m MODEL.bmc --suffix -k 0: without drafts
#
#   TEMP, TOP_P, SEED  (0.2, 0.95, 0)      N  tokens (32), of which the first line counts      BMC_BIN, THREADS
#
# Prints the mean F measure of bigrams, accepted drafts, and a hash of all texts.
set -eu
export BMC_CONFIG=none # no defaults of this account
bin=$(realpath "${BMC_BIN:-$(dirname "$0")/../../bin}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

dpkg-query -W -f '${Priority}\t${Package}\t${Description}@@@\n' | jq -Rsc --argjson n "${N:-32}" '
    split("@@@\n") | map(select(test("^(required|important)\t")) | split("\t") | {id: .[1], lines: (.[2:] | join(" ") | split("\n"))} |
        {id, reference: .lines[0], text: (.lines[1:] | map(select(. != " .")) | join(" ") | gsub("\\s+"; " ") | .[:900])}) | map(select(.text | length > 200)) |
    .[] | {id, reference, messages: [{role: "user", content: "Summarize in one line what this software does:\n\(.text)"}], max_tokens: $n}' >"$work/in"
"$bin/bmc-spec" -q --jsonl --lenient -np 8 -t "${THREADS:-$(nproc)}" --temp "${TEMP:-0.2}" --top-p "${TOP_P:-0.95}" --seed "${SEED:-0}" --profile none --stats "$work/stats" \
    -f "$work/in" "$@" >"$work/out" 2>"$work/error" || { head -n 1 "$work/error" >&2 && exit 1; }
jq -rn --slurpfile in "$work/in" --slurpfile out "$work/out" --slurpfile stats "$work/stats" --arg hash "$(jq -c .text "$work/out" | sha256sum | head -c 12)" '
    def bigrams: ascii_downcase | [scan("[a-z0-9]+")] | . as $w | [range(length - 1) | $w[.:. + 2] | join(" ")];
    def shared($a; $b): [$a | unique[] | . as $x | [[$a, $b][] | map(select(. == $x)) | length] | min] | add // 0;
    ($out | INDEX(.id)) as $answer |
    [$in[] | (.reference | bigrams) as $r | ($answer[.id].text | split("\n") | map(select(test("\\S")))[0] // "" | bigrams) as $g | 2 * shared($r; $g) / ([($r + $g | length), 1] | max)] |
    "\(length) summaries, ROUGE-2 \(add / length * 10000 | round / 10000), \($stats[0].accepted) of \($stats[0].drafted) drafts accepted, texts \($hash)"'
