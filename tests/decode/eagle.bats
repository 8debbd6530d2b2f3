# Draft heads (EAGLE, EAGLE-3 in two layouts, P-EAGLE, a form of MTP): conversion, proposals against PyTorch, the ids of bmc-gen, snapshots, errors.
load ../helper

setup_file() {
    export BMC_SEED=${BMC_SEED:-$RANDOM}
    echo "# BMC_SEED=$BMC_SEED" >&3
    cd "$BATS_FILE_TMPDIR" || return 1
    mkdir target
    ln -s "$FIXTURES"/heads/target/* "$FIXTURES"/models/llama-3-like/tokenizer* target/
    bmc-convert target -o target.bmc || return 1
    for head in eagle eagle3 speculators peagle; do bmc-convert "$FIXTURES/heads/$head" -o $head.bmc || return 1; done
    bmc-convert --family "$FIXTURES/heads/mtp.family" "$FIXTURES/heads/mtp" -o mtp.bmc || return 1
    # Texts and a common prefix of two of them; some fill the context.
    jq -c '.cases as $c | ($c[] | {ids: .ids[:9], n: 60}, {ids: .ids[:15], n: -1}), {ids: ($c | map(.ids) | add), n: 40},
        {ids: ($c | map(.ids) | add | . + [7, 8]), n: 40}' "$FIXTURES/heads/eagle.json" >in
    bmc-gen --no-spec -q -m target.bmc --jsonl -c 200 -np 1 --stats plain.json <in | jq -c '[.ids, .finish]' >want
    [ "$(wc -l <want)" -eq 8 ]
}

setup() {
    mkdir "$BATS_TEST_TMPDIR/here" && cd "$BATS_TEST_TMPDIR/here" || return 1
    ln -s "$BATS_FILE_TMPDIR"/{*.bmc,in,want} .
}

ids() { jq -c '.cases[0].ids' "$FIXTURES/heads/eagle.json" | tr -d '[]' | tr , ' '; }

# check HEAD OPTION..: the ids of bmc-gen and the hash of its logits. With --tree auto, times decide whether there are drafts.
check() {
    local head=$1 least=${LEAST:-100} family
    [[ "$*" != *"--tree auto"* ]] || least=-1
    shift
    family=$head
    [[ $head != speculators && $head != peagle ]] || family=eagle3
    bmc-spec -q -m target.bmc -d "$head.bmc" --jsonl -c 200 --always --stats stats.json "$@" <in >out 2>err || fail "$head $*: $(cat err)"
    [ ! -s err ] || fail "$head $*: $(cat err)"
    jq -c '[.ids, .finish]' out | cmp -s - want || fail "$head $*: $(jq -c '[.ids, .finish]' out | diff - want)"
    jq -e --slurpfile plain "$BATS_FILE_TMPDIR/plain.json" --arg head "$family" --argjson least $least '.logits_hash == $plain[0].logits_hash and .drafter == $head and .drafted > $least' \
        stats.json >/dev/null || fail "$head $*: $(cat stats.json)"
}

@test "proposed chains and trees, and their probabilities, match PyTorch" {
    for head in eagle eagle3 mtp speculators peagle; do
        run "$BMC_BUILD/tests/test_eagle" target.bmc $head.bmc "$FIXTURES/heads/$head.json"
        [ "$status" -eq 0 ] || fail "$head: $output"
        [[ $output =~ ([0-9]+)' checks, 0 failed'$ ]]
        [ "${BASH_REMATCH[1]}" -ge 1000 ]
    done
}

# tests/unit/poisoned_spec.c
@test "on a backend whose memory only its functions can use, draft heads propose and are verified as on the CPU" {
    head -n 2 in | jq -c '.n = 9' >few
    local head
    for head in eagle eagle3 mtp speculators peagle; do
        for program in bmc-spec "$BMC_BUILD/tests/poisoned_spec"; do
            "$program" -q -m target.bmc -d $head.bmc --jsonl -np 2 -k 3 --always --stats stats.json <few >out || fail "$head: $program: $(cat out)"
            jq -c .ids out
            jq -c '[.drafted, .accepted, .logits_hash]' stats.json
        done >both
        [ "$(wc -l <both)" -eq 6 ]
        cmp -s <(head -n 3 both) <(tail -n 3 both) || fail "$head: $(cat both)"
    done
}

@test "every policy, shape and batch gives the ids and the logits of bmc-gen" {
    local head how
    while read -r head how; do
        # shellcheck disable=SC2086 # words
        if sampled 3; then check "$head" $how; fi
    done <<'END'
eagle -k 4 -np 1
eagle --tree 12 -np 3 --kv paged:16
eagle -np 8 --kv bmc:r=16 --prefix-cache-mb 0
eagle --tree 26 -np 2 --kv segment -t 2
eagle -k 1 -np 3 --kv iterative
eagle --tree 7 -np 2 --kv upfront --ragged pad --chunk 16
eagle3 -k 8 -np 2 --kv reserve --ragged split
eagle3 --tree 12 -np 4
mtp --tree 9 -np 2
speculators -k 6 -np 2 --kv reserve:r=16
speculators --tree 12 --dynamic -np 3
peagle -k 8 -np 3 --kv paged
peagle -k 1 -np 1
peagle --tree 12 -np 4 --prefix-cache-mb 0 --kv reserve:r=16
peagle --tree 12 --dynamic -np 2 --kv segment -t 2
peagle -k 5 -np 8 --chunk 16 --ragged split
peagle -k 5 -np 2 -cd 20
peagle -np 2 --kv bmc:r=16
eagle --tree 40 --dynamic -np 1 --kv reserve
eagle3 --tree 1 --dynamic -np 4
eagle -k 4 -np 3 -cd 40
eagle --tree 12 -np 1 -cd 20 --draft-kv paged:16
eagle --tree auto -np 1
END
    check eagle --tree 12 --dynamic -np 3
    jq -e '.tokens_per_step > 1.5' stats.json >/dev/null || fail "$(cat stats.json)"
    # Accepted tokens of one pass, and of trees.
    check eagle --tree 12 -np 1
    jq -e '.tokens_per_step > 1.5 and .acceptance_by_position[1] > 0.1' stats.json >/dev/null || fail "$(cat stats.json)"
}

@test "random heads, policies, shapes, batches and snapshots give the ids and the logits of bmc-gen" {
    local head policy other shape option want long
    RANDOM=$BMC_SEED LEAST=0 # trees become nodes where nothing is accepted
    long=$(jq -r '[.cases[].ids] | add | map(tostring) | join(" ")' "$FIXTURES/heads/eagle.json")
    for _ in {1..9}; do
        pick head eagle eagle3 speculators peagle mtp
        pick policy bmc bmc:r=16 bmc:r=17,grow=now reserve:r=16 reserve:r=40 reserve:r=32,grow=now paged segment iterative upfront
        pick other bmc:r=32 reserve:r=16 reserve:r=48,grow=now paged:32 segment
        pick shape "-k $((1 + RANDOM % 9))" "--tree $((2 + RANDOM % 25))" "--tree $((2 + RANDOM % 25)) --dynamic"
        pick option "" "--prefix-cache-mb 0" "--ragged split" "-t 2" "-cd 40" "--chunk $((16 + RANDOM % 50))"
        # shellcheck disable=SC2086 # words
        check "$head" --kv "$policy" $shape -np $((1 + RANDOM % 5)) $option
        bmc-gen --no-spec -q -m target.bmc --kv "$policy" --prompt-ids "$long" -n 0 --save-kv s.kv >/dev/null
        want=$(bmc-gen --no-spec -q -m target.bmc --load-kv s.kv --prompt-ids "7 8" -n 40 --ids)
        # shellcheck disable=SC2086
        ok bmc-spec -q -m target.bmc -d "$head.bmc" --kv "$other" --load-kv s.kv --prompt-ids "7 8" -n 40 $shape --ids --always
        assert_output "$want"
    done
}

@test "rolling windows and context shift" {
    for kv in "--kv shift:S=48" "--kv shift --context-shift recompute --keep 4"; do
        for shape in "-k 5" "--tree 9"; do
            # shellcheck disable=SC2086 # words
            want=$(bmc-gen --no-spec -q -m target.bmc --prompt-ids "$(ids)" -n 120 -c 60 $kv --ids --ignore-eos)
            # shellcheck disable=SC2086
            ok bmc-spec -q -m target.bmc -d eagle.bmc --prompt-ids "$(ids)" -n 120 -c 60 $kv $shape --ids --ignore-eos --always --stats stats.json
            assert_output "$want"
            [ "$(jq .accepted stats.json)" -gt 0 ]
        done
    done
}

@test "snapshots and prefixes: the last tokens of a prompt are computed, for their hidden states" {
    long=$(jq -r '[.cases[].ids] | add | map(tostring) | join(" ")' "$FIXTURES/heads/eagle.json")
    bmc-gen --no-spec -q -m target.bmc --prompt-ids "$long" -n 0 --save-kv s.kv >/dev/null
    want=$(bmc-gen --no-spec -q -m target.bmc --load-kv s.kv --prompt-ids "7 8" -n 50 --ids)
    ok bmc-spec -q -m target.bmc -d eagle.bmc --load-kv s.kv --prompt-ids "7 8" -n 50 -k 4 --ids --always --stats stats.json --save-kv t.kv
    assert_output "$want"
    jq -e '.loaded_tokens == 122 - 64 and .prefill_tokens == 64 and .drafted > 50' stats.json >/dev/null || fail "$(cat stats.json)"
    # A prompt that is no longer than that is computed whole.
    bmc-gen --no-spec -q -m target.bmc --prompt-ids "$(ids)" -n 0 --save-kv short.kv >/dev/null
    want=$(bmc-gen --no-spec -q -m target.bmc --load-kv short.kv --prompt-ids "5" -n 30 --ids)
    ok bmc-spec -q -m target.bmc -d eagle.bmc --load-kv short.kv --prompt-ids "5" -n 30 -k 4 --ids --always --stats stats.json
    assert_output "$want"
    jq -e '.loaded_tokens == 0 and .drafted > 30' stats.json >/dev/null || fail "$(cat stats.json)"
    # Of a common prefix, too; other drafters compute one token.
    for i in 1 2; do jq -nc --arg ids "$long" '{ids: ($ids | split(" ") | map(tonumber)), n: 5}'; done >twice
    bmc-spec -q -m target.bmc -d eagle.bmc --jsonl -np 1 --always --stats stats.json <twice >/dev/null
    assert_equal "$(jq .prefill_tokens stats.json)" $((120 + 64))
    bmc-spec -q -m target.bmc --lookup --jsonl -np 1 --always --stats stats.json <twice >/dev/null
    assert_equal "$(jq .prefill_tokens stats.json)" $((120 + 1))
}

@test "published layouts: told by tensor names, and equal once converted" {
    model_id() { bmc-convert --info --format json "$1" | jq -r .model_id; }
    # EAGLE's own config.json names the target's architecture.
    for head in eagle eagle3; do
        cp -r "$FIXTURES/heads/$head" $head
        jq '.architectures = ["LlamaForCausalLM"]' "$FIXTURES/heads/$head/config.json" >$head/config.json
        bmc-convert $head -o other.bmc
        assert_equal "$(model_id other.bmc)" "$(model_id $head.bmc)"
    done
    # Other names of EAGLE-3's layer; and of EAGLE's.
    edit_safetensors eagle3/model.safetensors 'with_entries(.key |= sub("^midlayer"; "layers.0"))'
    jq . "$FIXTURES/heads/eagle3/config.json" >eagle3/config.json
    bmc-convert eagle3 -o other.bmc
    assert_equal "$(model_id other.bmc)" "$(model_id eagle3.bmc)"
    edit_safetensors eagle/model.safetensors 'with_entries(.key |= sub("^layers"; "model.layers"))'
    cp "$FIXTURES/heads/eagle/config.json" eagle/
    bmc-convert eagle -o other.bmc
    assert_equal "$(model_id other.bmc)" "$(model_id eagle.bmc)"
    ok bmc-convert --verify other.bmc
    # Hidden states by the layers before them, or by the layer that computes them; at either place of config.json.
    cp -r "$FIXTURES/heads/peagle" peagle
    jq '.eagle_config = {} | .eagle_aux_hidden_state_layer_ids = [2, 4, 7] | .ptd_token_id = .pard_token | del(.pard_token)' \
        "$FIXTURES/heads/peagle/config.json" >peagle/config.json
    bmc-convert peagle -o other.bmc
    assert_equal "$(model_id other.bmc)" "$(model_id peagle.bmc)"
    jq '.eagle_config.eagle_aux_hidden_state_layer_ids = [2, 4, 6]' "$FIXTURES/heads/peagle/config.json" >peagle/config.json
    bmc-convert peagle -o other.bmc
    refute [ "$(model_id other.bmc)" = "$(model_id peagle.bmc)" ]
    bmc-convert "$FIXTURES/heads/eagle" -o other.bmc
    # Quantised, it still drafts.
    bmc-convert "$FIXTURES/heads/eagle" --type q8_0 -o other.bmc
    ok bmc-spec -q -m target.bmc -d other.bmc --prompt-ids "$(ids)" -n 20 --ids --always
    assert_output "$(bmc-gen --no-spec -q -m target.bmc --prompt-ids "$(ids)" -n 20 --ids)"
}

@test "error messages" {
    expect_error 1 'eagle.bmc: is a draft head, which only drafts for its target model: bmc-spec -m' bmc-gen -m eagle.bmc -p x
    expect_error 1 'eagle.bmc: is a draft head' "$BMC_BIN/bmc-prof" policies -m eagle.bmc
    expect_error 1 'eagle.bmc: is a draft head for a model with a hidden size of 32, the model .*grimm.bmc has 256; choose' \
        bmc-spec -m "$(model grimm)" -d eagle.bmc -p x
    # Synthetic targets of other sizes.
    tiny_shape small.shape hidden 32 heads 2 kv_heads 1 vocab 406 layers 6
    bmc-convert --synth ./small.shape -o six.bmc
    expect_error 1 'eagle3.bmc: reads three hidden states of a target of at least 7 layers, the model six.bmc has 6' bmc-spec -m six.bmc -d eagle3.bmc -p x
    tiny_shape small.shape hidden 32 heads 2 kv_heads 1 vocab 300
    bmc-convert --synth ./small.shape -o other.bmc
    expect_error 1 'eagle.bmc: is a draft head for a model with a vocabulary of 406, the model other.bmc has 300' bmc-spec -m other.bmc -d eagle.bmc -p x
    expect_error 2 'dynamic goes with --tree N' bmc-spec -m target.bmc -d eagle.bmc -p x --dynamic
    expect_error 2 'leave --dynamic out' bmc-spec -m target.bmc -d eagle.bmc -p x --tree 4 --dynamic --record-acceptance
    expect_error 1 'dynamic needs a draft head .* not the drafter "recycle"' bmc-spec -m target.bmc --recycle --tree 4 --dynamic -p x
    # A damaged table of ids.
    cp eagle3.bmc map.bmc
    at=$(bmc-convert --info --format json map.bmc | jq '.rows[] | select(.name == "draft_offset") | .offset')
    printf '\x00\x00\x20\xc1' | patch map.bmc $((at + 4)) # -10
    expect_error 1 'map.bmc: draft_offset gives logit 1 the id -9, expected a whole number below 406' bmc-spec -m target.bmc -d map.bmc -p x
    printf '\xff\xff\xff\x7f' | patch map.bmc $((at + 4))
    expect_error 1 'map.bmc: draft_offset gives logit 1 the id -?nan' bmc-spec -m target.bmc -d map.bmc -p x
    expect_error 1 'tinyllama-eagle: a draft head has no tokenizer' bmc-convert --synth tinyllama-eagle --tokenizer "$(folder llama-3-like)" -o x.bmc
    # Folders whose configuration is not that of a head.
    cp -r "$FIXTURES/heads/eagle3" bad
    jq '.target_hidden_size = 64' "$FIXTURES/heads/eagle3/config.json" >bad/config.json
    expect_error 1 'fc.weight" has shape \[32\]\[96\], its configuration needs \[32\]\[192\]' bmc-convert bad -o x.bmc
    jq '.num_hidden_layers = 2' "$FIXTURES/heads/eagle3/config.json" >bad/config.json
    expect_error 1 'num_hidden_layers" is 2' bmc-convert bad -o x.bmc
    jq '.eagle_config = {use_aux_hidden_state: false}' "$FIXTURES/heads/eagle3/config.json" >bad/config.json
    expect_error 1 'use_aux_hidden_state" is false' bmc-convert bad -o x.bmc
    jq '.fc_norm = true' "$FIXTURES/heads/eagle3/config.json" >bad/config.json
    expect_error 1 'fc_norm" is true' bmc-convert bad -o x.bmc
    for layers in "[2, 4] feature_layers.has.2.numbers,.features.is.3" "[2, 3.5, 4] feature_layers.has.3.5" "[2, -1, 4] feature_layers"; do
        jq ".eagle_aux_hidden_state_layer_ids = ${layers% *}" "$FIXTURES/heads/eagle3/config.json" >bad/config.json
        expect_error 1 "${layers##* }" bmc-convert bad -o x.bmc
    done
    jq '.eagle_aux_hidden_state_layer_ids = [2, 4, 8]' "$FIXTURES/heads/eagle3/config.json" >bad/config.json
    bmc-convert bad -o x.bmc
    expect_error 1 'x.bmc: reads the hidden state behind layer 8 of a target, the model target.bmc has 7 layers; choose' bmc-spec -m target.bmc -d x.bmc -p x
    rm x.bmc
    jq 'del(.pard_token)' "$FIXTURES/heads/peagle/config.json" >bad/config.json
    cp "$FIXTURES/heads/peagle/model.safetensors" bad/
    expect_error 1 'a mask_feature needs a mask_token' bmc-convert bad -o x.bmc
    jq '.pard_token = 406' "$FIXTURES/heads/peagle/config.json" >bad/config.json
    expect_error 1 'mask_token 406 must be below the vocab of 406' bmc-convert bad -o x.bmc
    cp "$FIXTURES/heads/eagle3/"* bad/
    edit_safetensors bad/model.safetensors 'del(.d2t)'
    expect_error 1 'draft_map' bmc-convert bad -o x.bmc
}

@test "a damaged head, whose logits are not finite" {
    cp eagle.bmc nan.bmc
    at=$(bmc-convert --info --format json nan.bmc | jq '.rows[] | select(.name == "fusion.bias") | .offset')
    printf '\xff\xff\xff\x7f' | patch nan.bmc "$at"
    run --separate-stderr bmc-spec -q -m target.bmc -d nan.bmc --prompt-ids "$(ids)" -n 9 --always
    [ "$status" -eq 1 ]
    [[ $stderr == "bmc-spec: the draft head gives no finite logits"* ]]
}
