# Quantising models: least squares, importance matrices, types of single tensors; quantised draft models.
load ../helper

text='Once upon a time there was a king who had a daughter, and she was the fairest of them all.'

setup_file() {
    export BMC_SEED=${BMC_SEED:-$((($(date +%s%N) / 1000) % 32768))}
    for name in grimm andersen andersen-draft qwen2-like llama-3-like; do model "$name" >/dev/null; done
    cd "$BATS_FILE_TMPDIR"
    bmc-gen -q -m "$(model grimm)" --score --summary -p "$text" --save-imatrix grimm.imp >/dev/null
    bmc-convert "$(folder grimm)" --type q4_1 -o grimm-q4.bmc
}

# Name and type of each tensor of a model, a line each.
types() { bmc-convert --info "$1" --format json | jq -r '.rows[] | "\(.name) \(.type)"'; }

type_of() { types "$1" | sed -n "s/^${2//./\\.} //p"; }

convert() { ok bmc-convert -q "$@"; }

@test "quantisation: close to the optimum, never worse than rounding to nearest, better than llama.cpp's Q4_0" {
    run "$BMC_BUILD/tests/test_quantize" "$FIXTURES/quant_groups.txt" "$FIXTURES/quant_levels.txt"
    assert_success
    refute_output --partial 'not ok'
}

# ---- types ----

@test "--pure with quantised types: matrices have the type, vectors are f32, whatever the threads" {
    for type in q8_0 q8_channel q4_1 q4_0 q5_0 q5_1 iq4_nl q6_k q5_k q4_k q3_k q2_k iq4_xs; do
        convert "$(folder qwen2-like)" --type $type --pure -o a.bmc -t 1
        convert "$(folder qwen2-like)" --type $type --pure -o b.bmc -t 3
        equal_files a.bmc b.bmc
        assert_equal "$(types a.bmc | grep -vE 'bias|norm' | cut -d ' ' -f 2 | sort -u)" $type
        assert_equal "$(types a.bmc | grep -E 'bias|norm' | cut -d ' ' -f 2 | sort -u)" f32
        convert --verify a.bmc
    done
}

@test "--type q4_k_m and other mixtures: rows of no multiple of 256 have types with blocks of 32" {
    # Of 8 layers, the first, the last and those of every third one between; rows of 256, but 688 of down.weight.
    convert "$(folder grimm)" --type Q4_K_M -o a.bmc
    for layer in 0 1 2 3 4 5 6 7; do
        case $layer in [0367]) types='q6_k q8_0' ;; *) types='q4_k q5_0' ;; esac
        assert_equal "$(type_of a.bmc layers.$layer.v.weight) $(type_of a.bmc layers.$layer.down.weight)" "$types"
        assert_equal "$(type_of a.bmc layers.$layer.up.weight) $(type_of a.bmc layers.$layer.out.weight)" 'q4_k q4_k'
    done
    assert_equal "$(type_of a.bmc embed.weight)" q6_k # which is the head
    convert "$(folder llama-3-like)" --type q3_k_m -o a.bmc
    assert_equal "$(for kind in q k v out gate up down; do type_of a.bmc layers.0.$kind.weight; done | paste -sd ' ')" 'q4_0 q4_0 q5_1 q5_0 q4_0 q4_0 q5_0'
    assert_equal "$(type_of a.bmc embed.weight) $(type_of a.bmc head.weight)" 'q4_0 q8_0'
    convert "$(folder llama-3-like)" --type q5_k_s --tensor-type '*.up.weight=q2_k' -o a.bmc
    assert_equal "$(type_of a.bmc layers.0.up.weight) $(type_of a.bmc layers.0.down.weight) $(type_of a.bmc embed.weight)" 'q2_k q5_1 q5_1'
    # Positions stay as they are.
    convert "$(folder opt-350m-like)" --type q4_1 -o a.bmc
    assert_equal "$(type_of a.bmc position.weight) $(type_of a.bmc embed.weight)" 'f16 q8_0'
}

