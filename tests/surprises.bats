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

# ---- GGUF ----

text() { # ASCII only
    bytes_le 8 ${#1}
    printf '%s' "$1"
}

# One more value, as bytes.
value() { # KEY bool|f32|u32|text VALUE
    text "$1"
    case $2 in
    bool) bytes_le 4 7 ;;
    f32) bytes_le 4 6 ;; # its bits
    u32) bytes_le 4 4 ;;
    text) bytes_le 4 8 ;;
    esac
    case $2 in
    bool) bytes_le 1 "$3" ;;
    f32 | u32) bytes_le 4 "$3" ;;
    text) text "$3" ;;
    esac
}

# ./m.gguf: that file with one more value, and one that fills it up so that tensors lie where they may.
with_value() { # FILE KEY TYPE VALUE
    local filler
    rm -rf m*
    value "${@:2}" >extra
    filler=$(printf 'x%.0s' $(seq $((32 + 31 - ($(stat -c %s extra) + 20 + 31) % 32))))
    value "$filler" text '' >>extra
    {
        head -c 16 "$1"
        bytes_le 8 $(($(number_at "$1" 16 8) + 2))
        cat extra
        tail -c +25 "$1"
    } >m.gguf
}

# ./m.gguf: that file with a key, or another text, spelt otherwise.
respelt() { # FILE OLD NEW: of the same length
    rm -rf m*
    sed "s/$2/$3/" "$1" >m.gguf
}

@test "GGUF: values that change results and are not read are refused by name; such as change nothing are not" {
    llama=$FIXTURES/gguf/llama-bias.gguf
    n=0
    while IFS='|' read -r key type number pattern; do
        with_value "$llama" "$key" "$type" "$number"
        if [ -n "$pattern" ]; then
            refused "$pattern"
        else
            ok bmc-convert m.gguf -o a.bmc
            rm a.bmc
        fi
        n=$((n + 1))
    done <<'END'
llama.attention.causal|bool|0|llama.attention.causal is 0: positions that see .* are not implemented for architecture llama$
llama.attention.causal|bool|1|
llama.expert_count|u32|8|llama.expert_count is 8: a mixture of experts
llama.expert_count|u32|0|
llama.logit_scale|f32|1048576000|llama.logit_scale is 0.25: 
llama.logit_scale|f32|1065353216|
llama.embedding_scale|u32|12|llama.embedding_scale is 12: 
llama.residual_scale|u32|2|llama.residual_scale is 2: 
llama.attention.sliding_window|u32|64|llama.attention.sliding_window is 64: layers that see a window
llama.logit_scale|text|x|llama.logit_scale is a text, a number is expected
general.type|text|model|
general.type|text|adapter|holds a LoRA adapter, which changes another model: merge it
general.type|text|imatrix|holds an importance matrix
general.type|text|mmproj|holds the part of a model that reads pictures
general.type|text|other|holds no model, but says that it is of type "other"
END
    [ "$n" -eq 15 ]
    sed 's/attention.value_length/attention.value_lengtx/' "$llama" >k.gguf
    with_value k.gguf llama.attention.value_length u32 7
    refused 'llama.attention.key_length is 8 and value_length 7: heads of two sizes are not implemented$'
}

@test "GGUF: a missing value is named as the file calls it" {
    llama=$FIXTURES/gguf/llama-bias.gguf
    for key in context_length attention.layer_norm_rms_epsilon block_count; do
        respelt "$llama" "llama.$key" "llama.${key/_/x}"
        refused "has no \"llama.$key\", which its architecture needs$"
    done
}

@test "GGUF: the old key of linear scaling is read" {
    llama=$FIXTURES/gguf/llama-bias.gguf
    sed 's/rope.scaling.type/rope.scaling.typo/' "$llama" >k.gguf
    with_value k.gguf llama.rope.scale_linear u32 2
    ok bmc-convert m.gguf -o a.bmc
    bmc-convert "$llama" -o b.bmc
    equal_files a.bmc b.bmc
}

@test "architectures that are something else, vocabularies, types of ggml: the sentence says what they are" {
    llama=$FIXTURES/gguf/llama-bias.gguf
    respelt "$llama" 'architecture\(.\{12\}\)llama' 'architecture\1mamba'
    refused 'is of architecture "mamba", a recurrent model without attention'
    while IFS='|' read -r architecture pattern; do
        copied "$(folder llama-bias)" ".architectures = [\"$architecture\"]"
        rm -f m.gguf
        refused "architecture \"$architecture\" is $pattern"
    done <<'END'
BertModel|an encoder, which reads text and generates none
T5ForConditionalGeneration|an encoder with a decoder
RwkvForCausalLM|a recurrent model
MixtralForCausalLM|a mixture of experts
END
    rm -rf m
    cp "$llama" m.gguf
    bytes_le 8 0 | patch m.gguf 8
    refused 'holds a vocabulary only: use it with --synth SHAPE --tokenizer$'
}

