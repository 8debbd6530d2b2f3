# Typical first inputs of bmc-convert: added tokens, single tokenizers, weights out of range, unsupported files; and its
# error messages.
load ../helper

setup_file() { for name in qwen2-like llama-bias; do model "$name" >/dev/null; done; }

# ---- tokenizers ----

@test "added tokens in the byte alphabet are matched literally" {
    cp -r "$(folder qwen2-like)" in
    jq 'del(.model.vocab["ü"]) | .added_tokens += [{"id":184,"content":"ü","special":false,"normalized":false},
                          {"id":403,"content":"öl","special":false,"normalized":false}]' in/tokenizer.json >t
    mv t in/tokenizer.json
    ok bmc-convert in -o a.bmc
    ids=$(printf 'Führer, öl' | "$BMC_BUILD/tests/vocab_ids" a.bmc)
    [[ " $ids " == *' 184 '*' 403 '* ]]
    assert_equal "$(bmc-gen -q -m a.bmc --detokenize <<<"$ids")" 'Führer, öl'
}

facts() { bmc-convert --info --format json "$1" | jq -c '[.vocab, .eos, .tokenizer_ids]'; }

@test "--tokenizer: a folder without a model, single files, a vocabulary larger than the shape's" {
    tiny_shape tiny.shape
    mkdir in
    cp "$(folder qwen2-like)/tokenizer.json" in
    ok bmc-convert --synth ./tiny.shape --tokenizer in -o a.bmc
    assert_equal "$(facts a.bmc)" '[403,[0],403]'
    ok bmc-convert --synth ./tiny.shape --tokenizer in/tokenizer.json -o b.bmc
    cmp a.bmc b.bmc
    ok bmc-convert --synth ./tiny.shape --tokenizer "$FIXTURES/sentencepiece/bpe.model" -o c.bmc
    echo text >x
    expect_error 1 '^bmc-convert: x: not a tokenizer; expected .*a tokenizer.json, a tokenizer.model or a tekken.json$' bmc-convert --synth ./tiny.shape --tokenizer x -o d.bmc
    expect_error 1 '^bmc-convert: none/: .*No such file' bmc-convert --synth ./tiny.shape --tokenizer none/ -o d.bmc
}

@test "--tokenizer: eos ids are the source's, if it has any" {
    tiny_shape tiny.shape
    ok bmc-convert --synth ./tiny.shape --tokenizer "$FIXTURES/gguf/qwen2-like.gguf" -o a.bmc
    assert_equal "$(facts a.bmc | jq -c '.[1]')" "$(facts "$(model qwen2-like)" | jq -c '.[1]')"
    mkdir in
    cp "$(folder qwen2-like)/tokenizer.json" in
    echo '{"eos_token_id":[5,7]}' >in/generation_config.json
    ok bmc-convert --synth ./tiny.shape --tokenizer in -o a.bmc
    assert_equal "$(facts a.bmc | jq -c '.[1]')" '[5,7]'
}

@test "errors name the file that the tokenizer was read from" {
    tiny_shape tiny.shape
    echo '{"model":{"type":"WordLevel"}}' >words.json
    expect_error 1 '^bmc-convert: words.json: model "WordLevel"' bmc-convert --synth ./tiny.shape --tokenizer words.json -o a.bmc
}

# ---- weights ----

# first_weight BYTES: the first weight of ./in becomes those bytes (printf's format).
first_weight() {
    printf "$1" | patch in/model.safetensors "$(safetensors_at in/model.safetensors model.embed_tokens.weight)"
}

@test "weights out of range of f16: the message suggests another type" {
    cp -r "$(folder qwen2-like)" in
    first_weight '\x00\xb8\x88\x47'
    expect_error 1 'tensor "[^"]*" has weights that are too large for f16; use --type bf16 or f32$' bmc-convert in --type f16 -o a.bmc
    ok bmc-convert in -o a.bmc
    first_weight '\x00\x00\x80\x7f'
    expect_error 1 'has weights that are NaN or infinite as f16; the model is damaged$' bmc-convert in --type f16 -o b.bmc
}

@test "F64 tensors are refused with advice" {
    cp -r "$(folder qwen2-like)" in
    edit_safetensors in/model.safetensors '."model.embed_tokens.weight" |= (.dtype = "F64" | .shape[1] /= 2)'
    expect_error 1 'is of type F64, only F32, F16 and BF16 are supported; save the model in one of these \(in PyTorch: model.float\(\)\)$' bmc-convert in -o a.bmc
}

# ---- unsupported inputs ----

@test "folders in unsupported formats: contents and advice" {
    mkdir in
    lies() { # FILE REGEX
        : >"in/$1"
        expect_error 1 "^bmc-convert: in: contains $1, $2" bmc-convert in -o a.bmc
        rm "in/$1"
    }
    for config in no a; do
        lies m.Q4_K_M.gguf 'a GGUF file: name that file itself$'
        lies consolidated.00.pth 'a checkpoint in its authors.? own format: use the Hugging Face folder'
        lies consolidated.safetensors 'a checkpoint in its authors.? own format'
        lies tf_model.h5 'TensorFlow weights, which are not supported: save the model as safetensors'
        lies flax_model.msgpack 'Flax weights, which are not supported'
        lies decoder_model.onnx 'an ONNX graph, which is not supported'
        lies model-00001-of-00002.safetensors 'sharded weights without their index: add model.safetensors.index.json'
        lies pytorch_model-00001-of-00002.bin 'sharded weights without their index: add pytorch_model.bin.index.json'
        cp "$(folder qwen2-like)/config.json" in
    done
    expect_error 1 '^bmc-convert: in: contains neither model.safetensors nor pytorch_model.bin' bmc-convert in -o a.bmc
}