@test "every mixture gives each matrix the type that llama.cpp gives it, in tied, untied and Mixtral's shapes" {
    shape() { printf '%s\n' "$@" 'vocab 256' 'context 64' 'norm_eps 1e-05' 'rope_theta 10000' 'eos 1' 'head_dim 64'; }
    shape 'family llama' 'layers 16' 'hidden 256' 'ffn 320' 'heads 4' 'kv_heads 2' 'tied_head true' >tied.shape
    shape 'family llama' 'layers 24' 'hidden 512' 'ffn 256' 'heads 8' 'kv_heads 2' 'tied_head false' >untied.shape
    shape 'family mixtral' 'layers 9' 'hidden 256' 'ffn 256' 'heads 4' 'kv_heads 4' 'experts 8' 'experts_used 2' >experts.shape
    while read -r shape mixture types; do
        sampled 5 || continue
        bmc-convert --dry-run --synth ./$shape.shape --type "$mixture" --format json | jq -r '
            def gguf: {embed: "token_embd", head: "output", q: "attn_q", k: "attn_k", v: "attn_v", out: "attn_output", gate: "ffn_gate", up: "ffn_up",
                down: "ffn_down", experts_gate: "ffn_gate_exps", experts_up: "ffn_up_exps", experts_down: "ffn_down_exps"}[.];
            def runs: reduce .[] as $type ([]; if length > 0 and .[-1].type == $type then .[-1].n += 1 else . + [{$type, n: 1}] end)
                | map("\(.type)*\(.n)") | join(",");
            [.rows[] | select(.type | test("^(f32|bf16)$") | not) | {kind: (.name | split(".")[-2] | gguf), type}]
                | group_by(.kind) | map("\(.[0].kind)=\(map(.type) | runs)") | join(" ")' >got
        assert_equal "$shape $mixture $(<got)" "$shape $mixture $types"
        compared=$((${compared:-0} + 1))
    done <"$FIXTURES/quant_mixtures.txt"
    [ "$compared" -ge 10 ]
}

@test "types of eight weights per point need an importance matrix, and say so" {
    for type in iq2_m iq2_s iq2_xs iq2_xxs iq1_m iq1_s; do
        expect_error 1 'tensor "layers\.0\.[a-z]*\.weight": iq[12]_[a-z]* needs an importance matrix: give --calibrate, or --imatrix FILE' \
            bmc-convert "$(folder grimm)" --type $type -o a.bmc
    done
    types=(iq3_s iq3_xxs iq2_s iq2_xs iq2_xxs iq1_m iq1_s)
    for i in "${!types[@]}"; do chosen+=(--tensor-type "layers.$i.k.weight=${types[i]}"); done
    run_plain bmc-convert -q "$(folder grimm)" "${chosen[@]}" --imatrix "$BATS_FILE_TMPDIR/grimm.imp" -o b.bmc
    assert_equal "$status/$stderr" 0/
    assert_equal "$(types b.bmc | grep -E 'layers\.[0-6]\.k\.weight' | cut -d ' ' -f 2 | paste -sd ' ')" "${types[*]}"
    ok bmc-convert --verify b.bmc
    assert_folder b.bmc
}

@test "--dry-run: the types and sizes of what would be written, and nothing is" {
    bmc-convert --dry-run "$(folder llama-3-like)" --type q3_k_m --format json >plan
    assert_folder plan
    run_plain bmc-convert "$(folder llama-3-like)" --type q3_k_m -o a.bmc
    assert_regex "$stderr" '^bmc-convert: [^ ]*: [0-9]+ matrices get a wider type, as rows are no multiple of 256 weights \(of 64 in layers\.[0-9]\.up\.weight, where q4_0 replaces q3_k\)$'
    columns='[.rows[] | [.name, .type, .bits, .shape, .bytes]] | sort'
    assert_equal "$(jq -c "$columns" plan)" "$(bmc-convert --info a.bmc --format json | jq -c "$columns")"
    assert_equal "$(jq .tensor_bytes plan)" "$(jq '[.rows[].bytes] | add' plan)"
    expect_error 2 '--dry-run goes with a model that is converted' bmc-convert --info a.bmc --dry-run
    expect_error 2 '--pure goes with a model that is written' bmc-convert --info a.bmc --pure
}

