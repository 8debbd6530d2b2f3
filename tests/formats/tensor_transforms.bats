# Tensor transforms of family files: other layouts in the source give the same model; syntax errors are refused.
load ../helper

setup_file() { for name in qwen2-like llama-2-like llama-bias; do model "$name" >/dev/null; done; }

family() { # LINE..
    printf '%s\n' "$@" >a.family
}

# refolded WORD..: a folder with the tensors of qwen2-like in the layout of these words.
refolded() {
    mkdir -p "$1"
    cp "$(folder qwen2-like)"/*.json "$(folder qwen2-like)"/*.txt "$1"
    "$BMC_BUILD/tests/refold" "$(folder qwen2-like)/model.safetensors" "$1/model.safetensors" 8 "${rope_dim:-8}" 2 "$@" ||
        fail "refold $*"
    refute cmp -s "$(folder qwen2-like)/model.safetensors" "$1/model.safetensors"
}

# The lines of qwen2.family, then those for the words: each weight kind with its transform.
family_for() { # WORD..
    local all=" $* " turned='' role part list name end
    if [[ $all == *' transposed '* ]]; then turned=transposed; fi
    sed 's/#.*//' "$ROOT/models.d/families/qwen2.family"
    for end in weight bias; do
        for role in q k v gate up out down; do
            [[ $end == weight || $role == [qkv] ]] || continue
            case $role in
            [qkv]) name=self_attn.${role}_proj part=qkv list=q,k,v ;;
            gate | up) name=mlp.${role}_proj part=gate_up list=gate,up ;;
            out) name=self_attn.o_proj part='' ;;
            down) name=mlp.down_proj part='' ;;
            esac
            printf 'tensor layer.%s.%s ' $role $end
            if [ -n "$part" ] && [[ $all == *' fused '* || $all == *' by_head '* ]]; then
                name=${name%.*}.${part}_proj
                part="part $role of $list"
                if [[ $all == *' by_head '* && $role == [qkv] ]]; then part+=' by_head'; fi
                if [[ $all == *' by_row '* && $list == gate,up ]]; then part+=' by_row'; fi
            else
                part=''
            fi
            if [[ $all == *' interleaved '* && $role == [qk] ]]; then part+=' interleaved'; fi
            if [ $end = weight ]; then part="$turned $part"; fi
            echo "model.layers.%.$name.$end $part"
        done
    done
}

# ---- transforms ----

@test "transposed, fused and interleaved tensors give the same model as plain ones, byte for byte" {
    want=$(model qwen2-like)
    n=0
    while read -ra words; do
        refolded "${words[@]}"
        family_for "${words[@]}" >"some.family"
        bmc-convert --family some.family "${words[0]}" -o some.bmc
        equal_files some.bmc "$want"
        bmc-convert -t 1 --type bf16 --family some.family "${words[0]}" -o some.bmc
        bmc-convert --type bf16 "$(folder qwen2-like)" -o plain.bmc
        equal_files some.bmc plain.bmc
        rm -r "${words[0]}" some.bmc plain.bmc
        n=$((n + 1))
    done <<'END'
transposed
fused
by_head
interleaved
transposed fused interleaved
transposed by_head interleaved
fused by_row
transposed fused by_row
END
    [ "$n" -eq 8 ]
}

@test "interleaved: with partial RoPE, only the rotary dimensions" {
    rope_dim=4
    refolded interleaved
    family_for interleaved >some.family
    family_for >plain.family
    for file in some plain; do echo 'config rope_dim is 4' >>$file.family; done
    bmc-convert --family some.family interleaved -o some.bmc
    bmc-convert --family plain.family "$(folder qwen2-like)" -o plain.bmc
    equal_files some.bmc plain.bmc
}

@test "a tensor of the wrong shape is refused with both shapes" {
    family_for fused >some.family
    sed -i 's/qkv_proj/q_proj/' some.family
    expect_error 1 'q_proj.weight" has shape \[32\]\[32\], its configuration needs \[64\]\[32\]$' \
        bmc-convert --family some.family "$(folder qwen2-like)" -o some.bmc
    family_for transposed >some.family
    expect_error 1 'k_proj.weight" has shape \[16\]\[32\], its configuration needs \[32\]\[16\]$' \
        bmc-convert --family some.family "$(folder qwen2-like)" -o some.bmc
    assert_folder some.family
}

