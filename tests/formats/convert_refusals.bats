# Models with unused tensors or unsupported features are refused by name.
load ../helper

setup_file() { for name in llama-bias qwen2-like; do model "$name" >/dev/null; done; }

# ./m: a copy of a model's folder with config.json edited by a jq filter.
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

# ---- unused tensors ----

@test "unused tensors are refused, except masks, tables and the copy of a tied head" {
    llama=$(folder llama-bias)
    copied "$llama" '.attention_bias = false'
    refused 'the llama family does not use tensor model.layers.0.self_attn.k_proj.bias and 7 others; correct'
    copied "$llama" '.num_hidden_layers -= 1'
    refused 'the llama family does not use tensor model.layers.1.input_layernorm.weight and '
    copied "$llama" .
    with_tensor model.layers.0.self_attn.q_norm.weight
    refused 'the llama family does not use tensor model.layers.0.self_attn.q_norm.weight; correct'
    copied "$llama" .
    for name in model.layers.0.self_attn.rotary_emb.inv_freq h.0.attn.bias h.0.attn.masked_bias rope_freqs.weight; do
        with_tensor $name
    done
    ok bmc-convert -q m -o a.bmc
    equal_files a.bmc "$(model llama-bias)"
    rm a.bmc
    copied "$FIXTURES/families/gpt2" .
    with_tensor lm_head.weight
    refused 'tensor "lm_head.weight" has shape .1., its configuration needs'
    copied "$FIXTURES/families/gpt2" '.tie_word_embeddings = true'
    with_tensor lm_head.bias
    refused 'the gpt2 family does not use tensor lm_head.bias; correct'
}

# ---- GGUF ----