@test "a model file is quantised as its source is, draft head, experts and tied head included; without a type it is copied" {
    bmc-convert -q "$FIXTURES/families/qwen3-moe" -o experts.bmc
    for source in "$(model qwen2-like) $(folder qwen2-like)" "$ROOT/models.d/grimm-mtp.bmc $ROOT/models.d/grimm-mtp" "experts.bmc $FIXTURES/families/qwen3-moe"; do
        read -r file folder <<<"$source"
        convert "$file" -o a.bmc
        equal_files a.bmc "$file"
        for how in '--type q4_1' '--type f16' '--tensor-type *.up.weight=q2_k --tensor-type layers.0.q.weight=f32'; do
            sampled 2 || continue
            # shellcheck disable=SC2086
            convert "$folder" $how -o want.bmc
            # shellcheck disable=SC2086
            convert "$file" $how -o a.bmc
            equal_files a.bmc want.bmc
        done
    done
    # What is quantised already is kept where it may be, and quantised again where it must.
    convert "$(model qwen2-like)" --type q4_1 -o b.bmc
    run_plain bmc-convert b.bmc --type q8_0 -o c.bmc
    assert_equal "$stderr" "bmc-convert: b.bmc: $(bmc-convert --info b.bmc | grep -c ' q4_1 ') matrices stay as in the source (q4_1 instead of q8_0): types of as many bits or more gain nothing"
    equal_files c.bmc b.bmc
    run_plain bmc-convert b.bmc --type q4_0 -o c.bmc
    [[ $stderr == 'bmc-convert: b.bmc: '*' matrices of 5 bits or fewer (as q4_1) are quantised again'* ]] || fail "$stderr"
    expect_error 1 'is a model file, which keeps its tensors.* leave out --family, --chat-template and --no-bos' bmc-convert b.bmc --no-bos -o d.bmc
    head -c 9000 b.bmc >cut.bmc
    expect_error 1 'cut\.bmc: ' bmc-convert cut.bmc -o d.bmc
    assert_folder a.bmc b.bmc c.bmc cut.bmc experts.bmc want.bmc
}

@test "--leave-output-tensor: the head has the source's type, and so has the embedding that is the head" {
    convert "$(folder llama-3-like)" --type q4_1 --leave-output-tensor -o a.bmc
    assert_equal "$(type_of a.bmc embed.weight) $(type_of a.bmc head.weight) $(type_of a.bmc layers.0.q.weight)" 'q4_1 bf16 q4_1'
    convert "$(folder qwen2-like)" --type q8_0 --leave-output-tensor -o a.bmc
    assert_equal "$(type_of a.bmc embed.weight) $(type_of a.bmc layers.0.q.weight)" 'f32 q8_0'
}

@test "--tensor-type: patterns over names, the last that matches counts" {
    convert "$(folder llama-3-like)" --type q4_1 --tensor-type 'layers.*.down.weight=q8_0' --tensor-type 'layers.?.v.*=bf16' --tensor-type 'layers.1.*=auto' \
        --tensor-type layers.1.up.weight=q8_channel -o a.bmc
    assert_equal "$(type_of a.bmc layers.0.down.weight) $(type_of a.bmc layers.0.v.weight) $(type_of a.bmc layers.0.q.weight)" 'q8_0 bf16 q4_1'
    assert_equal "$(type_of a.bmc layers.1.down.weight) $(type_of a.bmc layers.1.up.weight) $(type_of a.bmc layers.1.q.weight)" 'bf16 q8_channel bf16'
    assert_equal "$(type_of a.bmc layers.1.mlp_norm.weight)" f32
    # The other way round: few bits for some.
    convert "$(folder llama-3-like)" --tensor-type '*.down.weight=q4_0' -o a.bmc
    assert_equal "$(type_of a.bmc layers.0.down.weight) $(type_of a.bmc layers.0.up.weight)" 'q4_0 bf16'
    # An embedding that is the head has both names.
    for name in head.weight embed.weight; do
        convert "$(folder qwen2-like)" --type q4_1 --tensor-type $name=q8_0 --leave-output-tensor -o a.bmc
        assert_equal "$(type_of a.bmc embed.weight)" q8_0
    done
}

