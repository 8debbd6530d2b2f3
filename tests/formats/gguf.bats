# GGUF files: the same model as their original folder; block types, vocabularies, split files, invalid files.
load ../helper

GGUF=$FIXTURES/gguf
SHARED=$ROOT/../shared/gguf

setup_file() {
    for name in qwen2-like llama-bias; do model "$name" >/dev/null; done
    export BMC_SEED=${BMC_SEED:-$((($(date +%s%N) / 1000) % 32768))}
}

# ---- small files, byte by byte ----

le() { bytes_le "$@" >>a.gguf; }
text() { le 8 ${#1} && printf '%s' "$1" >>a.gguf; } # ASCII only

head_of() { # VERSION TENSORS VALUES
    printf GGUF >a.gguf
    le 4 "$1"
    le 8 "$2"
    le 8 "$3"
}

put() { # KEY u32|text VALUE
    text "$1"
    if [ "$2" = u32 ]; then
        le 4 4
        le 4 "$3"
    else
        le 4 8
        text "$3"
    fi
}

tensor() { # NAME TYPE OFFSET DIM..
    text "$1"
    le 4 $(($# - 3))
    for dim in "${@:4}"; do le 8 "$dim"; done
    le 4 "$2"
    le 8 "$3"
}

strings() { # KEY TEXT..
    text "$1"
    le 4 9
    le 4 8
    le 8 $(($# - 1))
    for word in "${@:2}"; do text "$word"; done
}

pad() { truncate -s $(((($(stat -c %s a.gguf) + 31) / 32) * 32 + $1)) a.gguf; }

refused() { # REGEX
    expect_error 1 "^bmc-convert: a.gguf: $1" bmc-convert a.gguf -o a.bmc
    [ ! -e a.bmc ]
}

# ---- the same model ----

# named FOLDER JQ: its named tokens as the GGUF file has them, which has no others.
named() {
    jq "$2" "$1/tokenizer_config.json" >named.json
    mv named.json "$1/tokenizer_config.json"
    rm "$1/special_tokens_map.json"
}

@test "a model as GGUF gives the same file as its folder, byte for byte" {
    cp -r "$(folder qwen2-like)" qwen2
    named qwen2 '.bos_token = "<|endoftext|>" | del(.pad_token)'
    bmc-convert qwen2 -o b.bmc
    bmc-convert "$GGUF/qwen2-like.gguf" -o a.bmc
    equal_files a.bmc b.bmc
    # GGUF does not tell whether control tokens are in the BPE vocabulary: here they never are.
    mkdir folder
    cp "$(folder llama-bias)"/* folder
    jq '. as $t | .model.vocab |= with_entries(select(.key as $k | $t.added_tokens | map(.content) | index($k) | not))' \
        "$(folder llama-bias)/tokenizer.json" >folder/tokenizer.json
    bmc-convert folder -o b.bmc
    bmc-convert "$GGUF/llama-bias.gguf" -o a.bmc
    equal_files a.bmc b.bmc
    cp "$GGUF/llama-bias.gguf" a.gguf
    bytes_le 4 2 | patch a.gguf 4 # version 2 is the same, as far as it is read here
    bmc-convert a.gguf -o a.bmc
    equal_files a.bmc b.bmc
    bmc-convert --type bf16 -t 1 "$GGUF/qwen2-like.gguf" -o a.bmc
    bmc-convert --type bf16 qwen2 -o b.bmc
    equal_files a.bmc b.bmc
}

@test "split files: any file gives the whole model, with RoPE scaling; missing or foreign files are refused" {
    mkdir folder
    cp "$(folder llama-3-like)"/* folder
    jq '.rope_scaling.original_max_position_embeddings = 8192' "$(folder llama-3-like)/config.json" >folder/config.json
    jq '{eos_token_id}' "$(folder llama-3-like)/generation_config.json" >folder/generation_config.json # without sampling defaults
    named folder '.eos_token = "<|end_of_text|>"'
    bmc-convert folder -o b.bmc
    for i in 1 2 3; do
        bmc-convert "$GGUF/llama-3-like-0000$i-of-00003.gguf" -o a.bmc
        equal_files a.bmc b.bmc
    done
    cp "$GGUF"/llama-3-like-0000[13]* .
    expect_error 1 '^bmc-convert: llama-3-like-00002-of-00003.gguf: missing: the model is split into 3 files' \
        bmc-convert llama-3-like-00003-of-00003.gguf -o c.bmc
    cp llama-3-like-00001-of-00003.gguf llama-3-like-00002-of-00003.gguf
    expect_error 1 'llama-3-like-00002-of-00003.gguf: is file 1 of 3 by its metadata, but 2 of 3 by its name' \
        bmc-convert llama-3-like-00001-of-00003.gguf -o c.bmc
    cp llama-3-like-00001-of-00003.gguf whole.gguf
    expect_error 1 'whole.gguf: is file 1 of 3 by its metadata, but not by its name' bmc-convert whole.gguf -o c.bmc
    head_of 3 0 1
    text split.no
    le 4 11
    le 8 9223372036854775807
    expect_error 1 'a.gguf: is file 9223372036854775808 of 1' bmc-convert a.gguf -o c.bmc
    [ ! -e c.bmc ]
}

@test "unknown RoPE scalings are refused" {
    cp "$GGUF"/llama-3-like-* .
    file=$(grep -al rope_freqs.weight llama-3-like-*)
    # The largest divisor, the factor, is 8.0.
    at=$(LC_ALL=C od -An -v -tx4 -w4 "$file" | grep -n 41000000 | tail -n 1 | cut -d : -f 1)
    at=$((4 * (at - 1)))
    bytes_le 4 $((0x40f00000)) | patch "$file" "$at" # 7.5
    expect_error 1 'rope_freqs.weight is not a Llama 3 scaling' \
        bmc-convert llama-3-like-00001-of-00003.gguf -o a.bmc
}

# Another key-value pair of 41 bytes in a.gguf, and padding to 64, which keeps tensors aligned.
with_value() { # KEY F32
    [ ${#1} -le 25 ]
    head -c 24 "$GGUF/qwen2-like.gguf" >a.gguf
    bytes_le 8 $(($(number_at "$GGUF/qwen2-like.gguf" 16 8) + 2)) | patch a.gguf 16
    text "$1"
    le 4 6
    le 4 "$2"
    put x text "yz$(printf '%*s' $((25 - ${#1})) '')"
    tail -c +25 "$GGUF/qwen2-like.gguf" >>a.gguf
}

@test "a RoPE scaling factor without a type means linear" {
    for key in qwen2.rope.scaling.factor qwen2.rope.scale_linear; do
        with_value $key $((0x40800000)) # 4
        bmc-convert a.gguf -o a.bmc
        assert_equal "$(bmc-convert --info --format json a.bmc | jq -c '[.rope_scaling, .rope_factor]')" '["linear",4]'
        with_value $key $((0x3f800000)) # 1
        bmc-convert a.gguf -o a.bmc
        bmc-convert "$GGUF/qwen2-like.gguf" -o b.bmc
        equal_files a.bmc b.bmc
    done
}

# ---- blocks ----

@test "all block types are dequantised bitwise as by the gguf package" {
    run "$BMC_BUILD/tests/test_blocks" "$GGUF/blocks.bin"
    [ "$status" -eq 0 ] || fail "$output"
    [[ $output =~ ([0-9]+)' checks, 0 failed'$ ]]
}

@test "quantised models: ids and log-probabilities of the values dequantised by the gguf package" {
    [ -d "$SHARED" ] || skip "there are no quantized models beside the project"
    for i in 0 1; do
        file=$(jq -r ".[$i].file" "$SHARED/cases.json")
        bmc-convert "$SHARED/$file" -o a.bmc
        jq -c ".[$i].cases[] | {prompt}" "$SHARED/cases.json" >requests
        bmc-gen -m a.bmc --precision f32 --jsonl --ignore-eos --temp 0 -n 40 --logprobs 1 -b 3 <requests 2>/dev/null |
            jq -s 'sort_by(.id)' >results
        jq -e --argjson i $i --slurpfile want "$SHARED/cases.json" \
            '[., $want[0][$i].cases] | transpose | length == 3 and all(
                .[0].ids == .[1].ids and
                ([[.[0].logprobs[].logprob], .[1].logprob] | transpose | length == 40 and all((.[0] - .[1]) | fabs < 1e-5)))' results ||
            fail "$file: $(head -c 300 results)"
        bmc-gen -m a.bmc --precision f32 --score --summary --format json <"$SHARED/score-text.txt" 2>/dev/null >score
        jq -e --argjson i $i --slurpfile want "$SHARED/cases.json" '(.mean_logprob - $want[0][$i].mean_logprob) | fabs < 1e-5' score ||
            fail "$file: $(cat score)"
    done
}

# ---- vocabularies ----

@test "vocabulary-only files: --synth uses their tokenizer and grows to their size; --no-bos" {
    tiny_shape tiny.shape
    bmc-convert --synth ./tiny.shape --tokenizer "$GGUF/llama-3-like-00001-of-00003.gguf" -o a.bmc
    assert_equal "$(bmc-convert --info --format json a.bmc | jq -c '[.vocab, .tokenizer_ids, .start_token]')" '[406,406,true]'
    ids=$(printf 'a cat' | "$BMC_BUILD/tests/vocab_ids" a.bmc)
    [[ $ids == '403 '* ]]
    bmc-convert --synth ./tiny.shape --tokenizer "$GGUF/llama-3-like-00001-of-00003.gguf" --no-bos -o a.bmc
    assert_equal "$(bmc-convert --info --format json a.bmc | jq -c '[.vocab, .start_token]')" '[406,false]'
    assert_equal "$(printf 'a cat' | "$BMC_BUILD/tests/vocab_ids" a.bmc)" "${ids#403 }"
    bmc-convert --no-bos "$(folder llama-3-like)" -o a.bmc
    assert_equal "$(printf 'a cat' | "$BMC_BUILD/tests/vocab_ids" a.bmc)" "${ids#403 }"
    expect_error 2 '--no-bos goes with a model that is written' bmc-convert --no-bos --info a.bmc
}

@test "vocabularies of real models: all texts give the expected ids" {
    [ -d "$SHARED/vocab" ] || skip "there are no vocabularies beside the project"
    tiny_shape tiny.shape
    n=0
    for vocab in "$SHARED"/vocab/*.gguf; do
        bmc-convert --synth ./tiny.shape --no-bos --tokenizer "$vocab" -o a.bmc
        "$BMC_BUILD/tests/vocab_ids" a.bmc <"$vocab.inp" >got
        sed 's/^ *//; s/ *$//' "$vocab.out" >want
        diff want got >differ || fail "$vocab: $(head -n 5 differ)"
        n=$((n + 1))
    done
    [ "$n" -ge 3 ]
}

@test "Gemma 4's vocabulary gives the ids and texts of its tokenizer.json" {
    tiny_shape tiny.shape
    ok bmc-convert --synth ./tiny.shape --tokenizer "$GGUF/gemma4-vocabulary.gguf" -o a.bmc
    cases=$FIXTURES/tokenizers/gemma/cases.json
    jq -r '.cases[] | select(.text | test("[\n\r\u0000]") | not) | .text' "$cases" >texts
    [ "$(wc -l <texts)" -ge 50 ]
    jq -c '.cases[] | select(.text | test("[\n\r\u0000]") | not) | .ids' "$cases" >want
    bmc-gen -q -m a.bmc --tokenize --format jsonl <texts | jq -c .ids >got
    diff want got
    ok bmc-convert --synth ./tiny.shape --no-bos --tokenizer "$GGUF/gemma4-vocabulary.gguf" -o b.bmc
    jq -j '.cases[] | select(.text | test("\u0000") | not) | .text + "\n__ggml_vocab_test__\n"' "$cases" >texts
    jq -c '.cases[] | select(.text | test("\u0000") | not) | .ids_plain' "$cases" >want
    "$BMC_BUILD/tests/vocab_ids" b.bmc <texts | jq -c -R '[scan("[0-9]+") | tonumber]' >got
    diff want got
}

@test "every known pre-tokenizer builds a lossless tokenizer; unknown names are refused" {
    tiny_shape tiny.shape
    names=$(sed -n 's/^    {"\([^"]*\)", {.*/\1/p' "$ROOT/lib/format/gguf/gguf_pre.c")
    [ "$(wc -w <<<"$names")" -ge 30 ]
    text=$'The cat\'s 1234 Mäuse!\tIT\'S\u00a0fine:  日本 ½ ... §'
    for name in $names; do
        sampled 6 || continue
        rename_pre "$name"
        bmc-convert --synth ./tiny.shape --no-bos --tokenizer a.gguf -o a.bmc
        assert_equal "$(printf '%s' "$text" | "$BMC_BUILD/tests/vocab_ids" a.bmc | bmc-gen -m a.bmc --detokenize)" "$text"
    done
    rename_pre gpt-x
    expect_error 1 '^bmc-convert: a.gguf: unknown pre-tokenizer "gpt-x" \(tokenizer.ggml.pre\); convert' \
        bmc-convert --synth ./tiny.shape --tokenizer a.gguf -o b.bmc
}

# The vocabulary of llama-bias with another pre-tokenizer.
rename_pre() { # NAME
    local file=$GGUF/llama-bias.gguf key=tokenizer.ggml.pre at
    at=$(LC_ALL=C grep -abo $key "$file" | head -n 1 | cut -d : -f 1)
    {
        head -c $((at + ${#key} + 4)) "$file"
        bytes_le 8 ${#1}
        printf '%s' "$1"
        tail -c +$((at + ${#key} + 4 + 8 + $(number_at "$file" $((at + ${#key} + 4)) 8) + 1)) "$file"
    } >a.gguf
    # Tensor data has moved: only the tokenizer can be read.
}

# ---- memory ----

# A model of one layer with 48 MiB of BF16 in three matrices, as a sparse file.
big_model() {
    local key at=0 name rows columns
    head_of 3 12 12
    put general.architecture text llama
    for key in block_count=1 context_length=64 embedding_length=1024 feed_forward_length=8192 attention.head_count=8 attention.head_count_kv=1; do
        put llama.${key%=*} u32 ${key#*=}
    done
    text llama.attention.layer_norm_rms_epsilon
    le 4 6
    le 4 $((0x3727c5ac)) # 1e-5
    put tokenizer.ggml.model text gpt2
    put tokenizer.ggml.pre text gpt-2
    strings tokenizer.ggml.tokens a b ab
    strings tokenizer.ggml.merges 'a b'
    for name in token_embd=3 output_norm=1 blk.0.attn_norm=1 blk.0.attn_q=1024 blk.0.attn_k=128 blk.0.attn_v=128 blk.0.attn_output=1024 \
        blk.0.ffn_norm=1 blk.0.ffn_gate=8192 blk.0.ffn_up=8192 blk.0.ffn_down=1024; do
        rows=${name#*=} columns=1024
        if [[ $name == *ffn_down* ]]; then columns=8192; fi
        if [[ $name == *norm* ]]; then tensor ${name%=*}.weight 30 $at 1024; else tensor ${name%=*}.weight 30 $at $columns $rows; fi
        at=$((at + rows * columns * 2))
    done
    tensor rope_freqs.weight 0 $at 64
    pad $((at + 256))
    # Divisors of 1: no scaling.
    for ((i = 0; i < 64; i++)); do printf '\0\0\x80\x3f'; done | patch a.gguf $(($(stat -c %s a.gguf) - 256))
}

@test "pages of a large file are released after reading" {
    big_model
    [ "$(stat -c %s a.gguf)" -gt $((48 << 20)) ]
    peak=$(convert_peak a.gguf)
    [ -n "$peak" ]
    sanitized || [ "$peak" -lt $((40 << 10)) ] || fail "$peak KiB"
}

# ---- invalid files ----

@test "unsupported GGUF files are refused with one sentence" {
    head_of 3 0 0
    refused 'general.architecture is missing$'
    printf 'GGUX' | patch a.gguf 0
    refused 'expected a Hugging Face folder with config.json or a GGUF file$'
    for version in 1 4 16777216; do
        head_of $version 0 0
        refused "GGUF version $version is unsupported, only 2 and 3 are; convert the model again$"
    done
    head_of $((3 << 24)) 0 0
    refused 'big-endian files are not supported; convert it \(gguf-convert-endian\)$'
    head_of 3 0 1
    put general.architecture text llama2
    refused 'architecture "llama2" is unknown; supported are llama, qwen2, qwen3, .*, olmo2, '
    printf GGUF >a.gguf
    refused 'ends within its header at byte 4: truncated or damaged$'
}

@test "invalid key-value pairs are refused" {
    head_of 3 0 $((1 << 60))
    refused 'ends within its values'
    head_of 3 0 1
    text general.architecture
    le 4 8
    le 8 $((1 << 62))
    printf llama >>a.gguf
    refused 'ends within a value'
    head_of 3 0 1
    text general.architecture
    le 4 13
    le 8 0
    refused "the value before byte 56 has type 13, expected below 13$"
    head_of 3 0 2
    put general.architecture text llama
    put general.architecture text llama
    refused 'duplicate key "general.architecture"$'
    head_of 3 0 1
    text a
    for ((i = 0; i < 9; i++)); do le 4 9 && { [ $i -eq 0 ] || le 8 1; }; done
    le 8 1
    refused 'arrays are nested more than 4 deep$'
}

@test "invalid tensors are refused" {
    head_of 3 $((1 << 60)) 0
    refused 'claims 1152921504606846976 tensors, more than 131072$'
    head_of 3 1 0
    tensor a 0 0 8
    pad 16
    refused 'tensor "a" extends beyond the end of the file'
    head_of 3 1 0
    tensor a 9 0 32
    pad 64
    refused 'tensor "a" is Q8_1, which is not supported; use a file of the same model in one of F32, .*, IQ1_M, NVFP4, Q1_0, Q2_0$'
    head_of 3 1 0
    tensor a 36 0 32
    pad 64
    refused 'tensor "a" is I2_S \(of bitnet.cpp\), which is not supported; use a file of the same model in one of F32, .*'
    head_of 3 1 0
    tensor a 99 0 32
    pad 64
    refused 'tensor "a" has unknown type 99; supported are F32, BF16, F16, Q8_0, .*, IQ1_M, NVFP4, Q1_0, Q2_0$'
    head_of 3 1 0
    tensor a 8 0 33 2
    pad 640
    refused 'tensor "a" is Q8_0: rows of 33 are not a multiple of its block size 32$'
    head_of 3 2 0
    tensor a 0 0 16
    tensor b 0 32 16
    pad 128
    refused 'tensors "a" and "b" overlap$'
    head_of 3 2 0
    tensor a 0 0 8
    tensor a 0 32 8
    pad 64
    refused 'duplicate tensor name "a"$'
    head_of 3 1 0
    tensor a 0 4 8
    pad 64
    refused 'tensor "a" begins at byte 4 of the data, not a multiple of 32$'
    head_of 3 1 0
    tensor a 0 0 $((1 << 40)) $((1 << 40))
    refused 'tensor "a" has an invalid dimension 1099511627776$'
    head_of 3 1 0
    tensor a 0 $((-32)) 8
    pad 64
    refused 'tensor "a" extends beyond the end of the file'
    head_of 3 1 1
    put general.alignment u32 3
    tensor a 0 0 8
    pad 64
    refused 'general.alignment is 3, expected a power of two$'
    head_of 3 1 0
    tensor '' 0 0 8
    pad 64
    refused "invalid tensor name of 0 bytes before byte 32$"
}

@test "unsupported vocabularies are refused" {
    n=0
    while IFS='|' read -r kind pattern; do
        head_of 3 0 $((${#kind} > 0))
        [ -z "$kind" ] || put tokenizer.ggml.model text "$kind"
        expect_error 1 "^bmc-convert: a.gguf: $pattern" bmc-convert --synth tinyllama-draft-55m --tokenizer a.gguf -o a.bmc
        n=$((n + 1))
    done <<'END'
|has no tokenizer: tokenizer.ggml.model is missing$
plm|tokenizer model "plm" \(tokenizer.ggml.model\) is not supported; gpt2, llama, t5, gemma4 and bert are$
gpt2|tokenizer.ggml.tokens is missing
llama|tokenizer.ggml.tokens is missing
END
    [ "$n" -eq 4 ]
    head_of 3 0 4
    put tokenizer.ggml.model text gpt2
    put tokenizer.ggml.pre text gpt-2
    strings tokenizer.ggml.tokens a b ab
    strings tokenizer.ggml.merges 'a c'
    expect_error 1 '^bmc-convert: a.gguf: merge 0, "a" with "c": the second is not in the vocabulary$' \
        bmc-convert --synth tinyllama-draft-55m --tokenizer a.gguf -o a.bmc
    # Empty tokens, 8 bytes each: more than the limit.
    head_of 3 0 2
    put tokenizer.ggml.model text gpt2
    text tokenizer.ggml.tokens
    le 4 9
    le 4 8
    le 8 $(((1 << 24) + 1))
    truncate -s 160M a.gguf
    expect_error 1 '^bmc-convert: a.gguf: claims 16777217 tokens, more than 16777216$' \
        bmc-convert --synth tinyllama-draft-55m --tokenizer a.gguf -o a.bmc
    assert_folder a.gguf
}

# ---- families ----

# Contents of a model, except its tokenizer and file offsets.
facts() { bmc-convert --info --format json "$1" | jq 'del(.file, .file_id, .model_id, .file_bytes, .header_bytes, .tokenizer_ids) | del(.rows[].offset)'; }

@test "families that GGUF stores differently give the configuration and tensors of their folders" {
    n=0
    for model in "$GGUF"/families/*; do
        n=$((n + 1))
        sampled 2 || continue
        mkdir folder
        cp "$model"/config.json "$model"/model.safetensors "$FIXTURES/families/tokenizer.json" folder/
        # In the rows of k_b, blocks of kv_b are columns: their values, not the blocks, are kept.
        type=auto
        if [[ $model == *q8_0 ]]; then type=f32; fi
        bmc-convert folder --type $type -o folder.bmc
        bmc-convert "$model/model.gguf" --type $type -o gguf.bmc
        # Heads of Qwen3.5's recurrent layers are in another order: recurrent.bats compares results.
        same=.
        if [[ $model == *qwen35* ]]; then same='del(.state_tiled, .rows[].blake2b)'; fi
        facts folder.bmc | jq "$same" >want
        facts gguf.bmc | jq "$same" >got
        diff want got >differ || fail "$model: $(head -n 8 differ)"
        [ "$(jq '.rows | length' got)" -ge 9 ]
        rm -r folder
    done
    [ "$n" -ge 61 ]
    bmc-convert "$GGUF/families/deepseek-v2-q8_0/model.gguf" -o gguf.bmc 2>/dev/null
    bmc-convert --info --format json gguf.bmc >info.json
    assert_equal "$(jq -r '.rows[] | select(.name | test("_b.weight")) | .name + " " + .type' info.json)" $'layers.0.k_b.weight f32\nlayers.0.v_b.weight q8_0'
}

@test "EXAONE 4 without a sliding window, as its smaller models: every layer attends to all and is rotated" {
    mkdir folder
    cp "$GGUF/families/exaone4/model.safetensors" "$FIXTURES/families/tokenizer.json" folder/
    jq '.sliding_window = null | .sliding_window_pattern = null | del(.layer_types)' "$GGUF/families/exaone4/config.json" >folder/config.json
    LC_ALL=C sed 's/\(exaone4.attention.sliding_\)window/\1absent/g' "$GGUF/families/exaone4/model.gguf" >a.gguf
    bmc-convert folder -o folder.bmc
    bmc-convert a.gguf -o gguf.bmc
    diff <(facts folder.bmc) <(facts gguf.bmc)
    bmc-convert --info --format json gguf.bmc | jq -e 'has("window") or has("rope_full") | not'
}

@test "GGUF files are written: of GGUF files with the same data, of models with the same model" {
    local file
    cd "$BATS_TEST_TMPDIR"
    for file in llama-bias qwen2-like quant-types quant-grids families/gemma2/model families/mixtral/model families/glm/model; do
        bmc-convert -q "$GGUF/$file.gguf" -o a.bmc
        bmc-convert -q "$GGUF/$file.gguf" -o same.gguf
        bmc-convert -q same.gguf -o b.bmc
        cmp a.bmc b.bmc
        # tensors are behind the metadata, in the order of the source
        cmp <(tail -c 4096 "$GGUF/$file.gguf") <(tail -c 4096 same.gguf)
        bmc-convert -q a.bmc -o made.gguf
        bmc-convert -q made.gguf -o c.bmc
        [ "$(bmc-convert --info a.bmc | grep '^model_id')" = "$(bmc-convert --info c.bmc | grep '^model_id')" ]
        rm ./*.gguf
    done
}

@test "a folder, a GGUF file and a model, each as a model and as a GGUF file: one model, as large as a dry run says" {
    local source out plan
    cp -r "$(folder qwen2-like)" folder
    named folder '.bos_token = "<|endoftext|>" | del(.pad_token)'
    cp "$GGUF/qwen2-like.gguf" source.gguf
    bmc-convert -q source.gguf -o source.bmc
    bmc-convert -q source.bmc --type q4_0 -o want.bmc
    for source in folder source.gguf source.bmc; do
        for out in out.bmc out.GGUF; do
            plan=$(bmc-convert -q --dry-run "$source" --type q4_0 -o $out --format json)
            [ ! -e $out ]
            run_plain bmc-convert "$source" --type q4_0 -o $out
            assert_equal "$stderr" "bmc-convert: $source: 1 matrix gets a wider type, as rows are no multiple of 256 weights (of 32 in embed.weight, where q8_0 replaces q6_k)"
            assert_equal "$(jq -c '[.file_bytes, .tensor_bytes, .bits_per_weight]' <<<"$plan")" \
                "$(bmc-convert --info $out --format json | jq -c '[.file_bytes, (.rows | unique_by(.offset) | map(.bytes) | add), .bits_per_weight]')"
            assert_equal "$(jq .file_bytes <<<"$plan")" "$(stat -c %s $out)"
            assert_equal "$written" "bmc-convert: $out: $([ $out = out.bmc ] && echo a .bmc model || echo a GGUF file) of $(jq -r '"\(.file_bytes) bytes, \(.bits_per_weight)"' <<<"$plan") bits per weight; tensors: $(
                jq -r '[.rows[].type] | . as $all | ["f32", "bf16", "q8_0", "q4_0"] | map(. as $t | ($all | map(select(. == $t)) | length) | select(. > 0) | "\(.) \($t)") | join(", ")' <<<"$plan")"
            bmc-convert -q $out -o again.bmc
            [ "$(bmc-convert --info again.bmc | grep '^model_id')" = "$(bmc-convert --info want.bmc | grep '^model_id')" ] || fail "$source $out"
            rm $out
        done
    done
    run_plain bmc-convert -q source.bmc -o $out
    assert_equal "$status/$stderr$written" 0/
}

@test "--info of a GGUF file: its metadata, and its tensors as they are; it has no hashes that --verify could check" {
    bmc-convert --info "$GGUF/llama-3-like-00002-of-00003.gguf" --format json >info.json
    bmc-convert -q "$GGUF/llama-3-like-00001-of-00003.gguf" -o a.bmc
    # the model has no tensor for the 8 factors of rope_freqs.weight
    jq -e --slurpfile model <(bmc-convert --info a.bmc --format json) '.kind == "GGUF" and .files == 3 and .parameters == $model[0].parameters + 8 and
        .["llama.block_count"] == $model[0].layers and (.rows | length) == ($model[0].rows | length) + 1 and
        .["tokenizer.ggml.tokens"] == "\($model[0].vocab) strings" and (.rows[] | select(.name == "blk.0.attn_q.weight") | .type == "BF16" and .shape == "64x64" and .bits == 16 and .bytes == 8192)' info.json
    for file in llama-3-like-0000{1,2,3}-of-00003; do stat -c %s "$GGUF/$file.gguf"; done | jq -se --slurpfile info info.json 'add == $info[0].file_bytes'
    bmc-convert --info "$GGUF/quant-types.gguf" | grep -qx 'general.architecture .*'
    expect_error 1 'is a GGUF file, which has no hashes' bmc-convert --verify "$GGUF/llama-bias.gguf"
    head_of 3 1 0
    expect_error 1 '^bmc-convert: a.gguf: ' bmc-convert --info a.gguf
    head_of 3 0 2
    put $'k\xff\n' text 'v'
    strings list a b
    pad 0
    bmc-convert --info a.gguf >text
    equal_files <(tail -n +7 text | head -n 2 | tr -s ' ') <(printf 'k\xef\xbf\xbd? v\n%s\n' 'list ["a", "b"]')
}

@test "what has no form in GGUF is refused, and no file is left" {
    cd "$BATS_TEST_TMPDIR"
    expect_error 1 "models of the opt family have no form in GGUF" bmc-convert "$(folder andersen)" -o x.gguf
    expect_error 1 "its tokenizer has no form in GGUF: BPE without bytes" bmc-convert "$(folder llama-2-like)" -o x.gguf
    expect_error 1 'gemma3n: models of the gemma3n family are not written as GGUF files: write a .bmc model \(.*gemma3n.activation_sparsity_scale is no list' \
        bmc-convert "$FIXTURES/families/gemma3n" -o x.gguf
    expect_error 1 "which would be read as \"swiglu_limit 7\"" bmc-convert "$FIXTURES/families/gpt-oss" -o x.gguf
    expect_error 1 "is q8_channel, which GGUF lacks" bmc-convert "$(folder qwen2-like)" --type q8_channel -o x.gguf
    expect_error 1 "metadata of GGUF files are copied to GGUF files, which --no-bos and --chat-template do not change" \
        bmc-convert "$GGUF/llama-bias.gguf" --no-bos -o x.gguf
    expect_error 1 "metadata of GGUF files are copied" bmc-convert "$GGUF/llama-bias.gguf" --chat-template chatml -o x.gguf
    [ ! -e x.gguf ]
}

@test "GGUF output says that a draft head and a chat format are not written" {
    cd "$BATS_TEST_TMPDIR"
    cp -rL "$ROOT/models.d/grimm-mtp" mtp
    rm mtp/tokenizer*
    cp "$(folder qwen2-like)"/tokenizer* mtp
    bmc-convert mtp -o x.gguf 2>notes
    grep -qx "bmc-convert: mtp: its draft head is not written: the GGUF file has the model alone" notes
    bmc-convert "$(folder qwen2-like)" --chat-template chatml -o y.gguf 2>notes
    grep -q "its chat format chatml is not written: GGUF files have Jinja templates alone" notes
}

@test "--target-bytes: no more bytes, and --info shows the divergence that bmc-prof quality measures" {
    cd "$BATS_TEST_TMPDIR"
    head -c 60 "$FIXTURES/suffix.txt" >text
    bmc-convert -q "$GGUF/quant-types.gguf" -o source.bmc
    bmc-convert -q source.bmc -o small.bmc --target-bytes 250000 --target-text text
    bmc-convert -q "$GGUF/quant-types.gguf" -o small.gguf --target-bytes 200000 --target-text text
    [ "$(stat -c %s small.bmc)" -le 250000 ]
    [ "$(stat -c %s small.gguf)" -le 200000 ]
    grep -q bmc.quality_kld_mean small.gguf
    bmc-convert --info small.bmc --format json >info.json
    "$BMC_BIN/bmc-prof" quality -m small.bmc --reference source.bmc --precision f32 --cache-type f32 -f text --format json >quality.json
    jq -es '(.[0].quality_kld_mean / .[1].rows[0].kld_mean - 1 | fabs) < 0.001 and .[0].quality_kld_mean > 0' info.json quality.json
    expect_error 1 "the smallest types make [0-9]* bytes, more than the 1000 of the target" \
        bmc-convert -q source.bmc -o x.bmc --target-bytes 1000 --target-text text
    expect_error 2 "a target needs --target-text FILE" bmc-convert source.bmc -o x.bmc --target-bpw 4
    [ ! -e x.bmc ]
}

@test "--target-bpw and --target-kld are kept, by --info and bmc-prof quality" {
    cd "$BATS_TEST_TMPDIR"
    head -c 60 "$FIXTURES/suffix.txt" >text
    bmc-convert -q "$GGUF/quant-types.gguf" -o source.bmc
    bmc-convert -q source.bmc -o bits.bmc --target-bpw 4.8 --target-text text
    bmc-convert --info bits.bmc --format json | jq -e '.bits_per_weight <= 4.8'
    # what was measured is no part of model_id: without it the model is the same
    bmc-convert -q bits.bmc -o plain.bmc
    [ "$(bmc-convert --info bits.bmc | grep '^model_id')" = "$(bmc-convert --info plain.bmc | grep '^model_id')" ]
    [ "$(bmc-convert --info plain.bmc | grep -c ^quality_)" = 0 ]
    bmc-convert --verify bits.bmc
    # a target that the source keeps changes no type
    bmc-convert -q source.bmc -o same.bmc --target-bpw 16 --target-text text
    [ "$(bmc-convert --info same.bmc | grep '^model_id')" = "$(bmc-convert --info source.bmc | grep '^model_id')" ]
    bmc-convert -q source.bmc -o kld.bmc --target-kld 0.001 --target-text text
    [ "$(stat -c %s kld.bmc)" -lt "$(stat -c %s source.bmc)" ]
    "$BMC_BIN/bmc-prof" quality -m kld.bmc --reference source.bmc --precision f32 --cache-type f32 -f text --format json |
        jq -e '.rows[0].kld_mean | . > 0 and . <= 0.001'
}

@test "a target for GGUF gives matrices that are one tensor there one type" {
    cd "$BATS_TEST_TMPDIR"
    head -c 60 "$FIXTURES/suffix.txt" >text
    printf '%s\n' 'family phi3' 'layers 2' 'hidden 128' 'heads 4' 'ffn 128' 'vocab 416' 'context 64' 'norm_eps 1e-5' >phi.shape
    bmc-convert -q --synth ./phi.shape --tokenizer "$(folder qwen2-like)" -o source.bmc
    bmc-convert -q source.bmc -o x.gguf --target-bytes 304500 --target-text text
    [ "$(stat -c %s x.gguf)" -le 304500 ]
    bmc-convert -q x.gguf -o x.bmc
    # the matrices differ in type, but not those of one tensor
    bmc-convert --info x.bmc --format json | jq -e '[.rows[] | {(.name): .type}] | add |
        ([.[]] | unique | length > 3) and .["layers.0.q.weight"] == .["layers.0.k.weight"] and
        .["layers.0.k.weight"] == .["layers.0.v.weight"] and .["layers.1.gate.weight"] == .["layers.1.up.weight"]'
}
