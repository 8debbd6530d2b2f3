# Mixtures of experts: traits, invalid configurations, and results that depend neither on grouping nor on anything else.
load ../helper

setup_file() {
    export BMC_SEED=${BMC_SEED:-$((($(date +%s%N) / 1000) % 32768))}
}

results() { echo "$FIXTURES/families/$1/reference.json"; }

# Converts the fixture NAME with an edited config.json to a.bmc.
edited() { # NAME EDIT
    rm -rf folder a.bmc
    mkdir folder
    cp "$FIXTURES/families/$1"/* folder
    jq "$2" "$FIXTURES/families/$1/config.json" >folder/config.json
}

@test "each trait of the experts changes the results" {
    n=0
    while IFS='|' read -r name edit; do
        edited "$name" "$edit"
        bmc-convert folder -o a.bmc || fail "$name: $edit"
        run "$BMC_BUILD/tests/reference" a.bmc "$(results "$name")" bmc 1 512 1 f32 f32 1e-5
        [ "$status" -eq 1 ] || fail "$name: $edit changes nothing: $output"
        n=$((n + 1))
    done <<'END'
mixtral|.num_experts_per_tok = 1
mixtral|.num_experts_per_tok = 3
qwen3-moe|.num_experts_per_tok = 2
qwen3-moe|.norm_topk_prob = false
qwen2-moe|.norm_topk_prob = true
glm4-moe|.n_group = 8 | .topk_group = 3
glm4-moe|.n_group = 1 | .topk_group = 1
glm4-moe|.topk_group = 3
glm4-moe|.routed_scaling_factor = 1
glm4-moe|.norm_topk_prob = false
glm4-moe|.partial_rotary_factor = 0.6
deepseek-v2-moe|.topk_method = "greedy"
deepseek-v2-moe|.topk_group = 3
deepseek-v2-moe|.routed_scaling_factor = 1
deepseek-v2-lite|.n_group = 4 | .topk_group = 2 | .topk_method = "group_limited_greedy"
deepseek-v3-moe|.n_group = 8 | .topk_group = 3
deepseek-v3-moe|.topk_group = 1 | .n_group = 1
deepseek-v3-moe|.norm_topk_prob = false
deepseek-v3-moe|.routed_scaling_factor = 1
glm4-moe-lite|.routed_scaling_factor = 1
glm4-moe-lite|.norm_topk_prob = false
granite-moe|.num_experts_per_tok = 2
granite-moe|.residual_multiplier = 1
granite-moe|.attention_multiplier = 0.5
ernie4_5-moe|.moe_k = 3
ernie4_5-moe|.rope_theta = 10000
gpt-oss|.swiglu_limit = null
gpt-oss|.sliding_window = null | .layer_types = null
gpt-oss|.sliding_window = 20
gpt-oss|.rope_scaling.truncate = true
gpt-oss|.num_experts_per_tok = 3
gpt-oss-wide|.swiglu_alpha = null
gpt-oss-wide|.swiglu_limit = 1.3
END
    [ "$n" -eq 33 ]
}

@test "invalid numbers of experts are refused by name" {
    n=0
    while IFS='|' read -r name edit pattern; do
        edited "$name" "$edit"
        expect_error 1 "$pattern" bmc-convert folder -o a.bmc
        [ ! -e a.bmc ]
        n=$((n + 1))
    done <<'END'
mixtral|.num_local_experts = 0|experts_used, expert_ffn, shared_ffn and expert_beside need experts above 0$
mixtral|.num_local_experts = -1|experts is "-1"
mixtral|.num_local_experts = 1e9|experts is "1000000000.*from 0 to 1024
mixtral|.num_local_experts = 6|"model.layers.0.block_sparse_moe.gate.weight" has shape \[5\]\[40\], its configuration needs \[6\]\[40\]$
mixtral|.num_local_experts = 4|"model.layers.0.block_sparse_moe.gate.weight" has shape \[5\]\[40\], its configuration needs \[4\]\[40\]$
mixtral|.num_experts_per_tok = 0|experts_used must be from 1 to the 5 experts, found 0$
mixtral|.num_experts_per_tok = 6|experts_used must be from 1 to the 5 experts, found 6$
mixtral|.intermediate_size = 45|w1.weight" has shape \[44\]\[40\], its configuration needs \[45\]\[40\]$
mixtral-fused|.intermediate_size = 45|gate_up_proj" has shape \[3\]\[88\]\[40\], its configuration needs \[3\]\[90\]\[40\]$
qwen3-moe|.moe_intermediate_size = 0|experts need an expert_ffn above 0$
qwen3-moe|del(.moe_intermediate_size)|"moe_intermediate_size" is missing$
qwen3-moe|.decoder_sparse_step = 0|expert_every is "0"
qwen3-moe|.mlp_only_layers = []|"model.layers.2.mlp.gate.weight" is missing from the weights$
qwen3-moe|.mlp_only_layers = [1, 2]|"model.layers.1.mlp.gate_proj.weight" is missing from the weights$
qwen3-moe|.mlp_only_layers = [-1]|"mlp_layers" needs at most 128 numbers from 0 to 1024, found "-1"$
qwen3-moe|.mlp_only_layers = [range(200)]|"mlp_layers" needs at most 128 numbers
qwen3-moe|.mlp_only_layers = "x"|"mlp_layers" needs at most 128 numbers from 0 to 1024, found "x"$
glm4-moe|.n_group = 3|8 experts in router_groups 3, of which router_groups_used is 2: the groups must have one size
glm4-moe|.topk_group = 5|8 experts in router_groups 4, of which router_groups_used is 5: 
glm4-moe|.topk_group = 0|8 experts in router_groups 4, of which router_groups_used is 0: 
glm4-moe|.topk_group = 1|and those used at least experts_used, 3, experts$
glm4-moe|.first_k_dense_replace = 0|"model.layers.0.mlp.gate.weight" is missing from the weights$
glm4-moe|.first_k_dense_replace = 2|"model.layers.1.mlp.gate_proj.weight" is missing from the weights$
glm4-moe|.n_shared_experts = 3|shared_experts.gate_proj.weight" has shape \[36\]\[40\], its configuration needs \[54\]\[40\]$
granite-moe|.shared_intermediate_size = 13|shared_mlp.input_linear.weight" has shape [[]52[]][[]40[]], its configuration needs [[]26[]][[]40[]]$
granite-moe|.num_local_experts = 0|experts_used, expert_ffn, shared_ffn and expert_beside need experts above 0$
ernie4_5-moe|.moe_norm_min = 0.1|"moe_norm_min" is 0.1, but the ernie45-moe family supports only 1e-12$
ernie4_5-moe|.moe_layer_end_index = -1|"model.layers.3.mlp.gate.weight" is missing
ernie4_5-moe|.moe_layer_start_index = 2|"model.layers.1.mlp.gate_proj.weight" is missing
ernie4_5-moe|.moe_layer_end_index = -2|expert_last is "-2"
ernie4_5-moe|.moe_layer_interval = 1|"model.layers.2.mlp.gate.weight" is missing
ernie4_5-moe|.use_bias = true|"use_bias" is true, but the ernie45-moe family supports only false$
gpt-oss|.swiglu_limit = 0|clamped_swiglu needs mlp gated, and swiglu_limit and swiglu_alpha above 0, which others exclude$
gpt-oss|.swiglu_limit = -1|swiglu_limit is "-1"
gpt-oss|.intermediate_size = 64|gate_up_proj_blocks" has shape [[]4[]][[]64[]][[]64[]], its configuration needs [[]4[]][[]128[]][[]64[]]$
gpt-oss|.quantization_config.quant_method = "awq"|config.json says that the weights are quantized .awq., but no tensor is
olmoe|.clip_qkv = 8|"clip_qkv" is 8, but the olmoe family supports only 0$
END
    [ "$n" -eq 37 ]
}

# All types and instruction sets: the same bits with any number of threads, tokens per pass and sequences, with drafts and under
# other policies.
@test "results depend on nothing but the tokens" {
    echo "# BMC_SEED=$BMC_SEED" >&3
    jq -c '.cases | to_entries[] | {id: .key, prompt: .value.prompt, n: 12}' "$(results qwen3-moe)" >in
    for type in f32 bf16 q8_0 q8_channel q4_0; do
        bmc-convert "$FIXTURES/families/qwen3-moe" --type $type -o $type.bmc
        for isa in $(isas); do
            [ "$isa" != blas ] || continue # its sums depend on the batch: a draw of two logits can fall either way
            sampled 3 || continue
            export BMC_ISA=$isa
            bmc-gen -q -m $type.bmc --jsonl --ignore-eos -b 1 -t 1 <in >one
            hash=$(jq -sc 'map([.id, .ids, .logits_hash])' one)
            for how in '-b 3 -t 2' '-b 1 -t 2 --chunk 1' '-b 2 --chunk 7 --kv paged' '-b 3 --kv iterative'; do
                bmc-gen -q -m $type.bmc --jsonl --ignore-eos $how <in >other
                assert_equal "$type $isa $how $(jq -sc 'map([.id, .ids, .logits_hash])' other)" "$type $isa $how $hash"
            done
            bmc-spec -q -m $type.bmc --recycle --jsonl --ignore-eos -b 2 <in >other
            assert_equal "$type $isa $(jq -sc 'map(.ids)' other)" "$type $isa $(jq -sc 'map(.ids)' one)"
        done
    done
}

@test "experts of a model are listed and verified" {
    bmc-convert "$FIXTURES/families/qwen3-moe" --type q4_0 -o a.bmc
    ok bmc-convert --verify a.bmc
    bmc-convert --info --format json a.bmc >info
    assert_equal "$(jq -c '[.experts, .experts_used, .expert_ffn]' info)" '[7,3,18]'
    assert_equal "$(jq -c '.rows[] | select(.name == "layers.1.experts_down.weight") | [.type, .shape, .padded]' info)" \
        '["q4_0","7x40x18","7x48x32"]'
    # Routers keep the source's type, and layer 2 has a plain MLP.
    assert_equal "$(jq -r '.rows[] | select(.name == "layers.1.router.weight") | .type' info)" f16
    assert_equal "$(jq -c '[.rows[].name | select(startswith("layers.2.") and test("expert|router"))]' info)" '[]'
    offset=$(jq '.rows[] | select(.name == "layers.3.experts_up.weight") | .offset + 500' info)
    printf x | dd of=a.bmc bs=1 seek="$offset" conv=notrunc status=none
    expect_error 1 'tensor "layers.3.experts_up.weight" has hash' bmc-convert --verify a.bmc
}

@test "an importance matrix has the inputs of every expert, whatever the threads and chunks, and whether they are in memory" {
    bmc-convert "$FIXTURES/families/qwen3-moe" -o a.bmc
    text=$(jq -r '.scores[0].text' "$(results qwen3-moe)")
    bmc-gen -q -m a.bmc --score --summary -p "$text" -t 1 --save-imatrix one.imp >/dev/null
    bmc-gen -q -m a.bmc --score --summary -p "$text" -t 2 --chunk 5 --save-imatrix two.imp >/dev/null
    cmp one.imp two.imp
    bmc-gen -q -m a.bmc --score --summary -p "$text" --experts ram=80K --save-imatrix disk.imp --stats stats.json >/dev/null
    jq -e '.experts_read_bytes > 0' stats.json
    cmp one.imp disk.imp
    for type in q4_0 q4_1; do
        bmc-convert "$FIXTURES/families/qwen3-moe" --type $type --imatrix one.imp -o b.bmc 2>/dev/null
        bmc-convert "$FIXTURES/families/qwen3-moe" --type $type -o c.bmc
        refute cmp -s b.bmc c.bmc
    done
}

# 128 experts of 8-bit weights, all zero: mapped pages that were read are released, whatever the size of the file.
@test "converting a GGUF file of 170 MB takes less than 48 MiB of memory" {
    [[ $BMC_BUILD != *sanitize* ]] || skip "sanitizers add memory of their own"
    tail -c +9 "$FIXTURES/gguf/experts.header" >a.gguf
    truncate -s "$(number_at "$FIXTURES/gguf/experts.header" 0 8)" a.gguf
    "$BMC_BUILD/tests/peak_memory" "$BMC_BIN/bmc-convert" -q a.gguf -o a.bmc >peak
    assert_equal "$(bmc-convert --info --format json a.bmc | jq -c '[.experts, ([.rows[] | select(.name | test("experts")) | .type] | unique)]')" '[128,["q8_0"]]'
    [ "$(stat -c %s a.bmc)" -gt 160000000 ]
    [ "$(<peak)" -lt $((48 << 10)) ] || fail "$(<peak) KiB"
}

@test "shapes of mixtures of experts" {
    for shape in qwen3-30b-a3b mixtral-8x7b olmoe-1b-7b qwen1.5-moe-a2.7b glm-4.5-air granite-3.1-1b-a400m ernie-4.5-21b-a3b gpt-oss-20b; do
        "$BMC_BIN/bmc-prof" policies --shape $shape --layers 1 -N 2 --repeat 1 --kv bmc >/dev/null 2>err || fail "$shape: $(cat err)"
    done
}

# A layer has 64 + 4096 + 2 * 2048 + 2 * 16 + 4096 + 64 + 512 numbers besides experts, of 3 * 2048 each; 3 layers, the final norm, and
# a head of 32768 make 108576 numbers with 2 experts. A token's KV entries in all layers are 768 bytes; on average a step reads 2.5 and writes one.
@test "bmc-prof bench counts the bytes of the experts that a step ran" {
    sed -e 's/^layers .*/layers 3/; s/^hidden .*/hidden 64/; s/^heads .*/heads 4/; s/^kv_heads .*/kv_heads 2/; s/^head_dim .*/head_dim 16/' \
        -e 's/^ffn .*/ffn 64/; s/^expert_ffn .*/expert_ffn 32/; s/^vocab .*/vocab 512/; s/^experts .*/experts 8/' \
        -e 's/^experts_used .*/experts_used 2/; s/^eos .*/eos 1/' "$ROOT/models.d/shapes/qwen3-30b-a3b.shape" >a.shape
    bmc-convert --synth ./a.shape --type f32 -o a.bmc
    "$BMC_BIN/bmc-prof" bench -m a.bmc -p 2 -n 4 -np 1,5 -r 1 --warmup 0 --format json 2>/dev/null >rows
    jq -e '[.rows[] | select(.test == "decode")] | .[0].experts_per_layer == 2 and .[0].step_bytes == 108576 * 4 + 3.5 * 768 and
        (.[1] | .experts_per_layer > 2 and .experts_per_layer <= 8 and
            (.step_bytes - (108576 * 4 + 5 * 3.5 * 768 + (.experts_per_layer - 2) * 3 * 3 * 2048 * 4) | fabs) < 1)' rows >/dev/null || fail "$(cat rows)"
    jq -e '[.rows[] | select(.test == "prefill") | .experts_per_layer] == [null, null]' rows >/dev/null
}

