# Files and values that people give by mistake: the line says what it is, and what to do.
load helper

setup_file() {
    for name in grimm grimm-draft; do model "$name" >/dev/null; done
}

pointer() { # FILE
    printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 5120000000\n' 0 >"$1"
}

lfs='is a Git LFS pointer, not the file itself; .* is needed here: fetch that with "git lfs pull" in its folder'

@test "a Git LFS pointer in the place of a model or a snapshot" {
    pointer p
    expect_error 1 "^bmc-gen: p: $lfs" bmc-gen -q -m p -p x
    expect_error 1 "p: $lfs" bmc-gen -q -m "$(model grimm)" --load-kv p
    expect_error 1 "p: $lfs" bmc-spec -q -m "$(model grimm)" -d p -p x
    expect_error 1 "^bmc-convert: p: $lfs" bmc-convert p -o out.bmc
    expect_error 1 "^bmc-convert: p: $lfs" bmc-convert --info p
    assert_folder p
}

@test "a Git LFS pointer in the place of a file of a model's folder" {
    for name in model.safetensors tokenizer.json config.json generation_config.json; do
        rm -rf bad
        cp -r "$(folder llama-bias)" bad
        pointer bad/$name
        expect_error 1 "^bmc-convert: bad/$name: $lfs" bmc-convert bad -o out.bmc
    done
    rm -r bad
    cp -r "$(folder llama-bias)" bad
    pointer bad/tokenizer.json
    expect_error 1 "bad/tokenizer.json: $lfs" bmc-convert --synth opt-125m --tokenizer bad -o out.bmc
    rm -r bad
    cp -r "$(folder llama-3-like)" bad
    pointer bad/model-00002-of-00003.safetensors
    expect_error 1 "bad/model-00002-of-00003.safetensors: $lfs" bmc-convert bad -o out.bmc
    pointer bad/model.safetensors.index.json
    expect_error 1 "bad/model.safetensors.index.json: $lfs" bmc-convert bad -o out.bmc
}

@test "a folder of quantized weights" {
    cp -r "$(folder llama-bias)" bad
    for method in gptq awq; do
        jq ".quantization_config = {quant_method: \"$method\", bits: 4}" "$(folder llama-bias)/config.json" >bad/config.json
        expect_error 1 "bad: its weights are quantized \\($method, quantization_config.*convert the model that it was made from" bmc-convert bad -o out.bmc
    done
    # The weights of such folders often have other names, too.
    mv bad/model.safetensors bad/gptq_model-4bit.safetensors
    expect_error 1 'bad: its weights are quantized' bmc-convert bad -o out.bmc
    jq '.quantization_config = null' "$(folder llama-bias)/config.json" >bad/config.json
    mv bad/gptq_model-4bit.safetensors bad/model.safetensors
    ok bmc-convert bad -o out.bmc
}

@test "a name of the hub in the place of a folder" {
    expect_error 1 'meta-llama/Llama-3-8B: there is no such folder, and nothing is downloaded.*git clone https://huggingface.co/meta-llama/Llama-3-8B' bmc-convert meta-llama/Llama-3-8B -o out.bmc
    expect_error 1 '^bmc-convert: ./none: .*No such file' bmc-convert ./none -o out.bmc
    assert_folder
}

@test "a snapshot for -m, a model for --load-kv, and both for bmc-convert" {
    m=$(model grimm)
    bmc-gen -q -m "$m" -p 'Once upon a time' -n 1 --save-kv s.kv >/dev/null
    expect_error 1 's.kv: is a snapshot; a .bmc model is needed here: go on from it with --load-kv, and give its model with -m' bmc-gen -q -m s.kv -p x
    expect_error 1 'is a .bmc model; a snapshot is needed here: give the model with -m' bmc-gen -q -m "$m" --load-kv "$m"
    expect_error 1 's.kv: is a snapshot; a Hugging Face folder or a GGUF file is needed here' bmc-convert s.kv -o out.bmc
    expect_error 1 'is a .bmc model; a Hugging Face folder or a GGUF file is needed here: it is converted already' bmc-convert "$m" -o out.bmc
    assert_folder s.kv
}

@test "an unknown shape: those that are known" {
    expect_error 1 'no shape "llama-4"; there are: bloom-176b, .*opt-6.7b, .*tinyllama-draft-55m; or give the path' bmc-convert --synth llama-4 -o out.bmc
    expect_error 1 'no shape "./none.shape": there is no such file' bmc-convert --synth ./none.shape -o out.bmc
}

@test "a context that is too large" {
    expect_error 1 '-c 1025 is beyond the 1024 tokens of context .*: give -c 1024 or less, or -c 0 for all of it' bmc-gen -q -m "$(model grimm)" -p x -c 1025
    expect_error 1 '-cd 4096 is beyond the [0-9]+ tokens of context .* draft model .*: give -cd [0-9]+ or less' bmc-spec -q -m "$(model grimm)" -d "$(model grimm-draft)" -p x -cd 4096
}