@test "unsupported files: their kind" {
    is() { expect_error 1 "^bmc-convert: x: $1\$" bmc-convert x -o a.bmc; }
    : >x
    is 'is empty'
    for magic in tjgg lmgg fmgg GGML; do
        printf '%s\1\0\0\0' $magic >x
        is 'is in a GGML format older than GGUF, .*use the model as GGUF or as a folder'
    done
    cp "$(folder qwen2-like)/model.safetensors" x
    is 'is a safetensors file: pass its folder, with config.json'
    echo text >x
    is 'expected a Hugging Face folder with config.json or a GGUF file'
    for name in nope.bmc nope.gguf a/nope.gguf; do
        expect_error 1 "^bmc-convert: $name: cannot open: No such file or directory\$" bmc-convert "$name" -o a.bmc
    done
}

# ---- messages ----

@test "numbers in messages are printed as they were written" {
    cp -rL "$FIXTURES/families/falcon-7b" in
    jq '.alibi = 0.7' "$FIXTURES/families/falcon-7b/config.json" >in/config.json
    expect_error 1 '"alibi" is 0.7, but the falcon family supports only false$' bmc-convert in -o a.bmc
    run --separate-stderr bmc-gen -q -m "$(model llama-bias)" --jsonl <<<'{"prompt":"a","n":0.7}'
    [[ $output == *'\"n\" is 0.7, '* ]]
}

@test "options of another converter, and of another program" {
    expect_error 2 'unknown option --outtype: here it is --type, whose types bmc-convert --help lists' bmc-convert in --outtype f16
    expect_error 2 'unknown option --allow-requantize: bmc-convert --type requantises without an option' bmc-convert in --allow-requantize
    expect_error 2 'unknown option --token-embedding-type: here it is --tensor-type, .embed.weight=TYPE.' bmc-convert in --token-embedding-type q8_0
    expect_error 2 'unknown option --keep-split: ' bmc-convert in --keep-split
    expect_error 2 'unknown option --outfile: here it is --output' bmc-convert in --outfile x
    expect_error 2 'unknown option --no-bos: it is --no-bos of bmc-convert' bmc-gen --no-bos -p x
}

@test "usage errors: an empty output name, a seed without --synth; an unknown shape" {
    expect_error 2 'output: the name is empty' bmc-convert "$(folder qwen2-like)" -o ''
    expect_error 2 'the name of the folder or file is empty' bmc-convert '' -o a.bmc
    expect_error 2 '--format goes with --info' bmc-convert --verify "$(model qwen2-like)" --format json
    expect_error 2 '--format goes with --info' bmc-convert "$(folder qwen2-like)" -o a.bmc --format json
    expect_error 2 '--seed goes with --synth' bmc-convert "$(folder qwen2-like)" --seed 0 -o a.bmc
    expect_error 1 'no shape "gpt2-lx" \(did you mean "gpt2-xl"\?\); known are ' bmc-convert --synth gpt2-lx -o a.bmc
    expect_error 1 'no shape "tinylama" \(did you mean "tinyllama-1.1b"\?\); known are ' bmc-convert --synth tinylama -o a.bmc
    expect_error 1 'no shape "nothing-like-it"; known are ' bmc-convert --synth nothing-like-it -o a.bmc
}

@test "the first file of a split model under another name is refused" {
    cp "$FIXTURES/gguf/llama-3-like-00001-of-00003.gguf" a.gguf
    expect_error 1 'a.gguf: is file 1 of 3 by its metadata, but not by its name; restore the original name' bmc-convert a.gguf -o a.bmc
}

@test "--info to a full disk reports the error" {
    run --separate-stderr bash -c '"$0" --info "$1" >/dev/full' "$BMC_BIN/bmc-convert" "$(model qwen2-like)"
    assert_equal "$status/$stderr" '1/bmc-convert: cannot write to standard output: No space left on device'
}

@test "--version of bmc-convert names all its libraries" {
    ok bmc-convert --version
    [[ $output == *'; libzip '[0-9]*'; protobuf-c '[0-9]* ]]
}

@test "an empty prompt starts from BOS if the model has one" {
    m=$(model llama-3-like)
    ok bmc-gen -q -m "$m" -p '' -n 3 --ids
    ids=$output
    ok bmc-gen -q -m "$m" --prompt-ids 403 -n 3 --ids
    assert_output "$ids"
    ok bmc-gen -q -m "$m" --jsonl <<<'{"prompt":"","n":3}'
    assert_equal "$(jq -r '.ids | join(" ")' <<<"$output")" "$ids"
    expect_error 1 'the prompt is empty' bmc-gen -q -m "$(model qwen2-like)" -p ''
}

@test "bmc-family(5) is set without a warning" {
    run --separate-stderr env MANWIDTH=80 man --warnings -l "$ROOT/man/bmc-family.5"
    assert_equal "$status/$stderr" 0/
}

@test "errors name tokenizer.model if it was read" {
    cp -r "$(folder llama-bias)" in
    rm in/tokenizer.json
    cp "$FIXTURES/sentencepiece/bpe.model" in/tokenizer.model
    expect_error 1 '^bmc-convert: in/tokenizer.model: token "k" has id 380, but the model.s embedding has 380 rows' bmc-convert in -o a.bmc
}
