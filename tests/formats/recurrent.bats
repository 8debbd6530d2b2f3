# Layers with recurrent state: whatever is done to sequences, their logits are those of plain decoding.
load ../helper

# The last has no attention: its cache has no KV entries.
RECURRENT='lfm2 kimi-linear falcon-h1 mamba2'
LONG='Once there was a cat that knew more than he did, and the king had three daughters by the river.'

setup_file() {
    for name in $RECURRENT; do
        bmc-convert "$FIXTURES/families/$name" -o "$BATS_FILE_TMPDIR/$name.bmc" || return 1
        bmc-convert "$FIXTURES/families/$name" --type q8_0 -o "$BATS_FILE_TMPDIR/$name-q8.bmc" || return 1
        bmc-gen -q -m "$BATS_FILE_TMPDIR/$name.bmc" -p "$LONG" -n 32 --ignore-eos --stats "$BATS_FILE_TMPDIR/$name.json" >"$BATS_FILE_TMPDIR/$name.text" || return 1
    done
}

# same NAME WHAT: the run that wrote stats.json and out had the logits and the text of plain decoding.
same() {
    assert_equal "$2 $(jq -r .logits_hash stats.json)" "$2 $(jq -r .logits_hash "$BATS_FILE_TMPDIR/$1.json")"
    cmp out "$BATS_FILE_TMPDIR/$1.text" || fail "$2: another text"
}

model() { echo "$BATS_FILE_TMPDIR/$1.bmc"; }

@test "prompts in chunks of 1, 7, 64 and 512 give the same bits" {
    for name in $RECURRENT; do for chunk in 1 7 64 512; do
        bmc-gen -q -m "$(model $name)" -p "$LONG" -n 32 --ignore-eos --chunk $chunk --stats stats.json >out
        same $name "chunks of $chunk"
    done; done
}

@test "drafts are verified and rolled back: chains, trees, every kind of drafter" {
    for name in $RECURRENT; do for kv in paged bmc:T=2 segment; do
        for drafter in "-d $BATS_FILE_TMPDIR/$name-q8.bmc -k 5" '--lookup -k 4' '--suffix -k 6' '--recycle --tree 8'; do
            # shellcheck disable=SC2086
            bmc-spec -q -m "$(model $name)" $drafter -p "$LONG" -n 32 --ignore-eos --always --kv $kv --stats stats.json >out
            same $name "$kv $drafter"
            case $drafter in -d*) [ "$(jq .accepted stats.json)" -ge 20 ] || fail "$name: $(jq -c '[.accepted, .drafted]' stats.json)" ;; esac
        done
    done; done
}

@test "snapshots continue under every policy, and are verified" {
    for name in $RECURRENT; do
        bmc-gen -q -m "$(model $name)" -p "$LONG" -n 9 --ignore-eos --save-kv story.kv >first
        ok bmc-convert --verify story.kv
        for kv in $(kv_policies); do
            bmc-gen -q -m "$(model $name)" --load-kv story.kv -n 23 --ignore-eos --kv "$kv" --stats stats.json >rest
            cat first rest >out
            [ "$kv" = shift ] || assert_equal "$kv $(jq -r .logits_hash stats.json)" "$kv $(jq -r .logits_hash "$BATS_FILE_TMPDIR/$name.json")"
            assert_equal "$(jq .loaded_tokens stats.json)" "$(jq -nr --rawfile text first "$(printf '%s' "$LONG" | wc -c) + 8")"
        done
        # A byte of the state, which is the last block.
        tables=$(od -A n -t u8 -j 24 -N 8 story.kv)
        printf '\377' | dd of=story.kv bs=1 seek=$((tables - 4096 + 1)) conv=notrunc status=none
        expect_error 1 'recurrent state [0-9]+ of sequence 0 has hash .*: it is damaged' bmc-convert --verify story.kv
    done
}

@test "a prompt cache is used from a kept state on" {
    for name in $RECURRENT; do
        rm -f chat.kv
        for loaded in 0 94; do
            bmc-gen -q -m "$(model $name)" -p "$LONG" -n 32 --ignore-eos --prompt-cache chat.kv --stats stats.json >out
            assert_equal "$(jq -r .logits_hash stats.json)" "$(jq -r .logits_hash "$BATS_FILE_TMPDIR/$name.json")"
            assert_equal "$(jq .loaded_tokens stats.json)" "$loaded"
        done
        # Of another prompt, a state before the first token that differs may be used.
        bmc-gen -q -m "$(model $name)" -p "${LONG%king*}queen" -n 32 --ignore-eos --prompt-cache chat.kv --stats stats.json >out 2>err
        jq -e --arg same "${LONG%king*}" '.loaded_tokens <= ($same | length) + 1' stats.json >/dev/null
        bmc-gen -q -m "$(model $name)" -p "${LONG%king*}queen" -n 32 --ignore-eos --stats plain.json >out
        assert_equal "$(jq .logits_hash stats.json)" "$(jq .logits_hash plain.json)"
    done
}