@test "types by the names of earlier versions and by those of GGUF" {
    for names in 'q8 q8_0' 'q8c q8_channel' 'q4s q4_0' 'Q8_0 q8_0' 'Q4_1 q4_1' 'BF16 bf16' 'Q3_K q3_k_m' 'q4k q4_k_m' 'IQ4_XS iq4_xs' 'Q3_K_S q3_k_s'; do
        read -r alias name <<<"$names"
        convert "$(folder qwen2-like)" --type "$alias" -o a.bmc
        convert "$(folder qwen2-like)" --type "$name" -o b.bmc
        cmp a.bmc b.bmc
    done
    for type in q4 Q4; do
        expect_error 2 "--type: \"$type\" is a type of caches; weights have q4_0 .*, q4_1 .* and q4_k" bmc-convert "$(folder qwen2-like)" --type $type -o a.bmc
        expect_error 2 'PATTERN=TYPE is expected' bmc-convert "$(folder qwen2-like)" --tensor-type "*=$type" -o a.bmc
    done
    convert "$(folder qwen2-like)" --type q4_1 --tensor-type '*.down.weight=q8' -o a.bmc
    assert_equal "$(type_of a.bmc layers.0.down.weight)" q8_0
}

@test "--type: spellings of other programs" {
    while read -r type near; do
        expect_error 2 "--type: did you mean $near\? \(\"$type\" is none of auto, f32, .*, iq1_s\)" bmc-convert a -o b --type $type
    done <<'END'
q4km q4_k_m
q4_k_mm q4_k_m
MOSTLY_Q4_K_M q4_k_m
fp16 f16
float16 f16
BFloat16 bf16
q6_k_m q6_k
END
    expect_error 2 '--type: "zzz" is none of auto, .*, iq1_s \(' bmc-convert a -o b --type zzz
    expect_error 2 'exactly one folder or file is expected, found 2; a type is given with --type q4_k_m' bmc-convert a -o b Q4_K_M
    expect_error 2 'exactly one folder or file is expected, found 2 \(' bmc-convert a -o b other
    expect_error 2 'exactly one folder or file is expected, found 2; the file to write is given with -o' bmc-convert a.gguf b.bmc
}

@test "--tensor-type: names of GGUF files are translated" {
    while read -r gguf ours; do
        expect_error 1 "--tensor-type ${gguf//\*/\\*}: GGUF's names are not used here; the corresponding one is ${ours//[*?]/.} " \
            bmc-convert "$(folder llama-3-like)" --type q8_0 --tensor-type "$gguf=q8_0" -o a.bmc
    done <<'END'
blk.0.attn_q.weight layers.0.q.weight
blk.*.ffn_down layers.*.down.weight
attn_v layers.*.v.weight
blk.1.attn_qkv.weight layers.1.?.weight
ffn_down_exps layers.*.experts_down.weight
token_embd.weight embed.weight
output.weight head.weight
END
    for name in layers.0.q.weight 'layers.*.down.weight' 'layers.*.v.weight' 'layers.1.?.weight' embed.weight head.weight; do
        convert "$(folder llama-3-like)" --tensor-type "$name=q8_0" -o a.bmc
    done
}