# Qwen3-30B-A3B has 30,532,122,624 parameters: 210,944 of them in norms, which are f32. A token reads the head, 311,164,928, and of each of
# 48 layers 8 of 128 experts and the rest: 56,885,248 without norms.
@test "bmc-prof memory counts weights, those of experts, and those that a token reads" {
    prof() { "$BMC_BIN/bmc-prof" memory "$@" -p 1 -n 1 --megabytes 1 --kv bmc --format json 2>/dev/null | jq -c '.rows[0] | [.weight_bytes, .active_weight_bytes, .expert_bytes]'; }
    assert_equal "$(prof --shape qwen3-30b-a3b)" \
        "[$((2 * (30532122624 - 210944) + 4 * 210944)),$((2 * (311164928 + 48 * 56885248) + 4 * 210944)),$((2 * 48 * 128 * 3 * 2048 * 768))]"
    # q4_0: 18 bytes for 32 weights; routers are bf16
    router=$((48 * 128 * 2048))
    assert_equal "$(prof --shape qwen3-30b-a3b --type q4_0 | jq '.[0]')" $(((30532122624 - 210944 - router) / 32 * 18 + router * 2 + 4 * 210944))
    # a model file: its tensors are not padded here
    bmc-convert --synth opt-125m --type bf16 -o a.bmc
    assert_equal "$(prof -m a.bmc | jq '.[0]')" "$(bmc-convert --info --format json a.bmc | jq '[.rows[] | select(.bytes)] | unique_by(.offset) | map(.bytes) | add')"
}

