# Trained drafters: drafts equal those of an independent implementation (tests/fixtures/drafters), the output that of bmc-gen.
load ../helper

setup_file() {
    for name in grimm grimm-pard grimm-eagle grimm-eagle3 grimm-mtp andersen andersen-pard andersen-eagle; do model "$name" >/dev/null; done
    export BMC_SEED=${BMC_SEED:-$RANDOM}
    echo "# BMC_SEED=$BMC_SEED" >&3
}

drafts() { # NAME FILE
    run "$BMC_BUILD/tests/test_drafts" "$(model "${1%%-*}")" "$(model "$1")" "$2"
}

@test "parallel draft model: tokens and probabilities of chains and trees are those of the reference" {
    for name in grimm-pard andersen-pard; do
        drafts "$name" "$FIXTURES/drafts/$name.json"
        assert_success
        [[ ${lines[-1]} =~ ^([0-9]+)' checks, 0 failed'$ ]]
        [ "${BASH_REMATCH[1]}" -ge 290 ]
    done
}

# heads NAME: its reference in the form of tests/fixtures/heads: parents count the root.
heads() {
    jq -c '(.cases[0] | {chain: ([-1] + (.chain.parents | map(. + 1))), tree: ([-1] + (.tree.parents | map(. + 1)))}) + {cases: [.cases[] |
        {ids: .prompt_ids, drafts: [{n: (.prompt_ids | length),
            chain: {tokens: .chain.ids, probabilities: .chain.probabilities}, tree: {tokens: .tree.ids, probabilities: .tree.probabilities}}]}]}' \
        "$FIXTURES/drafts/$1.json"
}

@test "draft head: tokens and probabilities of chains and trees are those of the reference" {
    local head
    for head in "$(model grimm) $(model grimm-eagle) grimm-eagle" "$(model grimm) $(model grimm-eagle3) grimm-eagle3" "$(model grimm-mtp) self grimm-mtp" \
        "$(model andersen) $(model andersen-eagle) andersen-eagle"; do
        read -r target draft name <<<"$head"
        heads "$name" >head.json
        run "$BMC_BUILD/tests/test_eagle" "$target" "$draft" head.json
        assert_success
        [[ ${lines[-1]} =~ ^([0-9]+)' checks, 0 failed'$ ]]
        [ "${BASH_REMATCH[1]}" -ge 700 ]
        jq -c '.cases[2].drafts[0].tree.probabilities[5] += 0.0002' head.json >other.json
        run "$BMC_BUILD/tests/test_eagle" "$target" "$draft" other.json
        assert_failure
    done
}

@test "MTP layer in the model's file: chains, trees and batches give the ids of bmc-gen" {
    local shape
    assert_equal "$(bmc-convert --info --format json "$(model grimm-mtp)" | jq -r .model_id)" "$(bmc-convert --info --format json "$(model grimm)" | jq -r .model_id)"
    jq -c '.cases | to_entries[] | {id: .key, ids: .value.prompt_ids, n: (40 + 9 * .key)}' "$FIXTURES/drafts/grimm-mtp.json" >in
    [ "$(wc -l <in)" -eq 4 ]
    bmc-gen --no-spec -q -m "$(model grimm)" --jsonl -c 120 <in >want
    for shape in "-k 8 -np 1 --kv bmc:r=16" "-k 8 -np 3 --kv paged" "--tree 26 -np 1 --kv paged" "--tree 26 -np 3 --kv bmc:r=16"; do
        sampled 2 || continue
        # shellcheck disable=SC2086 # words
        bmc-spec -q -m "$(model grimm-mtp)" -d self --jsonl -c 120 --always $shape --stats stats.json <in >got
        diff got want || fail "$shape"
        jq -e '.tokens_per_step > 1.9 and .drafter == "mtp"' stats.json || fail "$shape: $(cat stats.json)"
    done
}