@test "--tensor-type: what matches nothing, or vectors only, and what is no type" {
    expect_error 1 'tensor-type layer\.\*: matches no tensor; tensors are embed\.weight, layers\.0\.q\.weight' \
        bmc-convert "$(folder llama-3-like)" --tensor-type 'layer.*=q8_0' -o a.bmc
    expect_error 1 'tensor-type \*norm\*: matches only vectors, which are always f32' \
        bmc-convert "$(folder llama-3-like)" --type q4_1 --tensor-type '*norm*=q8_0' -o a.bmc
    for keep in x x= =q8_0 x=q5 x=q8_2l x=q4_k_m x=f3 "$(printf 'x%.0s' {1..64})=q8_0"; do
        expect_error 2 'PATTERN=TYPE is expected' bmc-convert "$(folder llama-3-like)" --tensor-type "$keep" -o a.bmc
    done
    expect_error 2 '^bmc-convert: --tensor-type goes with a model that is written' bmc-convert --info "$(model grimm)" --tensor-type 'x=q8_0'
    expect_error 2 '^bmc-convert: --leave-output-tensor goes with a model that is written' bmc-convert --verify "$(model grimm)" --leave-output-tensor
    expect_error 2 '^bmc-convert: --type goes with a model that is written' bmc-convert --verify "$(model grimm)" --type q4_1
    assert_folder
}

@test "weights that are too large for a type's scales, or not finite" {
    cp -r "$(folder qwen2-like)" big
    chmod -R u+w big
    at=$(safetensors_at big/model.safetensors model.layers.0.mlp.up_proj.weight)
    bytes_le 4 0x4e6e6b28 | patch big/model.safetensors "$at" # 1e9
    for type in q8_0 q4_1 q4_0 q4_k iq4_xs; do
        expect_error 1 "up_proj\.weight\" has weights that are too large for $type; use --type bf16 or f32" bmc-convert big --type $type --pure -o a.bmc
    done
    convert big --type q8_channel -o b.bmc
    convert big --type q4_1 --tensor-type '*.up.weight=bf16' -o b.bmc
    for bits in 0x7fc00000 0xff800000; do
        bytes_le 4 $bits | patch big/model.safetensors "$at"
        expect_error 1 'NaN or infinite' bmc-convert big --type q4_1 -o a.bmc
    done
    assert_folder b.bmc big
}

# ---- importance ----

@test "--save-imatrix: the same bytes whatever the threads and chunks, and the same scores" {
    bmc-gen -q -m "$(model grimm)" --score --summary -p "$text" >want
    for how in '-t 1 --chunk 5' '-t 3 --chunk 512'; do
        bmc-gen -q -m "$(model grimm)" --score --summary -p "$text" $how --save-imatrix a.imp >got
        equal_files a.imp "$BATS_FILE_TMPDIR/grimm.imp"
        equal_files got want
    done
    # As the head of the file says: version, matrices, bytes.
    assert_equal "$(number_at a.imp 8 4) $(number_at a.imp 16 8)" "1 $(wc -c <a.imp)"
    assert_equal "$(number_at a.imp 12 4)" "$(types "$(model grimm)" | grep -vE 'norm|bias' | grep -vcx 'embed.weight .*\|head.weight .*' | awk '{ print $1 + 1 }')"
}

@test "--imatrix weighs inputs, and says which model read the text" {
    run_plain bmc-convert "$(folder grimm)" --type q4_1 --imatrix "$BATS_FILE_TMPDIR/grimm.imp" -o a.bmc
    [ "$status" -eq 0 ]
    id=$(bmc-convert --info "$(model grimm)" --format json | jq -r .model_id)
    assert_equal "$stderr" "bmc-convert: $BATS_FILE_TMPDIR/grimm.imp: made with model $id, $(bmc-gen -m "$(model grimm)" --tokenize --format jsonl <<<"$text" | jq '.ids | length') tokens"
    if cmp -s a.bmc "$BATS_FILE_TMPDIR/grimm-q4.bmc"; then fail "nothing was weighed"; fi
    for type in '' '--type f16' '--type bf16 --tensor-type *=f32'; do
        # shellcheck disable=SC2086
        expect_error 2 '--imatrix weights errors of quantisation, and nothing is quantised: ' bmc-convert "$(folder grimm)" $type --imatrix "$BATS_FILE_TMPDIR/grimm.imp" -o c.bmc
    done
    run_plain bmc-convert "$(folder grimm)" --tensor-type 'layers.0.q.weight=q4_0' --imatrix "$BATS_FILE_TMPDIR/grimm.imp" -o c.bmc
    assert_equal "$status" 0
}