# ---- gpt-oss ----

@test "attention sinks, windows and biases: the same bits under every policy, cache type, batch and chunk, with drafts and snapshots" {
    echo "# BMC_SEED=$BMC_SEED" >&3
    jq -nc '[range(40) | 5 + . * 7 % 240] as $head | range(4) as $i |
        {id: $i, ids: ($head[:(40 - 9 * ($i % 3))] + [range(1 + $i * 3) | 40 + $i, 50 + . * 3 % 90]), n: (24 + $i)}' >in
    jq -c '.n = 9' in >first
    jq -c '{id}' in >rest
    for name in gpt-oss gpt-oss-wide; do
        bmc-convert -q "$FIXTURES/families/$name" -o $name.bmc
        for type in f32 bf16 q8 q4 q4h; do
            sampled 2 || continue
            bmc-gen -q -m $name.bmc --jsonl --ignore-eos --cache-type $type -np 1 --chunk 1 --threads 1 --kv iterative --prefix-cache-mb 0 -f in >one
            want=$(jq -sc 'map([.id, .ids])' one)
            for how in $(kv_policies) bmc:T=3 'reserve:r=5 --chunk 7' 'segment:r=5 -np 2 --chunk 17' 'paged:32 --threads 1'; do
                bmc-gen -q -m $name.bmc --jsonl --ignore-eos --cache-type $type -np 4 --kv $how -f in >other
                cmp -s <(jq -Sc . one) <(jq -Sc . other) || fail "$name $type $how: $(diff one other)"
            done
            for how in '--lookup -k 4' '--recycle --tree 12 --kv paged'; do
                bmc-spec -q -m $name.bmc $how --always --jsonl --ignore-eos --cache-type $type -np 2 -f in >other
                assert_equal "$name $type $how $(jq -sc 'map([.id, .ids]) | sort' other)" "$name $type $how $want"
            done
            bmc-gen -q -m $name.bmc --jsonl --ignore-eos --cache-type $type --kv segment --save-kv k.kv -f first >before
            bmc-gen -q -m $name.bmc --jsonl --ignore-eos --cache-type $type --kv paged --load-kv k.kv -n 15 <rest >after
            assert_equal "$type $(jq -sc 'group_by(.id) | map([.[0].id, ((map(.ids) | add)[:24])])' before after)" "$type $(jq -sc 'map([.id, .ids[:24]])' one)"
        done
    done
}