# ---- snapshots ----

@test "where keys depend on the length of the text, --save-kv is refused before anything is computed; a prompt cache is left alone" {
    longrope=$FIXTURES/families/llama-longrope
    bmc-convert "$longrope" -o a.bmc
    prompt=$(jq -r '.cases[0].prompt' "$longrope/reference.json")
    expect_error 1 's.kv: keys of this model differ with the length of the text beyond 80 tokens: save and load with -c 80' \
        bmc-gen -q -m a.bmc -p "$prompt" -n 4 -c 160 --save-kv s.kv
    [ ! -e s.kv ]
    ok bmc-gen -q -m a.bmc -p "$prompt" -n 4 -c 80 --ignore-eos --prompt-cache s.kv --ids
    want=$(bmc-gen -q -m a.bmc -p "$prompt" -n 4 -c 160 --ignore-eos --ids)
    cp s.kv before.kv
    for i in 1 2; do
        run_plain bmc-gen -q -m a.bmc -p "$prompt" -n 4 -c 160 --ignore-eos --prompt-cache s.kv --ids
        [ "$status" -eq 0 ] || fail "$stderr"
        assert_equal "$output" "$want"
        assert_equal "${#stderr_lines[@]}" 1
        [[ $stderr =~ ^'bmc-gen: s.kv: keys of this model differ with the length of the text beyond 80 tokens: the prompt is computed anew, and nothing is stored' ]]
        [ $i -eq 1 ] || break
        equal_files s.kv before.kv
        rm s.kv
    done
    [ ! -e s.kv ]
}

# ---- tokenizers ----

@test "tokenizer.model: the end token follows texts only of tokenizers whose class says so" {
    tiny_shape some.shape layers 1 vocab 500
    mkdir m
    echo '{"architectures": ["LlamaForCausalLM"]}' >m/config.json
    cp "$FIXTURES/sentencepiece/unigram.model" m/tokenizer.model
    end=$(jq .tokenizer.eos_id "$FIXTURES/sentencepiece/unigram.json")
    while read -r config ends; do
        rm -f m/tokenizer_config.json
        [ "$config" = none ] || echo "$config" >m/tokenizer_config.json
        ok bmc-convert --synth ./some.shape --tokenizer m -o a.bmc
        ok bmc-gen -q -m a.bmc --tokenize --format jsonl <<<'shoes'
        assert_equal "$config $(jq --argjson last "$end" '.ids[-1] == $last' <<<"$output")" "$config $ends"
    done <<'END'
none false
{"tokenizer_class":"LlamaTokenizer"} false
{"tokenizer_class":"LlamaTokenizer","add_eos_token":true} true
{"tokenizer_class":"T5Tokenizer"} true
END
}

# ---- config.json ----

@test "layer_types that are not the family's are refused" {
    n=0
    while IFS=';' read -r name filter pattern; do
        copied "$name" "$filter"
        if [ -n "$pattern" ]; then
            refused "$pattern"
        else
            ok bmc-convert m -o a.bmc
            rm a.bmc
        fi
        n=$((n + 1))
    done <<END
$FIXTURES/families/gemma2;.layer_types = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"];
$FIXTURES/families/gemma2;.layer_types = ["sliding_attention", "sliding_attention", "full_attention", "full_attention"];"layer_types" has "sliding_attention" for layer 1, the gemma2 family here has "full_attention" there$
$(folder qwen2-like);.layer_types[2] = "sliding_attention";"layer_types" has "sliding_attention" for layer 2, the qwen2 family
$(folder qwen2-like);.layer_types[1] = 7;"layer_types" has no text for layer 1
$(folder qwen2-like);.layer_types += ["full_attention"];"layer_types" has 4 entries for 3 layers$
END
    [ "$n" -eq 5 ]
}

@test "values of config.json that change results and are not read are refused by name" {
    n=0
    while IFS=';' read -r name filter pattern; do
        copied "$name" "$filter"
        refused "$pattern"
        n=$((n + 1))
    done <<END
$(folder llama-bias);.num_local_experts = 8;"num_local_experts" is 8, the llama family here handles only
$(folder llama-bias);.embedding_multiplier = 12.5;"embedding_multiplier" is 12.5, 
$(folder llama-bias);.use_bidirectional_attention = true;"use_bidirectional_attention" is true, 
$(folder qwen2-like);.attn_logit_softcapping = 50;"attn_logit_softcapping" is 50, the qwen2 family here handles only
$(folder qwen2-like);.num_local_experts = 4;"num_local_experts" is 4, 
$FIXTURES/families/mistral;.final_logit_softcapping = 30;"final_logit_softcapping" is 30, 
END
    [ "$n" -eq 6 ]
    copied "$(folder qwen2-like)" '.attn_logit_softcapping = null | .num_local_experts = 0 | .logits_scaling = 1.0'
    ok bmc-convert m -o a.bmc
    equal_files a.bmc "$(model qwen2-like)"
}