@test "contexts that shift: recomputed, they go on as a prompt of the tokens that are kept; windows roll alike in any chunks" {
    local prompt="5 9 13 17 21 25 29 33 37 41 45 49 53 57 61 65 69 73 77 81 85 89 93 97 101 105 109 113 117 121 125 129 133 137 141 145 149 153 157 161"
    for name in $RECURRENT; do
        gen() { bmc-gen -q -m "$(model $name)" --ignore-eos --ids --stats stats.json "$@"; }
        # shellcheck disable=SC2207
        all=($prompt $(gen --prompt-ids "$prompt" -n 60 -c 64 --kv shift --context-shift recompute --keep 4))
        # Of 65 tokens, the first 4 and the last (64 - 4) / 2 before the newest remain.
        assert_equal "$name: $(gen --prompt-ids "${all[*]:0:4} ${all[*]:34:31}" -n 25)" "$name: ${all[*]:65:25}"
        [ $name != mamba2 ] || continue # has no window that rolls
        for chunk in 512 7; do
            gen --prompt-ids "$prompt $prompt" -n 40 -c 64 --kv shift:S=48,slack=1 --chunk $chunk >rolled
            [ $chunk -eq 7 ] || want="$(<rolled) $(jq -r .logits_hash stats.json)"
            assert_equal "$name: $(<rolled) $(jq -r .logits_hash stats.json)" "$name: $want"
        done
    done
}

@test "batches with common prefixes have the results of single requests" {
    for name in $RECURRENT; do
        jq -nc --arg long "$LONG" 'range(8) | {id: ., prompt: ($long[0:(30 + 9 * (. % 4))] + ("" | . + (["a", "b", "c"][. | length]))), n: 12}' >requests
        bmc-gen -q -m "$(model $name)" --jsonl -np 1 --prefix-cache-mb 0 <requests | jq -c '[.id, .ids]' >want
        for options in '-np 3' '-np 4 --kv segment' '-np 2 --kv paged --chunk 5' '-np 1'; do
            # shellcheck disable=SC2086
            bmc-gen -q -m "$(model $name)" --jsonl $options --stats stats.json <requests | jq -c '[.id, .ids]' >have
            diff want have
            [ "$(jq .shared_rows stats.json)" -gt 0 ] || fail "$options: nothing was shared"
        done
    done
}

@test "beams have the same scores under every policy" {
    for name in $RECURRENT; do
        for kv in $(kv_policies | sed s,shift,,); do
            bmc-gen -q -m "$(model $name)" -p "$LONG" -n 10 --beams 3 --n-best 3 --kv "$kv" >"beams.$kv"
            cmp beams.bmc "beams.$kv"
        done
    done
}

@test "the state is counted, and layers without KV entries are not" {
    ok "$BMC_BIN/bmc-prof" memory --shape qwen3.5-9b -p 1 -n 0 --cache-type f32 --kv reserve --format json
    # 8 of 32 layers have KV entries; 24 layers have 32 heads of 128 x 128 and 3 inputs of 8192 channels.
    assert_equal "$(jq '.rows[] | select(.policy == "reserve") | .token_bytes' <<<"$output")" $((2 * 8 * 4 * 256 * 4))
    for shape in qwen3-next-80b-a3b qwen3.5-35b-a3b kimi-linear-48b-a3b lfm2-8b-a1b granite-4.0-h-{micro,tiny} falcon-h1-1.5b bamba-9b; do
        ok "$BMC_BIN/bmc-prof" memory --shape $shape -p 1 -n 0 --kv bmc --megabytes 16
    done
    ok "$BMC_BIN/bmc-prof" memory --shape qwen3.5-9b -p 1 -n 0 --cache-type f32 --kv reserve --format json
    [ "$(jq '.rows[] | select(.policy == "reserve") | .kv_bytes' <<<"$output")" -ge $((2 * 24 * 4 * (32 * 128 * 128 + 3 * 8192))) ]
}