@test "MXFP4: blocks of a folder are stored as they are; scales of NaN and pairs that do not fit are refused" {
    bmc-convert -q "$FIXTURES/families/gpt-oss" -o a.bmc
    assert_equal "$(bmc-convert --info --format json a.bmc | jq -c '[.rows[] | select(.name | test("experts_.*weight")) | [.type, .source]] | unique')" '[["mxfp4","MXFP4"]]'
    # Quantised from the same values, a group keeps all of them in 8 bits.
    bmc-convert -q "$FIXTURES/families/gpt-oss" --type f32 -o wide.bmc
    for isa in $(isas); do
        for model in a wide; do BMC_ISA=$isa bmc-gen -q -m $model.bmc -p abcdef -n 9 --ignore-eos --precision f32 --ids; done | uniq | wc -l >n
        assert_equal "$isa $(<n)" "$isa 1"
    done
    edited gpt-oss .
    chmod u+w folder/model.safetensors
    at=$(safetensors_at folder/model.safetensors model.layers.1.mlp.experts.down_proj_scales)
    printf '\xff' | patch folder/model.safetensors $((at + 5))
    expect_error 1 'tensor "model.layers.1.mlp.experts.down_proj_blocks" has weights that are NaN or infinite' bmc-convert -q folder -o b.bmc
    edited gpt-oss .
    edit_safetensors folder/model.safetensors 'with_entries(if .key == "model.layers.0.mlp.experts.down_proj_scales" then .value.shape |= [.[1], .[0], .[2]] else . end)'
    expect_error 1 'tensors "model.layers.0.mlp.experts.down_proj_blocks" and "model.layers.0.mlp.experts.down_proj_scales" are not blocks of MXFP4' bmc-convert -q folder -o b.bmc
    edited gpt-oss .
    edit_safetensors folder/model.safetensors 'del(."model.layers.0.mlp.experts.down_proj_scales")'
    expect_error 1 . bmc-convert -q folder -o b.bmc
}
