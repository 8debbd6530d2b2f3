# Files and values given by mistake: the message says what was found and what to do.
load ../helper

setup_file() {
    for name in grimm grimm-draft; do model "$name" >/dev/null; done
}

pointer() { # FILE
    printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 5120000000\n' 0 >"$1"
}

lfs='is a Git LFS pointer, not the file itself, expected .*: run "git lfs pull" in its folder'

@test "a Git LFS pointer instead of a model or snapshot" {
    pointer p
    expect_error 1 "^bmc-gen: p: $lfs" bmc-gen -q -m p -p x
    expect_error 1 "p: $lfs" bmc-gen -q -m "$(model grimm)" --load-kv p
    expect_error 1 "p: $lfs" bmc-spec -q -m "$(model grimm)" -d p -p x
    expect_error 1 "^bmc-convert: p: $lfs" bmc-convert p -o out.bmc
    expect_error 1 "^bmc-convert: p: $lfs" bmc-convert --info p
    assert_folder p
}

@test "a Git LFS pointer instead of a file of a model folder" {
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

@test "a folder of quantised weights" {
    cp -r "$(folder llama-bias)" bad
    for method in eetq bitsandbytes; do
        jq ".quantization_config = {quant_method: \"$method\", bits: 4}" "$(folder llama-bias)/config.json" >bad/config.json
        expect_error 1 "bad: quantized weights \\($method, quantization_config.*convert the original model" bmc-convert bad -o out.bmc
    done
    # Weights of such folders often have other names, too.
    mv bad/model.safetensors bad/gptq_model-4bit.safetensors
    expect_error 1 'bad: quantized weights' bmc-convert bad -o out.bmc
    jq '.quantization_config = null' "$(folder llama-bias)/config.json" >bad/config.json
    mv bad/gptq_model-4bit.safetensors bad/model.safetensors
    ok bmc-convert bad -o out.bmc
}

@test "a Hugging Face model name instead of a folder" {
    expect_error 1 'meta-llama/Llama-3-8B: no such folder; models are not downloaded.*git clone https://huggingface.co/meta-llama/Llama-3-8B' bmc-convert meta-llama/Llama-3-8B -o out.bmc
    expect_error 1 '^bmc-convert: ./none: .*No such file' bmc-convert ./none -o out.bmc
    assert_folder
}

@test "a snapshot for -m, a model for --load-kv, and both for bmc-convert" {
    m=$(model grimm)
    bmc-gen -q -m "$m" -p 'Once upon a time' -n 1 --save-kv s.kv >/dev/null
    expect_error 1 's.kv: is a snapshot, expected a .bmc model: load it with --load-kv, together with its model \(-m\)' bmc-gen -q -m s.kv -p x
    expect_error 1 'is a .bmc model, expected a snapshot: give the model with -m' bmc-gen -q -m "$m" --load-kv "$m"
    expect_error 1 's.kv: is a snapshot, expected a Hugging Face folder or a GGUF file' bmc-convert s.kv -o out.bmc
    assert_folder s.kv
}

@test "an unknown shape: the known ones are listed" {
    expect_error 1 'no shape "llama-4"; known are .*bass-7.8b, .*bloom-176b, .*falcon-40b, .*, and others in the folder models.d/shapes; or give the path' bmc-convert --synth llama-4 -o out.bmc
    expect_error 1 'no shape "opt-6.7" .did you mean "opt-6.7b"' bmc-convert --synth opt-6.7 -o out.bmc
    expect_error 1 'no shape "./none.shape": there is no such file' bmc-convert --synth ./none.shape -o out.bmc
}

@test "a context that is too large" {
    expect_error 1 '-c 1025 exceeds the model.s context of 1024 tokens: give -c 1024 or less, or -c 0 for all of it' bmc-gen -q -m "$(model grimm)" -p x -c 1025
    expect_error 1 '-cd 4096 exceeds the draft model.s context of [0-9]+ tokens: give -cd [0-9]+ or less' bmc-spec -q -m "$(model grimm)" -d "$(model grimm-draft)" -p x -cd 4096
}

@test "-m with the name of a model on a hub: nothing is downloaded" {
    expect_error 1 '^bmc-gen: TinyLlama/TinyLlama: no such file; models are not downloaded: .*git clone https://huggingface.co/TinyLlama/TinyLlama,.* give its folder, or its GGUF file, with -m$' \
        bmc-gen -q -m TinyLlama/TinyLlama -p x
    expect_error 1 'hf:Tiny/Llama: no such file; .*https://huggingface.co/Tiny/Llama,' bmc-gen -q -m hf:Tiny/Llama -p x
    expect_error 1 '^bmc-gen: https://a.b/c.gguf: models are not downloaded: ' bmc-gen -q -m https://a.b/c.gguf -p x
    : >empty.gguf
    expect_error 1 '^bmc-gen: empty.gguf: not a .bmc model .is empty., nor a GGUF file' bmc-gen -q -m empty.gguf -p x
    expect_error 1 '^bmc-gen: none/x.bmc: cannot open: No such file' bmc-gen -q -m none/x.bmc -p x
}

@test "a file of the wrong kind: the error says what to do with it" {
    gen() { bmc-gen -q -m "$(model grimm)" "$@"; }
    expect_error 1 'is a .bmc model, expected a snapshot: give the model with -m$' bmc-gen -q -m "$(model grimm)" --load-kv "$(model grimm)" -p x
    printf 'GGUF\3\0\0\0' >x.gguf
    expect_error 1 '^bmc-gen: x.gguf: ends within its header at byte 8: truncated or damaged$' bmc-gen -q -m x.gguf -p x
    for name in - /dev/fd/5 >(cat); do
        expect_error 1 "^bmc-gen: $name: is not the name of a regular file, which a snapshot must be: give one, as story.kv$" \
            gen -p x -n 1 --save-kv "$name" 5>open
    done
    printf '\xff' >bad.txt
    expect_error 1 '^bmc-gen: bad.txt: the text is not valid UTF-8 at byte 0' gen --score -f bad.txt
    scored() { gen --score <bad.txt; }
    expect_error 1 '^bmc-gen: standard input: the text is not valid UTF-8 at byte 0' scored
}