@test "importance is the mean square of inputs: after an RMS norm, of its gains" {
    m=$(model qwen2-like)
    bmc-gen -q -m "$m" --score --summary -p "$text" --save-imatrix a.imp >/dev/null
    n=$(number_at a.imp 12 4)
    weights=$(folder qwen2-like)/model.safetensors
    floats() { od -An -v -tf4 -w4 -j "$2" -N $((4 * $3)) "$1"; }
    for ((i = 0; i < n; i++)); do
        at=$((128 + 80 * i))
        name=$(tail -c +$((at + 1)) a.imp | head -c 64 | tr -d '\0')
        case $name in
        layers.*.[qkv].weight) norm=model.${name%.?.weight}.input_layernorm.weight ;;
        layers.*.gate.weight | layers.*.up.weight) norm=model.${name%.*.weight}.post_attention_layernorm.weight ;;
        embed.weight) norm=model.norm.weight ;;
        *) continue ;;
        esac
        inputs=$(number_at a.imp $((at + 64)) 8)
        floats a.imp $((128 + 80 * n + 4 * $(number_at a.imp $((at + 72)) 8))) "$inputs" >got
        floats "$weights" "$(safetensors_at "$weights" "$norm")" "$inputs" >gain
        paste got gain | awk '{ sum += $1 / ($2 * $2) } END { mean = sum / NR; print (mean > 0.99 && mean < 1.001 ? "ok" : mean) }' >>said
    done
    assert_equal "$(wc -l <said)" $((5 * $(bmc-convert --info "$m" --format json | jq .layers) + 1))
    assert_equal "$(sort -u said)" ok
}

@test "importance brings the logits for its text closer to the source" {
    told andersen-draft >told
    logprobs() { bmc-gen -q -m "$1" --precision f32 --score --format json -f told "${@:2}" | jq -c '[.rows[1:][].logprob]'; }
    logprobs "$(model andersen-draft)" --save-imatrix a.imp >source
    convert "$(folder andersen-draft)" --type q4_0 -o plain.bmc
    bmc-convert "$(folder andersen-draft)" --type q4_0 --imatrix a.imp -o weighed.bmc 2>/dev/null
    for m in plain weighed; do
        logprobs $m.bmc | jq --slurpfile s source '[., $s[0]] | transpose | map(.[0] - .[1] | fabs) | add / length'
    done | paste -sd ' ' >off
    awk '{ exit !($2 < 0.97 * $1) }' off || fail "$(cat off)"
}

@test "--calibrate: an importance matrix of random tokens, the same whatever the source and the threads" {
    convert "$(folder qwen2-like)" --type q4_0 --calibrate -o a.bmc -t 1
    convert "$(model qwen2-like)" --type q4_0 --calibrate -o b.bmc -t 3
    equal_files a.bmc b.bmc
    assert_folder a.bmc b.bmc # the source in its own types was a file without a name
    convert "$(folder qwen2-like)" --type q4_0 -o plain.bmc
    if cmp -s a.bmc plain.bmc; then fail 'nothing was weighted'; fi
    # Types that need a matrix have it.
    convert "$(model grimm)" --tensor-type layers.0.q.weight=iq2_xxs --calibrate -o d.bmc
    assert_equal "$(type_of d.bmc layers.0.q.weight)" iq2_xxs
    expect_error 1 'is a draft head, which runs on its target.s hidden states only, so that it cannot be calibrated' \
        bmc-convert "$ROOT/models.d/grimm-eagle" --type q4_0 --calibrate -o c.bmc
    expect_error 2 '--calibrate collects what --imatrix reads' bmc-convert a --type q4_0 --calibrate --imatrix a.imp -o c.bmc
    expect_error 2 '--calibrate weights errors of quantisation, and nothing is quantised' bmc-convert a --calibrate -o c.bmc
    expect_error 2 '--calibrate goes with a folder or file' bmc-convert --synth opt-125m --calibrate -o c.bmc
}

