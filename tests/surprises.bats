# Models that are not quite what they say: what would be left out, or read otherwise than it is meant, is refused by name.
load helper

setup_file() { for name in llama-bias qwen2-like; do model "$name" >/dev/null; done; }

# ./m: a copy of a model's folder, its config.json through a filter of jq.
copied() { # MODEL FILTER
    rm -rf m
    cp -rL "$1" m
    jq "$2" "$1/config.json" >m/config.json
}

# Puts one more number into the weights of ./m.
with_tensor() { # NAME
    local file=m/model.safetensors head data
    head=$(number_at $file 0 8)
    data=$(($(stat -c %s $file) - 8 - head))
    tail -c +9 $file | head -c "$head" |
        jq -c --arg name "$1" --argjson at $data '.[$name] = {dtype: "F32", shape: [1], data_offsets: [$at, $at + 4]}' >head
    truncate -s -1 head # the newline
    {
        bytes_le 8 "$(stat -c %s head)"
        cat head
        tail -c $data $file
        bytes_le 4 0
    } >new
    mv new $file
}

refused() { # REGEX
    expect_error 1 "^bmc-convert: m[^ ]*: $1" bmc-convert m* -o a.bmc
    [ ! -e a.bmc ]
}

# ---- tensors that nothing is made from ----

@test "tensors that the family does not use are refused, but for masks, tables and the second copy of a tied head" {
    llama=$(folder llama-bias)
    copied "$llama" '.attention_bias = false'
    refused 'has tensors that the llama family does not use: model.layers.0.self_attn.k_proj.bias and 7 others; they would'
    copied "$llama" '.num_hidden_layers -= 1'
    refused 'has tensors that the llama family does not use: model.layers.1.input_layernorm.weight and '
    copied "$llama" .
    with_tensor model.layers.0.self_attn.q_norm.weight
    refused 'has a tensor that the llama family does not use: model.layers.0.self_attn.q_norm.weight; it would'
    copied "$llama" .
    for name in model.layers.0.self_attn.rotary_emb.inv_freq h.0.attn.bias h.0.attn.masked_bias rope_freqs.weight; do
        with_tensor $name
    done
    ok bmc-convert m -o a.bmc
    equal_files a.bmc "$(model llama-bias)"
    rm a.bmc
    copied "$FIXTURES/families/gpt2" .
    with_tensor lm_head.weight
    ok bmc-convert m -o a.bmc
    copied "$FIXTURES/families/gpt2" '.tie_word_embeddings = true'
    with_tensor lm_head.bias
    rm a.bmc
    refused 'has a tensor that the gpt2 family does not use: lm_head.bias; it would'
}
