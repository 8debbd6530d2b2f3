# What a new user gives bmc-convert first: added tokens, tokenizers alone, values that are no weights, and what it says
# about everything else.
load helper

setup_file() { for name in qwen2-like llama-bias; do model "$name" >/dev/null; done; }

# ---- tokenizers ----

@test "added tokens that are letters of the byte alphabet are the text that they are" {
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

@test "--tokenizer: a folder of nothing else, the files themselves, and a vocabulary that is larger than the shape's" {
    tiny_shape tiny.shape
    mkdir in
    cp "$(folder qwen2-like)/tokenizer.json" in
    ok bmc-convert --synth ./tiny.shape --tokenizer in -o a.bmc
    assert_equal "$(facts a.bmc)" '[403,[0],403]'
    ok bmc-convert --synth ./tiny.shape --tokenizer in/tokenizer.json -o b.bmc
    cmp a.bmc b.bmc
    ok bmc-convert --synth ./tiny.shape --tokenizer "$FIXTURES/sentencepiece/bpe.model" -o c.bmc
    echo text >x
    expect_error 1 '^bmc-convert: x: is no tokenizer: .*a tokenizer.json or a tokenizer.model is needed here$' bmc-convert --synth ./tiny.shape --tokenizer x -o d.bmc
    expect_error 1 '^bmc-convert: none/: .*No such file' bmc-convert --synth ./tiny.shape --tokenizer none/ -o d.bmc
}

@test "--tokenizer: the ids that end a text are the source's, where it says them" {
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
    echo '{"model":{"type":"WordPiece"}}' >words.json
    expect_error 1 '^bmc-convert: words.json: model "WordPiece"' bmc-convert --synth ./tiny.shape --tokenizer words.json -o a.bmc
}

# ---- weights ----

# first_weight BYTES: the first weight of ./in becomes those bytes (printf's format).
first_weight() {
    printf "$1" | patch in/model.safetensors "$(safetensors_at in/model.safetensors model.embed_tokens.weight)"
}

@test "a weight beyond f16 is no damage: another type is named" {
    cp -r "$(folder qwen2-like)" in
    first_weight '\x00\xb8\x88\x47'
    expect_error 1 'tensor "[^"]*" has weights that are too large for f16: take --type bf16 or f32$' bmc-convert in --type f16 -o a.bmc
    ok bmc-convert in -o a.bmc
    first_weight '\x00\x00\x80\x7f'
    expect_error 1 'has weights that are NaN or infinite as f16; the model is damaged$' bmc-convert in --type f16 -o b.bmc
}

@test "a tensor of doubles is refused with what to do" {
    cp -r "$(folder qwen2-like)" in
    edit_safetensors in/model.safetensors '."model.embed_tokens.weight" |= (.dtype = "F64" | .shape[1] /= 2)'
    expect_error 1 'is F64; F32, F16 and BF16 can be converted: save the model in one of those \(in PyTorch, model.float\(\) makes F32\)$' bmc-convert in -o a.bmc
}