# A folder of a model with 117 million weights, all zero, in a sparse file.
sparse_model() { # FOLDER
    mkdir "$1"
    cp "$(folder llama-3-like)"/tokenizer*.json "$1"
    jq '. + {hidden_size: 4096, intermediate_size: 4096, head_dim: 64, num_attention_heads: 64, num_key_value_heads: 64, num_hidden_layers: 1}' \
        "$(folder llama-3-like)/config.json" >"$1/config.json"
    jq -nc 'reduce (("model.embed_tokens", "lm_head" | [., 406, 4096]), ("q", "k", "v", "o" | ["model.layers.0.self_attn.\(.)_proj", 4096, 4096]),
        ("gate", "up", "down" | ["model.layers.0.mlp.\(.)_proj", 4096, 4096]), ("norm", "layers.0.input_layernorm", "layers.0.post_attention_layernorm" | ["model." + ., 4096]))
        as [$name, $rows, $columns] ({at: 0}; (.at + 2 * $rows * ($columns // 1)) as $end
            | .tensors["\($name).weight"] = {dtype: "BF16", shape: [$rows, $columns | values], data_offsets: [.at, $end]} | .at = $end)
        | .tensors' | tr -d '\n' >header
    { bytes_le 8 $(wc -c <header); cat header; } >"$1/model.safetensors"
    truncate -s $(($(wc -c <header) + 8 + $(jq 'map(.data_offsets[1]) | max' header))) "$1/model.safetensors"
}

@test "--calibrate is the default for mixtures below 5 bits of models with 100 million weights" {
    sparse_model large
    # A dry run has the types that need a matrix if one would be collected, and collects none.
    for type in iq2_s iq1_m; do
        ok bmc-convert --dry-run large --type $type >plan
        expect_error 1 'needs an importance matrix' bmc-convert --dry-run large --type $type --no-calibrate
        expect_error 1 'needs an importance matrix' bmc-convert --dry-run large --type $type --pure
    done
    # What cannot be run is quantised without a matrix, and says why; here it cannot be quantised, either.
    at=$(safetensors_at large/model.safetensors model.embed_tokens.weight)
    printf '\xff\x7f' | patch large/model.safetensors $at
    run_plain bmc-convert -q large --type q4_0 -o a.bmc
    assert_equal "$status" 1
    assert_regex "$stderr" 'large: is quantised without an importance matrix: .*NaN or infinite'
    run_plain bmc-convert large --type q5_0 -o a.bmc
    refute_regex "$stderr" 'importance|random'
    expect_error 2 '--calibrate and --no-calibrate exclude each other' bmc-convert a --type q4_0 --calibrate --no-calibrate -o c.bmc
    [ "$BMC_FULL" = 1 ] || return 0
    printf '\0\0' | patch large/model.safetensors $at
    run_plain bmc-convert large --type q4_0 -o a.bmc
    assert_equal "$status/$stderr" '0/bmc-convert: large: quantisation errors are weighted by inputs of 512 random tokens; --no-calibrate weights all alike'
}

@test "--imatrix: of another model, damaged, in the wrong place" {
    imp=$BATS_FILE_TMPDIR/grimm.imp
    run bmc-convert "$(folder llama-3-like)" --type q4_1 --imatrix "$imp" -o a.bmc
    assert_failure 1
    assert_line --regexp 'has [0-9]+ inputs for "layers\.0\.q\.weight", but this model has 64: it belongs to another model'
    cp "$imp" bad.imp
    flip bad.imp 3000
    expect_error 1 'bad\.imp: hash mismatch' bmc-convert "$(folder grimm)" --type q4_1 --imatrix bad.imp -o a.bmc
    head -c 3000 "$imp" >bad.imp
    expect_error 1 'bad\.imp: has 3000 bytes, its header says' bmc-convert "$(folder grimm)" --type q4_1 --imatrix bad.imp -o a.bmc
    expect_error 1 'is a \.bmc model, expected an importance matrix' bmc-convert "$(folder grimm)" --type q4_1 --imatrix "$(model grimm)" -o a.bmc
    expect_error 1 'is an importance matrix, expected .*: pass it to bmc-convert with --imatrix' bmc-gen -m "$imp" -p x
    expect_error 1 'is a file with an importance matrix, so it is not replaced' bmc-convert "$(folder grimm)" -o "$imp"
    cp "$(model qwen2-like)" m.bmc
    expect_error 1 'm\.bmc: is a model file, so it is not replaced' bmc-gen -q -m "$(model grimm)" --score -p "$text" --save-imatrix m.bmc
    # A full disk does not cost the scores.
    run_plain bmc-gen -q -m "$(model grimm)" --score --summary -p "$text" --save-imatrix /dev/full
    assert_equal "$status/$stderr" '1/bmc-gen: /dev/full: cannot write: No space left on device'
    assert_equal "$output" "$(bmc-gen -q -m "$(model grimm)" --score --summary -p "$text")"
    expect_error 2 'save-imatrix goes with --score' bmc-gen -m "$(model grimm)" -p x --save-imatrix a.imp
    expect_error 2 'save-imatrix goes with --score' bmc-gen -m "$(model grimm)" --score --jsonl --save-imatrix a.imp
    expect_error 2 'imatrix goes with a folder or file' bmc-convert --synth opt-125m --imatrix "$imp" -o a.bmc
    assert_folder bad.imp m.bmc
}

# ---- what comes of it ----

# Texts that the reference has: one that people wrote, and how the model goes on from prompts.
told() { jq -r '.scores[].text, (.cases[] | .prompt + .greedy_text)' "$(reference "$1")"; }

# Perplexity over that of the source, in parts of a thousand above it: of what is made of a folder, or of a model.
loss() { # NAME SOURCE TYPE
    local made=loss.bmc
    if [ "$1 $3" = 'grimm q4_1' ]; then made=$BATS_FILE_TMPDIR/grimm-q4.bmc; else convert "$(folder "$1")" --type "$3" -o $made; fi
    jq -n "(($2 - ($(mean $made))) | exp - 1) * 1000 | round"
}
mean() { bmc-gen -q -m "$1" --score --summary --format json -f told | jq .mean_logprob; }

@test "perplexity: q8_0 and q8_channel with int8 activations within 0.3 % of the source, q4_1 within 2 %" {
    for name in grimm andersen; do
        told "$name" | head -c 700 >told
        source=$(mean "$(model "$name")")
        types='q8_0 q8_channel q4_1'
        if [ $name = andersen ]; then types=q8_channel; fi
        for type in $types; do
            case $type in q4_1) most=20 ;; *) most=3 ;; esac
            got=$(loss "$name" "$source" $type)
            [ "$got" -le $most ] || fail "$name $type: $got"
        done
    done
}

@test "bmc-spec: quantised draft and target models give the target's ids" {
    convert "$(folder grimm-draft)" --type q4_1 -o draft-q4.bmc
    for pair in "$(model grimm) draft-q4.bmc" "$BATS_FILE_TMPDIR/grimm-q4.bmc $(model grimm-draft)"; do
        read -r target draft <<<"$pair"
        bmc-gen -q -m "$target" -p "$text" -n 16 --ids --stats plain >want
        bmc-spec -q -m "$target" -d "$draft" -p "$text" -n 16 --ids -k 4 --always --stats spec >got
        equal_files got want
        assert_equal "$(jq .logits_hash spec)" "$(jq .logits_hash plain)"
        [ "$(jq .steps spec)" -lt 15 ] || fail "nothing was guessed: $(jq -c . spec)"
    done
}
