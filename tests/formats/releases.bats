# Folders and files as their publishers release them: tensors beside the language model, and weights in several files. The converted
# model is that of the same folder without them, and what is left out is said.
load ../helper

setup_file() {
    export BMC_SEED=${BMC_SEED:-$((($(date +%s%N) / 1000) % 32768))}
    for name in gemma4 gemma3 llama4 qwen35 ernie4_5-moe gpt-neox gptj ministral3; do
        bmc-convert "$FIXTURES/families/$name" -o "$BATS_FILE_TMPDIR/$name.bmc" || return 1
    done
}

# ./m: a fixture whose weights have further tensors, each of two bytes.
released() { # NAME TENSOR..
    local name=$1 head names
    shift
    names=$([ $# -eq 0 ] || printf '"%s",' "$@")
    rm -rf m
    mkdir m
    cp "$FIXTURES/families/$name"/{config.json,tokenizer.json} m
    head=$(number_at "$FIXTURES/families/$name/model.safetensors" 0 8)
    tail -c +9 "$FIXTURES/families/$name/model.safetensors" | head -c "$head" | jq -c "([.[].data_offsets[1]?] | max) as \$at
        | . + ([${names%,}] | to_entries | map({key: .value, value: {dtype: \"F16\", shape: [1], data_offsets: [\$at + 2 * .key, \$at + 2 * .key + 2]}}) | from_entries)" >head
    {
        bytes_le 8 "$(stat -c %s head)"
        cat head
        tail -c +$((9 + head)) "$FIXTURES/families/$name/model.safetensors"
        head -c $((2 * $#)) /dev/zero
    } >m/model.safetensors
}

# converts NAME NOTE: ./m gives the model of the fixture, and says NOTE.
converts() {
    run_plain bmc-convert m -o a.bmc
    assert_equal "$1: $status $stderr" "$1: 0 bmc-convert: m: $2"
    cmp a.bmc "$BATS_FILE_TMPDIR/$1.bmc" || fail "$1"
}

# Names of transformers' modules, and of the lists of tensors that vLLM's and llama.cpp's loaders skip.
@test "tensors of other modalities, of MTP layers, and buffers are left out with a note" {
    released gemma4 model.vision_tower.patch_embedder.input_proj.weight model.vision_tower.encoder.layers.0.self_attn.q_proj.linear.weight model.vision_tower.std_bias \
        model.embed_vision.embedding_projection.weight model.vision_embedder.patch_dense.weight model.audio_tower.layers.0.lconv1d.depthwise_conv1d.weight \
        model.embed_audio.embedding_projection.weight model.layers.{2,3}.self_attn.{k_proj,v_proj,k_norm}.weight
    converts gemma4 '13 tensors that the language model does not use are left out: vision encoder (5), audio encoder (2), keys and values of layers that use those of another (6)'
    released gemma3 vision_tower.vision_model.encoder.layers.0.layer_norm1.bias multi_modal_projector.mm_soft_emb_norm.weight model.vision_tower.vision_model.post_layernorm.bias
    converts gemma3 '3 tensors that the language model does not use are left out: vision encoder (3)'
    released llama4 vision_model.class_embedding multi_modal_projector.linear_1.weight
    converts llama4 '2 tensors that the language model does not use are left out: vision encoder (2)'
    released ministral3 vision_tower.patch_conv.weight vision_tower.transformer.layers.0.attention.q_proj.weight multi_modal_projector.patch_merger.merging_layer.weight
    converts ministral3 '3 tensors that the language model does not use are left out: vision encoder (3)'
    released qwen35 model.visual.patch_embed.proj.weight
    converts qwen35 '1 tensor that the language model does not use is left out: vision encoder (1)'
    released ernie4_5-moe model.mtp_block.0.input_layernorm.weight model.mtp_emb_norm.0.weight model.mtp_hidden_norm.0.weight model.mtp_linear_proj.0.weight
    converts ernie4_5-moe '4 tensors that the language model does not use are left out: multi-token prediction (4)'
    released gpt-neox gpt_neox.layers.0.attention.{bias,masked_bias,rotary_emb.inv_freq}
    converts gpt-neox '3 tensors that the language model does not use are left out: masks and tables (3)'
    released gptj transformer.h.0.attn.{bias,masked_bias}
    converts gptj '2 tensors that the language model does not use are left out: masks and tables (2)'
}

# Files that Ollama makes have the encoders of images and sound in the same file; those of Gemma 4 have all keys and values.
@test "GGUF: tensors of encoders beside the language model are left out with a note" {
    model=$FIXTURES/gguf/families/gemma4/model.gguf last=per_layer_proj_norm.weight # the last tensor; its type, size and offset follow
    end=$(($(grep -obUa $last "$model" | tail -n 1 | cut -d: -f1) + ${#last} + 24))
    data=$(((end + 31) / 32 * 32))
    {
        head -c 8 "$model"
        bytes_le 8 $(($(number_at "$model" 8 8) + 7))
        tail -c +17 "$model" | head -c $((end - 16))
        at=$(($(stat -c %s "$model") - data))
        for name in v.patch_embedding.weight mm.input_projection.weight a.conv1d.1.weight mm.a.mlp.1.weight blk.2.attn_k.weight blk.3.attn_{v,k_norm}.weight; do
            bytes_le 8 ${#name}
            printf %s $name
            bytes_le 4 1
            bytes_le 8 1
            bytes_le 4 0
            bytes_le 8 $at
            at=$((at + 32))
        done
    } >m
    truncate -s %32 m
    { tail -c +$((data + 1)) "$model"; head -c 224 /dev/zero; } >>m
    bmc-convert "$model" -o want.bmc
    run_plain bmc-convert m -o a.bmc
    assert_equal "$status $stderr" "0 bmc-convert: m: 7 tensors that the language model does not use are left out: vision encoder (2), audio encoder (2), keys and values of layers that use those of another (3)"
    cmp a.bmc want.bmc
}

@test "an LM head that differs from the embedding is used, whatever the configuration says" {
    released mistral
    bmc-convert m -o want.bmc
    sed -i 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' m/config.json
    grep -q '"tie_word_embeddings": true' m/config.json
    run_plain bmc-convert m -o a.bmc
    assert_equal "$status $stderr" "0 bmc-convert: m: the configuration ties the LM head to the embedding, but lm_head.weight differs from it and is used"
    cmp a.bmc want.bmc
    # A head that is a copy stays tied.
    at=$(safetensors_at m/model.safetensors lm_head.weight)
    tail -c +$(($(safetensors_at m/model.safetensors model.embed_tokens.weight) + 1)) m/model.safetensors | head -c $((4 * 40 * 260)) >embedding
    patch m/model.safetensors "$at" <embedding
    ok bmc-convert m -o a.bmc
    bmc-convert --info --format json a.bmc | jq -e '.tied_head == true' >/dev/null
}

@test "tensors that no publisher releases are refused" {
    for name in model.towers.weight audio.conv.weight v.blk.0.attn_q.weight model.layers.1.self_attn.k2_proj.weight; do
        released gemma4 $name
        expect_error 1 "the gemma4 family does not use tensor $name; correct" bmc-convert m -o a.bmc
    done
}

# ---- names ----

# As base models have them, without the prefix that the class with an LM head adds; and inside multimodal models. Each tensor of a fixture
# gets one of the names in turn.
@test "tensor names of every family may lack the prefix of the base model, or have that of a multimodal model" {
    n=0
    for family in $(grep -lE '^architecture' "$ROOT"/models.d/families/*.family); do
        n=$((n + 1))
        [[ $family != */eagle* ]] || continue # draft heads are no base models
        sampled 8 || continue
        sed -n 's/^architecture *\([^ ]*\)$/"\1"/p' "$family" >architectures
        # Parts of a quantised tensor have one prefix, here each tensor has its own.
        # shellcheck disable=SC2046
        name=$(dirname "$(grep -L quantization_config $(grep -lFf architectures "$FIXTURES"/{families,models,encoders}/*/config.json) </dev/null | head -n 1)")
        [[ $name != . && $name != */encoders/* ]] || continue # their prefixes are other ones
        rm -rf m
        cp -rL "$name" m
        edit_safetensors m/model.safetensors '["", "model.", "language_model.model.", "model.language_model.", "language_model."] as $p
            | to_entries | map(.key |= (sub("^(transformer|gpt_neox)\\."; "") | sub("^language_model\\.model\\.|^model\\.language_model\\."; "model."))) | to_entries
            | map(.key as $i | .value | if .key | startswith("model.") and (startswith("model.visual.") | not) then .key |= $p[$i % 5] + .[6:] else . end) | from_entries'
        bmc-convert -q "$name" -o want.bmc
        bmc-convert -q m -o a.bmc || fail "$family"
        cmp a.bmc want.bmc || fail "$family"
    done
    [ "$n" -ge 53 ]
}

# ---- config.json ----

# edited NAME FILTER: ./m, a fixture whose config.json a jq filter has edited.
edited() {
    rm -rf m
    mkdir m
    cp "$FIXTURES/families/$1"/* m
    jq "$2" "$FIXTURES/families/$1/config.json" >m/config.json
}

# compare_config.py compares them with transformers 5.24.
@test "members of config.json that are missing, null or given twice mean what they mean in transformers" {
    n=0
    while IFS=';' read -r name edit equal; do
        n=$((n + 1))
        sampled 4 || continue
        edited "$name" "$edit"
        bmc-convert -q m -o a.bmc || fail "$name: $edit"
        edited "$name" "$equal"
        bmc-convert -q m -o b.bmc
        cmp a.bmc b.bmc || fail "$name: $edit"
    done <<'ROWS'
mistral;.rope_theta = 77 | .rope_parameters = {rope_type: "default", rope_theta: 3000};.rope_theta = 3000
mistral;.rope_theta = 77 | .rope_scaling = {rope_type: "linear", factor: 2, rope_theta: 3000};.rope_theta = 3000 | .rope_scaling = {type: "linear", factor: 2}
mistral;.rope_scaling = {type: "linear", factor: 2} | .rope_parameters = {rope_type: "yarn", factor: 4, beta_fast: 9, rope_theta: 3000};.rope_scaling = {type: "linear", factor: 2}
mistral;.rope_scaling = {};.
mistral;.rope_scaling = {type: "linear", factor: 2, attention_factor: 0.5};.rope_scaling = {type: "linear", factor: 2}
gpt-neox;.rope_theta = 77;.
phi;.partial_rotary_factor = 1 | .rope_parameters = {rope_type: "default", partial_rotary_factor: 0.5};.partial_rotary_factor = 0.5 | del(.rope_theta)
glm;.partial_rotary_factor = null;.partial_rotary_factor = 1
gemma2;del(.attn_logit_softcapping, .final_logit_softcapping);.attn_logit_softcapping = 50 | .final_logit_softcapping = 30
gemma2;del(.hidden_activation);.hidden_activation = "gelu_pytorch_tanh"
gemma3;.rope_parameters = {full_attention: {rope_type: "default", rope_theta: 9000}, sliding_attention: {rope_theta: 300}};.rope_scaling = {rope_type: "linear", factor: .rope_scaling.factor} | .rope_theta = 9000 | .rope_local_base_freq = 300
gemma4;.per_layer_config = {"1": {head_dim: .global_head_dim}, "3": {head_dim: .global_head_dim}} | del(.global_head_dim);.
gemma4-heads;.per_layer_config = {"1": {head_dim: .global_head_dim, num_key_value_heads: 1}, "2": {head_dim: .global_head_dim, num_key_value_heads: 1}} | .global_head_dim = 6 | del(.num_global_key_value_heads);.
deepseek-v2-moe;del(.topk_method);.topk_method = "greedy"
deepseek-v3-moe;del(.routed_scaling_factor);.routed_scaling_factor = 2.5
mistral;.sliding_window = null;.sliding_window = 0
mixtral;.sliding_window = 9 | .layer_types = ["full_attention", "full_attention"];.sliding_window = 9
ROWS
    [ "$n" -eq 17 ]
}

@test "configurations that are incomplete or contradict the weights are refused" {
    n=0
    while IFS=';' read -r name edit pattern; do
        n=$((n + 1))
        sampled 4 || continue
        edited "$name" "$edit"
        expect_error 1 "$pattern" bmc-convert m -o a.bmc
    done <<'ROWS'
mistral;.rope_scaling = {type: "linear"};m/config.json: "rope_scaling.factor" is missing$
mistral;.rope_parameters = {rope_type: "dynamic", factor: null};m/config.json: "rope_parameters.factor" is missing$
gemma3;.rope_scaling = null | .rope_parameters = {full_attention: {rope_type: "yarn"}};"rope_parameters.full_attention.factor" is missing$
mistral;.rope_scaling = {rope_type: "llama3", factor: 2, high_freq_factor: 3};"rope_scaling.low_freq_factor" is missing$
gpt-oss;del(.rope_scaling);"rope_parameters.rope_type" is missing$
ministral3;del(.rope_parameters);"rope_parameters.rope_type" is missing$
gemma4;del(.rope_parameters.full_attention.rope_type);"rope_parameters.full_attention.rope_type" is missing$
gemma3;.rope_parameters = {rope_type: "linear", factor: 2, rope_theta: 7};"rope_parameters.rope_theta" is 7, but the gemma3 family supports only none$
gemma4;del(.rope_parameters.sliding_attention);"rope_parameters.sliding_attention.rope_theta" is missing$
gemma3;.attn_logit_softcapping = 5;"attn_logit_softcapping" is 5, but the gemma3 family supports only 0$
mistral;.is_causal = false;"is_causal" is false, but the mistral family supports only true$
gpt2;.is_causal = false;"is_causal" is false
gemma4;.per_layer_config = {"1": {num_key_value_heads: 1}, "3": {head_dim: .global_head_dim}} | del(.global_head_dim);has shape .*, its configuration needs
deepseek-v3;.is_causal = false;"is_causal" is false
gemma4;.is_causal = false;"is_causal" is false
gpt-neox;.head_dim = 8;has shape .*, its configuration needs
mistral;.vocab_size += 4;has shape .*, its configuration needs
mistral;.attention_bias = true;tensor "model.layers.0.self_attn.q_proj.bias" is missing from the weights$
bamba;.mamba_conv_bias = null;the bamba family does not use tensor .*conv1d.bias
ROWS
    [ "$n" -eq 19 ]
}

# ---- weights in several files ----

# ./m: the fixture mistral, in shard.safetensors, whose LM head is wrong, and overlay.safetensors, which has the right one; and an
# index that a jq filter edits.
sharded() { # FILTER
    local at bytes main=m/shard.safetensors
    rm -rf m
    mkdir m
    cp "$FIXTURES"/families/mistral/{config.json,tokenizer.json} m
    cp "$FIXTURES/families/mistral/model.safetensors" $main
    at=$(safetensors_at $main lm_head.weight)
    bytes=$((4 * 40 * 260))
    head='{"lm_head.weight":{"dtype":"F32","shape":[260,40],"data_offsets":[0,'$bytes']}}'
    { bytes_le 8 ${#head}; printf %s "$head"; tail -c +$((at + 1)) $main | head -c $bytes; } >m/overlay.safetensors
    head -c $bytes /dev/zero | patch $main "$at"
    tail -c +9 $main | head -c "$(number_at $main 0 8)" |
        jq "{weight_map: (map_values(\"shard.safetensors\") | del(.__metadata__) | .[\"lm_head.weight\"] = \"overlay.safetensors\")} | $1" >m/model.safetensors.index.json
}

@test "an index says which file has a tensor: a copy in another file is not read" {
    bmc-convert "$FIXTURES/families/mistral" -o "$BATS_FILE_TMPDIR/mistral.bmc"
    sharded .
    converts mistral '1 tensor that the language model does not use is left out: copies that the index replaces by those in other files (1)'
    # A tensor that the file named for it lacks is taken from the other, as transformers does.
    sharded '.weight_map["model.norm.weight"] = "overlay.safetensors"'
    converts mistral '1 tensor that the language model does not use is left out: copies that the index replaces by those in other files (1)'
    sharded 'del(.weight_map["lm_head.weight"]) | .weight_map.x = "overlay.safetensors"'
    expect_error 1 'm: tensor "lm_head.weight" is in shard.safetensors and overlay.safetensors, and the index names neither of them for it; remove the wrong one$' bmc-convert m -o a.bmc
    sharded '.weight_map["lm_head.weight"] = "other.safetensors"'
    expect_error 1 'm/other.safetensors: .*No such file' bmc-convert m -o a.bmc
    sharded '.weight_map["lm_head.weight"] = "../m/overlay.safetensors"'
    expect_error 1 'tensor "lm_head.weight" is not in a file of the folder$' bmc-convert m -o a.bmc
    rm m/shard.safetensors
    sharded 'del(.weight_map["lm_head.weight"])'
    head='{"model.norm.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    { bytes_le 8 ${#head}; printf %s "$head"; bytes_le 4 0; } >m/shard.safetensors
    expect_error 1 'm: tensor "model.embed_tokens.weight" is missing from the weights$' bmc-convert m -o a.bmc
    # A single file is preferred to an index, as in transformers.
    cp "$FIXTURES/families/mistral/model.safetensors" m
    ok bmc-convert m -o a.bmc
    cmp a.bmc "$BATS_FILE_TMPDIR/mistral.bmc"
}