text() { # ASCII only
    bytes_le 8 ${#1}
    printf '%s' "$1"
}

# One more key-value pair, as bytes.
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

# ./m.gguf: that file with one more key-value pair, and another one that restores the alignment of tensors.
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

# ./m.gguf: that file with a key or other string replaced.
respelt() { # FILE OLD NEW: of the same length
    rm -rf m*
    sed "s/$2/$3/" "$1" >m.gguf
}

@test "GGUF: keys of unsupported features are refused by name, unless their values leave them off" {
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
llama.attention.causal|bool|0|llama.attention.causal is 0: bidirectional attention .* are not supported for architecture llama$
llama.attention.causal|bool|1|
llama.expert_count|u32|8|"num_experts_per_tok" is missing$
llama.expert_count|u32|0|
llama.logit_scale|f32|1048576000|llama.logit_scale is 0.25: 
llama.logit_scale|f32|1065353216|
llama.embedding_scale|u32|12|llama.embedding_scale is 12: 
llama.residual_scale|u32|2|llama.residual_scale is 2: 
llama.attention.sliding_window|u32|64|llama.attention.sliding_window is 64: sliding windows
llama.logit_scale|text|x|llama.logit_scale is a string, expected a number
general.type|text|model|
general.type|text|adapter|is a LoRA adapter: convert its base model, and give the adapter to bmc-gen --lora
general.type|text|imatrix|is an importance matrix
general.type|text|mmproj|is a multimodal projector
general.type|text|other|not a model: general.type is "other"
END
    [ "$n" -eq 15 ]
    sed 's/attention.value_length/attention.value_lengtx/' "$llama" >k.gguf
    with_value k.gguf llama.attention.value_length u32 7
    refused 'llama.attention.key_length is 8 and value_length 7: different head sizes are not supported$'
}

@test "GGUF: a missing key is named" {
    llama=$FIXTURES/gguf/llama-bias.gguf
    for key in context_length attention.layer_norm_rms_epsilon block_count; do
        respelt "$llama" "llama.$key" "llama.${key/_/x}"
        refused "\"llama.$key\" is missing$"
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

@test "unsupported architectures, vocabularies and ggml types: the message says what they are" {
    llama=$FIXTURES/gguf/llama-bias.gguf
    respelt "$llama" 'architecture\(.\{12\}\)llama' 'architecture\1mamba'
    refused 'architecture "mamba" is a recurrent model of a kind that is not supported'
    while IFS='|' read -r architecture pattern; do
        copied "$(folder llama-bias)" ".architectures = [\"$architecture\"]"
        rm -f m.gguf
        refused "architecture \"$architecture\" is $pattern"
    done <<'END'
BertForMaskedLM|an encoder of a kind, or for a task, that is not supported
AlbertModel|an encoder
T5ForConditionalGeneration|an encoder-decoder model
RwkvForCausalLM|a recurrent model
DbrxForCausalLM|a mixture of experts
END
    rm -rf m
    cp "$llama" m.gguf
    bytes_le 8 0 | patch m.gguf 8
    refused 'contains only a vocabulary; use it with --synth SHAPE --tokenizer$'
}

# ---- snapshots ----

@test "with length-dependent RoPE scaling --save-kv is refused early, and a prompt cache is not used" {
    longrope=$FIXTURES/families/llama-longrope
    bmc-convert "$longrope" -o a.bmc
    prompt=$(jq -r '.cases[0].prompt' "$longrope/reference.json")
    expect_error 1 's.kv: beyond 80 tokens .* rotary frequencies depend on the sequence length: save and load with -c 80' \
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
        [[ $stderr =~ ^'bmc-gen: s.kv: beyond 80 tokens this model'"'"'s keys depend on the length of the sequence: the prompt cache is not used, nor written' ]]
        [ $i -eq 1 ] || break
        equal_files s.kv before.kv
        rm s.kv
    done
    [ ! -e s.kv ]
}

# ---- tokenizers ----

@test "tokenizer.model: EOS is added only for tokenizer classes that do so" {
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

@test "layer_types: lists that do not describe the layers are refused" {
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
$FIXTURES/families/gemma2;.layer_types = ["sliding_attention", "sliding_attention", "full_attention", "full_attention"];
$FIXTURES/families/gpt2;.layer_types = ["full_attention", "full_attention", "sliding_attention"];"layer_types" is "sliding_attention" for layer 2, the gpt2 family supports only "full_attention" there$
$(folder qwen2-like);.layer_types[2] = "sliding_attention";layer_types has sliding attention in layer 2, but there is no window$
$(folder qwen2-like);.layer_types[1] = "dilated_attention";"layer_types" is dilated_attention for layer 1; bmc-family.5. lists known kinds$
$(folder qwen2-like);.layer_types[1] = 7;"layer_types" is [?] for layer 1
$(folder qwen2-like);.layer_types[1] = "full_attention*2";"layer_types" is [?] for layer 1
$(folder qwen2-like);.layer_types[2] = "...";"layer_types" is [?] for layer 2
$(folder qwen2-like);.layer_types += ["full_attention"];"layer_types" has more than 3 entries for 3 layers$
$(folder qwen2-like);.layer_types |= .[:2];"layer_types" has 2 entries for 3 layers$
$(folder qwen2-like);.layer_types = [range(2000) | "full_attention"];"layer_types" has more than 3 entries for 3 layers$
END
    [ "$n" -eq 11 ]
}

@test "unsupported features in config.json are refused by name" {
    n=0
    while IFS=';' read -r name filter pattern; do
        copied "$name" "$filter"
        refused "$pattern"
        n=$((n + 1))
    done <<END
$(folder llama-bias);.num_local_experts = 8;"num_local_experts" is 8, but the llama family supports only
$(folder llama-bias);.embedding_multiplier = 12.5;"embedding_multiplier" is 12.5, 
$(folder llama-bias);.use_bidirectional_attention = true;"use_bidirectional_attention" is true, 
$(folder qwen2-like);.attn_logit_softcapping = 50;"attn_logit_softcapping" is 50, but the qwen2 family supports only
$(folder qwen2-like);.num_local_experts = 4;"num_local_experts" is 4, 
$FIXTURES/families/mistral;.final_logit_softcapping = 30;"final_logit_softcapping" is 30, 
END
    [ "$n" -eq 6 ]
    copied "$(folder qwen2-like)" '.attn_logit_softcapping = null | .num_local_experts = 0 | .logits_scaling = 1.0'
    ok bmc-convert m -o a.bmc
    equal_files a.bmc "$(model qwen2-like)"
}