@test "drafters of an OPT: chains, trees and batches give the ids of bmc-gen" {
    local drafter shape
    jq -c '.cases | to_entries[] | {id: .key, ids: .value.prompt_ids, n: (40 + 9 * .key)}' "$FIXTURES/drafts/andersen-eagle.json" >in
    bmc-gen --no-spec -q -m "$(model andersen)" --jsonl -c 120 <in >want
    for drafter in eagle pard; do
        for shape in "-k 8 -np 1 --kv bmc:r=16" "-k 8 -np 3 --kv paged" "--tree 26 -np 1 --kv reserve" "--tree 26 -np 3 --kv segment"; do
            sampled 3 || continue
            # shellcheck disable=SC2086 # words
            bmc-spec -q -m "$(model andersen)" -d "$(model "andersen-$drafter")" --jsonl -c 120 --always $shape --stats stats.json <in >got
            diff got want || fail "$drafter $shape"
            jq -e '.tokens_per_step > 1.9' stats.json || fail "$drafter $shape: $(cat stats.json)"
        done
    done
}

@test "draft head: chains, trees and a combined drafter give the ids of bmc-gen" {
    local shape
    bmc-gen --no-spec -q -m "$(model grimm)" -p "Once upon a time" -n 120 --ids >want
    for shape in "-k 8" "--tree 26" "--tree 26 --dynamic" "--suffix -k 8" "-k auto"; do
        # shellcheck disable=SC2086 # words
        bmc-spec -q -m "$(model grimm)" -d "$(model grimm-eagle)" -p "Once upon a time" -n 120 --ids --always $shape --stats stats.json >got
        diff got want || fail "$shape"
        # Measured times decide on the length of -k auto.
        [ "$shape" = "-k auto" ] || jq -e '.tokens_per_step > 1.5' stats.json || fail "$shape: $(cat stats.json)"
    done
}

@test "the comparison with the reference finds a different token and a different probability" {
    jq -c '.cases[3].tree.ids[27] += 1' "$FIXTURES/drafts/grimm-pard.json" >token.json
    drafts grimm-pard token.json
    assert_failure
    assert_line --regexp 'case 3, tree: node 28 is [0-9]+ below 12, [0-9]+ below 12 expected'
    jq -c '.cases[0].chain.probabilities[7] += 0.0002' "$FIXTURES/drafts/grimm-pard.json" >probability.json
    drafts grimm-pard probability.json
    assert_failure
    assert_line --partial 'case 0, chain: token '
    [ "$(grep -c 'not ok' <<<"$output")" -eq 1 ]
}

@test "parallel draft model: chains, trees and batches give the ids of bmc-gen" {
    local policy batch shape
    jq -c '.cases | to_entries[] | {id: .key, ids: .value.prompt_ids, n: (20 + 9 * .key)}' "$FIXTURES/drafts/grimm-pard.json" >in
    [ "$(wc -l <in)" -eq 4 ]
    bmc-gen --no-spec -q -m "$(model grimm)" --jsonl -c 80 <in >want
    for policy in bmc:r=16 segment; do
        for batch in 1 3; do
            for shape in "-k 8" "-k 1" "--tree 26" "-k auto"; do
                sampled 5 || continue
                # shellcheck disable=SC2086 # words
                bmc-spec -q -m "$(model grimm)" -d "$(model grimm-pard)" --jsonl -c 80 --always --kv $policy -np $batch $shape --stats stats.json <in >got
                diff got want || fail "$policy, batch $batch, $shape"
                [ "$shape" = "-k auto" ] || jq -e '.accepted > 10' stats.json || fail "$policy, batch $batch, $shape: $(cat stats.json)"
            done
        done
    done
}

@test "parallel draft model: more tokens per target pass than an untrained one, sampled and greedy" {
    local temp
    cp -r "$(folder grimm-draft)" untrained
    jq '.pard_token = 3' "$(folder grimm-draft)/config.json" >untrained/config.json
    bmc-convert untrained -o untrained.bmc
    jq -nc 'range(6) | {prompt: "Once upon a time", n: 120, seed: .}' >in
    for temp in 0 0.8; do
        for model in "$(model grimm-pard)" untrained.bmc; do
            bmc-spec -q -m "$(model grimm)" -d "$model" --jsonl -np 6 -f in --temp $temp --ignore-eos --always -k 8 --stats stats.json >out
            jq .tokens_per_step stats.json
        done >found
        [ "$(wc -l <found)" -eq 2 ]
        jq -se '.[0] > 1.1 * .[1]' found || fail "temperature $temp: $(cat found)"
    done
}