@test "interleaved without RoPE is refused" {
    family_for interleaved >some.family
    printf 'config position is alibi\nconfig rope_dim is 1000\n' >>some.family
    expect_error 1 'q_proj.weight" is marked interleaved, but the model has no rotary positions$' \
        bmc-convert --family some.family "$(folder qwen2-like)" -o some.bmc
    assert_folder some.family
}

# ---- lines ----

@test "invalid lines are refused with their number" {
    n=0
    while IFS='|' read -r line pattern; do
        family 'family a' 'architecture A' 'like llama' '' "$line"
        expect_error 1 "^bmc-convert: a.family: line 5.*${pattern:-invalid syntax: \"${line%% *} }" \
            bmc-convert --family a.family "$(folder llama-bias)" -o a.bmc
        n=$((n + 1))
    done <<'END'
tensors layer.q.weight x|"tensors"; see bmc-family\(5\)$
Config mlp is plain|"Config"
eos 3|"eos"
tensor layer.q.weight
tensor layer.qq.weight x|unknown weight kind "layer.qq.weight"
tensor layer.q.weight x turned
tensor layer.q.weight x transposed transposed
tensor layer.q.bias x transposed
tensor layer.q.weight x part
tensor layer.q.weight x part q
tensor layer.q.weight x part q of
tensor layer.q.weight x part q of k,v
tensor layer.q.weight x part k of q,k,v
tensor layer.q.weight x part q of q,q
tensor layer.q.weight x part q of q
tensor layer.q.weight x part q of q,,k
tensor layer.q.weight x part q of q,down
tensor layer.q.weight x part q in q,k,v
tensor layer.q.weight x part q of q,k,v,q,k
tensor layer.q.weight x part q of q,k,v transposed
tensor layer.q.weight x by_head
tensor layer.gate.weight x part gate of gate,up by_head
tensor layer.gate.weight x interleaved
tensor layer.v.weight x interleaved
tensor layer.q.weight x interleaved by_head
tensor layer.q.weight x part q of q,k,v by_row
tensor layer.gate.weight x by_row
config mlp
config no_such_key is 1
config mlp was plain
require mlp
END
    [ "$n" -eq 31 ]
    assert_folder a.family
}

# ---- inheritance ----

