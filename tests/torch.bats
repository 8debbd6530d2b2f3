# PyTorch checkpoints: the same model as from safetensors, whatever its storages look like; what is refused, and how.
load helper

# checkpoint NAME OF: ./NAME, a folder with the configuration and tokenizer of a model, and a checkpoint's weights.
checkpoint() {
    mkdir -p "$1"
    cp "$(folder "$2")"/*.json "$1"
    rm -f "$1/model.safetensors.index.json"
    cp "$FIXTURES/torch/$1"/* "$1"
}

# same_model NAME OF [OPTION..]: the checkpoint is converted to the bytes that the model's safetensors are converted to.
same_model() {
    checkpoint "$1" "$2"
    ok bmc-convert "${@:3}" "$1" -o torch.bmc
    ok bmc-convert "${@:3}" "$(folder "$2")" -o safetensors.bmc
    equal_files torch.bmc safetensors.bmc
    rm -r torch.bmc safetensors.bmc "$1"
}

# refuses REGEX: ./bad cannot be converted, and nothing is left.
refuses() {
    expect_error 1 "$1" bmc-convert bad -o out.bmc
    [ ! -e out.bmc ]
}

@test "one file, of f16 parameters and buffers that are no weights: the model of the safetensors file, byte for byte" {
    same_model llama-bias llama-bias
    same_model llama-bias llama-bias --type bf16
}

@test "turned matrices, parts of shared storages, every second element" {
    same_model llama-bias-strided llama-bias --type f32
    same_model llama-bias-strided llama-bias --type f32 -t 1
}

@test "files and their index" { same_model llama-3-like llama-3-like; }

@test "safetensors files are read where both are there" {
    checkpoint llama-bias llama-bias
    cp "$(folder llama-bias)/model.safetensors" llama-bias
    echo nonsense >llama-bias/pytorch_model.bin
    ok bmc-convert llama-bias -o out.bmc
    equal_files out.bmc "$(model llama-bias)"
}

@test "a shard that is missing, and one that is twice there under two names" {
    checkpoint llama-3-like llama-3-like
    mv llama-3-like bad
    mv bad/pytorch_model-00002-of-00002.bin other
    refuses 'bad/pytorch_model-00002-of-00002.bin: cannot open'
    cp bad/pytorch_model-00001-of-00002.bin bad/pytorch_model-00002-of-00002.bin
    refuses 'bad: tensor ".*" is in two of its weight files'
}

@test "what is no state_dict() of weights is refused with what it asks for" {
    checkpoint llama-bias llama-bias
    mv llama-bias bad
    cp "$FIXTURES/torch/module/pytorch_model.bin" bad
    refuses 'bad/pytorch_model.bin: its pickle asks for "torch.nn.modules.linear.Linear", .*state_dict\(\) alone$'
    cp "$FIXTURES/torch/legacy/pytorch_model.bin" bad
    refuses "bad/pytorch_model.bin: is of PyTorch's old format, .*torch.save\\(torch.load\\("
    head -c 700 /dev/zero >bad/pytorch_model.bin
    printf ustar | patch bad/pytorch_model.bin 257
    refuses "is of PyTorch's old format"
    printf 'version https://git-lfs.github.com/spec/v1\n' >bad/pytorch_model.bin
    refuses 'is a Git LFS pointer.*git lfs pull'
    cp "$(folder llama-bias)/model.safetensors" bad/pytorch_model.bin
    refuses 'is no PyTorch checkpoint: those are zip archives$'
    : >bad/pytorch_model.bin
    refuses 'is no PyTorch checkpoint'
    assert_folder bad
}

@test "a checkpoint that was cut, or has a byte changed, is refused or the same" {
    checkpoint llama-bias llama-bias
    mv llama-bias bad
    size=$(stat -c %s bad/pytorch_model.bin)
    for cut in 4 30 1000 $((size / 2)) $((size - 1)); do
        head -c "$cut" "$FIXTURES/torch/llama-bias/pytorch_model.bin" >bad/pytorch_model.bin
        refuses 'bad/pytorch_model.bin: .*(truncated|damaged)'
    done
    # Bytes 64 to 100 are the pickle's, whose check sum is compared.
    cp "$FIXTURES/torch/llama-bias/pytorch_model.bin" bad
    flip bad/pytorch_model.bin 90
    refuses 'pytorch_model/data.pkl" in its zip archive cannot be read \(CRC error\)'
}

@test "a checkpoint itself is given: its folder is asked for" {
    expect_error 1 'is a PyTorch checkpoint; .*give the folder that it lies in' \
        bmc-convert "$FIXTURES/torch/module/pytorch_model.bin" -o out.bmc
    assert_folder
}

@test "a folder that holds only an adapter" {
    mkdir bad
    echo '{}' >bad/adapter_config.json
    : >bad/adapter_model.safetensors
    refuses 'bad: holds only an adapter \(LoRA, adapter_model.safetensors\).*merge'
    cp "$(folder llama-bias)"/*.json bad
    refuses 'bad: holds only an adapter'
    rm bad/adapter_*
    : >bad/adapter_model.bin
    refuses 'bad: holds only an adapter \(LoRA, adapter_model.bin\)'
    cp "$(folder llama-bias)/model.safetensors" bad # the model is there, too
    ok bmc-convert bad -o out.bmc
}

@test "tensors of GPTQ without a word of it in config.json" {
    cp -r "$(folder llama-bias)" bad
    edit_safetensors bad/model.safetensors 'with_entries(.key |= sub("q_proj.weight"; "q_proj.qweight"))'
    refuses 'bad: its weights are quantized \(GPTQ or AWQ, model.layers.0.self_attn.q_proj.qweight\), .*F16 or BF16$'
}

@test "memory runs out: one sentence, and no output" {
    checkpoint llama-bias-strided llama-bias
    [[ $BMC_BUILD != *sanitize* ]] || skip "the sanitizers have their own allocator"
    run "$BMC_BUILD/inject" -s 211 -o 3 "$BMC_BUILD/inject.so" memory "$BMC_BIN/bmc-convert" ../llama-bias-strided -o m.bmc
    [ "$status" -eq 0 ] || fail "$output"
    [[ $output =~ ^memory:\ [1-9][0-9]*\ calls,\ [1-9] ]] || fail "nothing failed: $output"
}

@test "hostile pickles and archives" {
    run "$BMC_BUILD/tests/test_torch"
    [ "$status" -eq 0 ] || fail "$output"
    [[ $output =~ ([0-9]+)' checks, 0 failed'$ ]]
}