# edited NAME EDIT: a folder with the fixture, its config.json changed.
edited() {
    rm -rf folder
    mkdir folder
    cp "$FIXTURES/families/$1"/* folder
    jq "$2" "$FIXTURES/families/$1/config.json" >folder/config.json
}

@test "long sequences keep as many states as cost half of their KV entries" {
    edited lfm2 '.max_position_embeddings = 1024'
    bmc-convert folder -o long.bmc >/dev/null
    jq -nc '[range(1000) | 5 + . * 7 % 240] as $ids | {ids: $ids, n: 1}, {ids: ($ids[:500] + [9] + $ids[501:]), n: 1}' >requests
    # A state has the bytes of 3 entries: 64 states in 1000 tokens, every 64 as a pass of 512 tokens keeps few; or 8, every 128.
    for memory in '' 64M; do
        bmc-gen -q -m long.bmc --jsonl -np 1 --stats stats.json ${memory:+--memory $memory} <requests >out
        assert_equal "$memory $(jq .shared_rows stats.json)" "$memory $([ "$memory" ] && echo 384 || echo 448)"
        jq -c .ids out >>ids
    done
    [ "$(sort -u ids | wc -l)" -le 2 ]
}

@test "the memory for prefix caching includes states" {
    cat >wide.shape <<'END'
family qwen35
layers 2
hidden 32
heads 2
kv_heads 1
head_dim 16
rope_dim 8
ffn 32
vocab 260
context 160
layer_types delta full
state_heads 16
state_key_heads 16
state_key_dim 128
state_value_dim 128
END
    bmc-convert --synth wide.shape --tokenizer "$FIXTURES/families/tokenizer.json" -o wide.bmc
    for word in a b; do jq -nc --arg text "$LONG $word" '{prompt: $text, n: 2}'; done >requests
    # A state of the only recurrent layer has 16 heads of 64 KiB: above 1 MiB with the inputs of its convolution.
    for case in '1 0' '64 94'; do
        bmc-gen -q -m wide.bmc --jsonl -np 1 --prefix-cache-mb "${case% *}" --ignore-eos --stats stats.json <requests >out
        if [ "${case#* }" -eq 0 ]; then assert_equal "$(jq .shared_rows stats.json)" 0; else [ "$(jq .shared_rows stats.json)" -ge 80 ]; fi
        jq -c .ids out >"ids.${case% *}"
    done
    cmp ids.1 ids.64
}

@test "a model without attention: --kv says that it has no effect, the context is not bounded, every program opens it" {
    model=$(model mamba2)
    "$BMC_BIN/bmc-gen" -m "$model" -p "$LONG" -n 2 --ignore-eos --kv paged >out 2>err
    grep -q -- '--kv paged has no effect: no layer of this model has KV entries$' err || fail "$(cat err)"
    assert_equal "$(bmc-convert --info --format json "$model" | jq -c '[.context, .heads]')" '[16777216,0]'
    bmc-gen -q -m "$model" -p "$LONG" -n 2 --ignore-eos --stats stats.json >out
    assert_equal "$(jq -r .kv_policy stats.json)" none
    [ "$(jq .peak_resident_bytes stats.json)" -lt 100000000 ] || fail "$(jq .peak_resident_bytes stats.json)"
    ok "$BMC_BIN/bmc-prof" memory -m "$model" -p 8 -n 8
    ok "$BMC_BIN/bmc-prof" bench -m "$model" -p 8 -n 8 -r 1
    for command in policies sweep; do expect_error 1 'no attention, so there are no KV cache policies to compare$' "$BMC_BIN/bmc-prof" $command -m "$model" -N 32; done
    expect_error 1 'no attention, so there is no KV cache to tune$' bmc-tune -m "$model"
    for folder in 1 2; do
        bmc-gen -q -m "$model" -p "$LONG" -n 32 --ignore-eos --prefix-cache store,states=64 --stats stats.json >out
        same mamba2 "prefix cache, process $folder"
    done
    [ "$(jq '.prefix_cache_hit_rate * 100 | floor' stats.json)" -ge 80 ] || fail "$(jq .prefix_cache_hit_rate stats.json)"
}

@test "layers by a list of numbers or an interval are those of layer_types" {
    for edit in 'lfm2|.full_attn_idxs = [1]' 'qwen35|.full_attention_interval = 2'; do
        name=${edit%%|*}
        edited "$name" "del(.layer_types) | ${edit#*|}"
        bmc-convert folder -o a.bmc
        bmc-convert "$FIXTURES/families/$name" -o b.bmc
        cmp a.bmc b.bmc
    done
}

@test "GGUF files whose recurrent heads are in another order give the results of their folders" {
    for name in qwen35 qwen35-moe; do
        mkdir folder
        cp "$FIXTURES/gguf/families/$name"/{config.json,model.safetensors} "$FIXTURES/families/tokenizer.json" folder/
        bmc-convert folder -o folder.bmc
        bmc-convert "$FIXTURES/gguf/families/$name/model.gguf" -o gguf.bmc
        assert_equal "$(bmc-convert --info --format json gguf.bmc | jq .state_tiled)" true
        for file in folder gguf; do
            printf '%s' "$LONG" | bmc-gen -q -m $file.bmc --score --precision f32 --format json | jq -c '[.rows[1:][] | .logprob]' >$file.json
            bmc-gen -q -m $file.bmc -p "$LONG" -n 24 --ids --ignore-eos >$file.ids
            bmc-spec -q -m $file.bmc --lookup --always -p "$LONG" -n 24 --ids --ignore-eos >$file.drafts
        done
        [ "$(jq length folder.json)" -ge 90 ]
        jq -ne --slurpfile a folder.json --slurpfile b gguf.json '[range($a[0] | length) | $a[0][.] - $b[0][.] | fabs] | max < 1e-5'
        cmp folder.ids gguf.ids
        cmp gguf.ids gguf.drafts
        rm -r folder
    done
}

@test "limits of time steps that have no effect are accepted, infinite ones included" {
    edited granite-hybrid '.time_step_limit = ["lowest", "highest"]'
    sed -i 's/"lowest"/0.0/; s/"highest"/Infinity/' folder/config.json
    grep -q 'Infinity' folder/config.json
    bmc-convert folder -o a.bmc
    bmc-convert "$FIXTURES/families/granite-hybrid" -o b.bmc
    cmp a.bmc b.bmc
    sed -i 's/Infinity/Infinitely/' folder/config.json
    expect_error 1 'not valid JSON at line' bmc-convert folder -o bad.bmc
    edited granite-hybrid '.time_step_limit = [0, 0.1]'
    expect_error 1 '"time_step_limit.1" is 0.1, but the granite-hybrid family supports only infinite$' bmc-convert folder -o bad.bmc
    edited granite-hybrid '.time_step_limit = [0.01, 0.1]'
    expect_error 1 '"time_step_limit.0" is 0.01, but' bmc-convert folder -o bad.bmc
}

@test "each trait of recurrent models changes the results" {
    n=0
    while IFS='|' read -r name edit; do
        edited "$name" "$edit"
        bmc-convert folder -o a.bmc || fail "$name: $edit"
        run "$BMC_BUILD/tests/reference" a.bmc "$FIXTURES/families/$name/reference.json" bmc 1 512 1 f32 f32 1e-5
        [ "$status" -eq 1 ] || fail "$name: $edit changes nothing: $output"
        n=$((n + 1))
    done <<'END'
qwen3next|.norm_topk_prob = false
qwen35-moe|.num_experts_per_tok = 1
qwen35-moe|.rope_parameters.partial_rotary_factor = 0.5
lfm2-moe|.routed_scaling_factor = 1
lfm2-moe|.norm_topk_prob = false
granite-hybrid|.position_embedding_type = "rope"
granite-hybrid|.mamba_n_groups = 1 | .mamba_d_state = 22
granite-hybrid-moe|.position_embedding_type = null
granite-hybrid-moe|.num_experts_per_tok = 1
granite-hybrid-moe|.residual_multiplier = 0.5
falcon-h1|.mamba_norm_before_gate = true
falcon-h1-first|.mamba_norm_before_gate = false
nemotron-h|.mlp_hidden_act = "relu"
nemotron-h-moe|.routed_scaling_factor = 1
nemotron-h-moe|.n_group = 1 | .topk_group = 1
nemotron-h-moe|.norm_topk_prob = false
mamba2|.n_groups = 1 | .state_size = 22
kimi-linear|.routed_scaling_factor = 1
kimi-linear|.moe_renormalize = false
END
    [ "$n" -eq 19 ]
}

@test "what recurrent layers do not support is refused" {
    for name in lfm2 qwen35; do
        cp -r "$FIXTURES/families/$name" bad
        cp -L --remove-destination "$FIXTURES/families/$name/tokenizer.json" bad/tokenizer.json
        jq 'del(.layer_types)' "$FIXTURES/families/$name/config.json" >bad/config.json
        case $name in lfm2) why='is missing from the weights' ;; *) why='"layer_types" has more than 3 entries for 3 layers' ;; esac
        expect_error 1 "$why" bmc-convert bad -o bad.bmc
        jq '.layer_types |= map(if . == "full_attention" then "mamba" else . end)' "$FIXTURES/families/$name/config.json" >bad/config.json
        expect_error 1 'layer_types has layers with state of several kinds' bmc-convert bad -o bad.bmc
        jq '.layer_types |= map("full_attention")' "$FIXTURES/families/$name/config.json" >bad/config.json
        expect_error 1 'is missing from the weights' bmc-convert bad -o bad.bmc
        jq '.conv_L_cache = 1 | .linear_conv_kernel_dim = 65' "$FIXTURES/families/$name/config.json" >bad/config.json
        expect_error 1 'conv_kernel' bmc-convert bad -o bad.bmc
        rm -rf bad
    done
    while IFS='|' read -r name edit pattern; do
        edited "$name" "del(.layer_types) | $edit"
        expect_error 1 "$pattern" bmc-convert folder -o bad.bmc
    done <<'END'
lfm2|.full_attn_idxs = [4]|"full_attn_idxs" is not a list of numbers of 4 layers$
lfm2|.full_attn_idxs = [-1]|"full_attn_idxs" is not a list of numbers of 4 layers$
lfm2|.full_attn_idxs = 1|"full_attn_idxs" is not a list of numbers of 4 layers$
lfm2|.full_attn_idxs = []|heads, kv_heads and head_dim must be 0, as no layer has attention; found 2, 1 and 40$
nemotron-h|.hybrid_override_pattern = "M-*xM"|"layer_types" is x for layer 3
nemotron-h|.num_attention_heads = 0|heads, kv_heads and head_dim must be above 0, as a layer has attention; found 0, 1 and 16$
nemotron-h|.intermediate_size = 0|layers with an MLP need an ffn above 0$
nemotron-h-moe|.moe_latent_size = 8|"moe_latent_size" is 8, but the nemotron-h family supports only 0$
kimi-linear|.linear_attn_config.full_attn_layers = [0]|full_attn_layers" is not a list of numbers of 3 layers$
kimi-linear|.linear_attn_config.num_heads = 1|q_proj.weight" has shape
kimi-linear|.mla_use_nope = false|supports only true$
mamba2|.num_heads = 6|state_value_dim: 80 is not a multiple of 6$
qwen35|.full_attention_interval = 0|"full_attention_interval" is not an interval of 3 layers$
qwen35|.full_attention_interval = 1.5|"full_attention_interval" is not an interval of 3 layers$
bamba|.attn_layer_indices = [3]|"attn_layer_indices" is not a list of numbers of 3 layers$
bamba|.mamba_n_heads = 7|state_value_dim: 80 is not a multiple of 7$
bamba|.mamba_n_heads = 0|state_value_dim: 80 is not a multiple of 0$
bamba|.mamba_n_groups = 3|state_heads a multiple of state_key_heads; found 8 heads of 10, and 3 heads of keys of 11$
bamba|.mamba_n_groups = 0|state_heads a multiple of state_key_heads; found 8 heads of 10, and 0 heads of keys of 11$
bamba|.mamba_d_conv = 1|need a conv_kernel from 2 to 64, found 1$
bamba|.mamba_d_conv = 5|conv1d.weight" has shape
bamba|.mamba_d_state = 12|in_proj.weight" has shape
falcon-h1|.projectors_bias = true|"projectors_bias" is true, but the falcon-h1 family supports only false$
granite-hybrid|.layer_types = ["mamba", "attention"]|"layer_types" has 2 entries for 3 layers$
END
    jq '.linear_num_value_heads = 3' "$FIXTURES/families/qwen35/config.json" >config.json
    cp "$FIXTURES/families/qwen35/model.safetensors" .
    expect_error 1 'state_heads a multiple of state_key_heads' bmc-convert . -o bad.bmc
    expect_error 1 '\-\-retrieval-heads needs a model whose layers all have KV entries of their own, and heads of one size' bmc-gen -q -m "$(model lfm2)" -p a -n 1 --kv headwise --retrieval-heads /dev/null
    expect_error 1 'have no attention: give more' "$BMC_BIN/bmc-prof" policies --shape lfm2-1.2b --layers 2 -N 2 --kv bmc
}