@test "like: inherits the lines of another family, overridden by its own" {
    # Same as llama except the name.
    family 'family llama' 'architecture A' 'like llama'
    bmc-convert --family a.family "$(folder llama-bias)" -o a.bmc
    equal_files a.bmc "$(model llama-bias)"
    family 'like llama' 'config context is 99' 'architecture A' 'family a'
    bmc-convert --family a.family "$(folder llama-bias)" -o a.bmc
    assert_equal "$(bmc-convert --info --format json a.bmc | jq -c '[.family, .context]')" '["a",99]'
    # A line overrides an inherited one that this config.json does not satisfy; one for a weight kind overrides all its names.
    mkdir folder
    cp "$(folder llama-bias)"/* folder
    jq 'del(.hidden_size) | .width = 32 | .pretraining_tp = 2' "$(folder llama-bias)/config.json" >folder/config.json
    expect_error 1 '"hidden_size" is missing' bmc-convert folder -o b.bmc
    family 'family llama' 'architecture A' 'like llama' "config hidden is $(jq .hidden_size "$(folder llama-bias)/config.json")"
    bmc-convert --family a.family folder -o a.bmc
    equal_files a.bmc "$(model llama-bias)"
    echo 'require pretraining_tp is 1' >>a.family
    expect_error 1 '"pretraining_tp" is 2, but the llama family supports only' bmc-convert --family a.family folder -o b.bmc
    family 'family llama' 'architecture A' 'like llama' 'tensor final_norm.weight model.other.weight'
    expect_error 1 'tensor "model.other.weight" is missing' bmc-convert --family a.family "$(folder llama-bias)" -o b.bmc
}

@test "like: four levels, and only families of the folder" {
    mkdir -p models/families
    cp "$ROOT"/models.d/families/{llama,rope,decoder}.family models/families
    printf '%s\n' 'family b' 'like llama' 'config norm_eps is 0.25' 'config rope_theta is 7' >models/families/b.family
    printf '%s\n' 'family c' 'like b' >models/families/c.family
    # The nearest line is in effect: that of a, of b, or of rope.
    family 'family a' 'architecture A' 'like b' 'config rope_theta is 8'
    bmc-convert --models-dir models --family a.family "$(folder llama-bias)" -o a.bmc
    assert_equal "$(bmc-convert --info a.bmc | grep -cE '^ *(norm_eps +0.25|rope_theta +8|rope_scaling .*)$')" 3
    rm a.bmc
    family 'family a' 'architecture A' 'like c'
    expect_error 1 'rope.family: is like decoder, the family file inherits from more than 4 others$' bmc-convert --models-dir models --family a.family "$(folder llama-bias)" -o a.bmc
    printf '%s\n' 'family c' 'like c' >models/families/c.family
    expect_error 1 'c.family: is like c, the family file inherits from more than 4 others$' bmc-convert --models-dir models --family a.family "$(folder llama-bias)" -o a.bmc
    for name in ../families/llama /etc/passwd ''; do
        family 'family a' 'architecture A' "like $name"
        expect_error 1 'a.family: "like" needs the name of a family' bmc-convert --family a.family "$(folder llama-bias)" -o a.bmc
    done
    family 'family a' 'architecture A' 'like nobody'
    expect_error 1 'a.family: is like nobody: .*/families/nobody.family' bmc-convert --family a.family "$(folder llama-bias)" -o a.bmc
    mkdir -p own/families
    printf 'family llama\narchitecture X\nnonsense 1\n' >own/families/llama.family
    family 'family a' 'architecture A' 'like llama'
    expect_error 1 'is like llama: own/families/llama.family: line 3: .*"nonsense"' bmc-convert --models-dir own --family a.family "$(folder llama-bias)" -o a.bmc
    # Families of shapes can inherit, too.
    tiny_shape tiny.shape family qwen2
    bmc-convert --synth ./tiny.shape -o a.bmc
    assert_equal "$(bmc-convert --info --format json a.bmc | jq -r .bias_qkv)" true
}

# A folder with 48 MiB of BF16 in the three matrices of its layer, all zeros.
big_folder() { # FOLDER
    mkdir "$1"
    cp "$FIXTURES/families/tokenizer.json" "$1/"
    jq -n '{architectures: ["LlamaForCausalLM"], hidden_size: 1024, intermediate_size: 8192, num_hidden_layers: 1, num_attention_heads: 8,
        num_key_value_heads: 1, vocab_size: 260, max_position_embeddings: 64, rms_norm_eps: 1e-5, eos_token_id: 2}' >"$1/config.json"
    header=$(jq -nc 'reduce (["model.embed_tokens", 260, 1024], ["lm_head", 260, 1024], ["model.norm", 1024],
        ("model.layers.0." + ("input_layernorm", "post_attention_layernorm") | [., 1024]),
        (["self_attn.q_proj", 1024, 1024], ["self_attn.k_proj", 128, 1024], ["self_attn.v_proj", 128, 1024], ["self_attn.o_proj", 1024, 1024],
         ["mlp.gate_proj", 8192, 1024], ["mlp.up_proj", 8192, 1024], ["mlp.down_proj", 1024, 8192] | .[0] |= "model.layers.0." + .)) as [$name, $rows, $columns]
        ({at: 0, all: {}}; (.at + 2 * $rows * ($columns // 1)) as $to
            | .all[$name + ".weight"] = {dtype: "BF16", shape: [$rows, $columns | numbers], data_offsets: [.at, $to]} | .at = $to) | .all')
    {
        bytes_le 8 ${#header}
        printf '%s' "$header"
    } >"$1/model.safetensors"
    truncate -s $((8 + ${#header} + $(jq '[.[].data_offsets[1]] | max' <<<"$header"))) "$1/model.safetensors"
}

@test "pages of a folder's weights are released after reading" {
    big_folder big
    [ "$(stat -c %s big/model.safetensors)" -gt $((48 << 20)) ]
    peak=$(convert_peak big)
    [ -n "$peak" ]
    sanitized || [ "$peak" -lt $((40 << 10)) ] || fail "$peak KiB"
}
