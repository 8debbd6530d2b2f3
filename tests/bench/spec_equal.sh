#!/bin/bash
# Texts of random seeds, samplers and constraints: bmc-gen, and bmc-spec with random drafters, draft lengths, trees, batches and pauses give
# those of bmc-gen --no-spec.
#
#   bash tests/bench/spec_equal.sh [TEXTS]      (10000)
#
# SEED (1) selects the combinations. Needs jq.
set -euo pipefail
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."
texts=${1:-10000} each=100
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
RANDOM=${SEED:-1}
pick() { printf -v "$1" %s "${@:2+RANDOM%($#-1):1}"; }
differ=0 tokens=0 drafted=0 accepted=0 drafter="" shape="" pauses="" np=1
for ((done = 0; done < texts; done += each)); do
    jq -nc --argjson from "$done" --argjson n "$each" '
        range($n) as $i | ($from + $i) as $t | {seed: ($t * 7919), prompt: (["Once upon a time", "The king", "The fox said", "There was once a poor"][$t % 4] + " and" * ($t % 3)), max_tokens: (8 + $t % 17)}
        + [{temp: 0.7}, {temp: 1.2, top_k: 0, top_p: 1, min_p: 0}, {temp: 1, mirostat: 2, mirostat_tau: 3}, {temp: 0.9, xtc_probability: 0.5}, {temp: 0.8, typical_p: 0.8, dynatemp_range: 0.4}, {temp: 1, repeat_penalty: 1.2},
            {temp: 1, dry_multiplier: 0.8, top_n_sigma: 1.5}, {temp: 0.8, presence_penalty: 0.2, top_k: 5}][$t % 8]
        + [{}, {}, {}, {regex: "[a-z ,]{4,60}[.]"}, {choice: [" had a son", " had a daughter", " was very old", " went home"]}, {json_schema: {type: "object", properties: {name: {type: "string", maxLength: 12}, age: {type: "integer"}}, required: ["name", "age"]}}][$t % 6]' >"$scratch/in"
    pick drafter "-d models.d/grimm-draft.bmc" "-d models.d/grimm-eagle.bmc" "-d models.d/grimm-eagle3.bmc" "-d models.d/grimm-pard.bmc" "-m models.d/grimm-mtp.bmc -d self" --lookup --suffix --recycle "--suffix -d models.d/grimm-draft.bmc" gen
    pick shape "-k 1" "-k 3" "-k 8" "-k bass" "" "--tree 5" "--tree 16" "--tree 40"
    [[ $drafter != --lookup || $shape != --tree* ]] || shape="-k 5"
    [[ $drafter != *eagle* || $shape != --tree* ]] || pick shape "$shape" "$shape --dynamic"
    pick pauses --always --always ""
    pick np 1 3 8 32
    plain=models.d/grimm.bmc
    if [[ $drafter = -m* ]]; then plain=models.d/grimm-mtp.bmc; else drafter="-m $plain $drafter"; fi
    program=bmc-spec
    [[ $drafter != *gen ]] || program=bmc-gen drafter="-m $plain" shape="" pauses=""
    bin/bmc-gen -q -m "$plain" --no-spec --jsonl -np 16 -f "$scratch/in" 2>"$scratch/err" | jq -c '[.ids, .finish, .error]' >"$scratch/want"
    # shellcheck disable=SC2086 # words
    bin/$program -q $drafter $shape $pauses --jsonl -np "$np" -f "$scratch/in" --stats "$scratch/stats" 2>"$scratch/err" | jq -c '[.ids, .finish, .error]' >"$scratch/got"
    other=$(diff "$scratch/want" "$scratch/got" | grep -c '^>') || true
    [ "$(wc -l <"$scratch/got")" -eq "$each" ] || other=$each
    [ "$other" -eq 0 ] || echo "$other of $each texts differ: $program $drafter $shape $pauses -np $np, texts from $done"
    differ=$((differ + other))
    read -r more took < <(jq -r '"\(.drafted) \(.accepted)"' "$scratch/stats")
    tokens=$((tokens + $(jq -s 'map(.[0] // [] | length) | add' "$scratch/want")))
    drafted=$((drafted + more)) accepted=$((accepted + took))
done
echo "$done texts of $tokens tokens, $differ differ from bmc-gen --no-spec's; $accepted of $drafted draft tokens accepted"
[ "$differ" -eq 0 ]
