# PyTorch checkpoints: the same model as from safetensors, whatever the storages; invalid and unsupported checkpoints.
load ../helper

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
    ok bmc-convert -q "${@:3}" "$1" -o torch.bmc
    ok bmc-convert "${@:3}" "$(folder "$2")" -o safetensors.bmc
    equal_files torch.bmc safetensors.bmc
    rm -r torch.bmc safetensors.bmc "$1"
}

# refuses REGEX: ./bad cannot be converted, and nothing is left.
refuses() {
    expect_error 1 "$1" bmc-convert bad -o out.bmc
    [ ! -e out.bmc ]
}

@test "one file with f16 parameters and buffers: the model of the safetensors file, byte for byte" {
    same_model llama-bias llama-bias
    same_model llama-bias llama-bias --type bf16
}

@test "transposed matrices, shared storages, strided vectors" {
    same_model llama-bias-strided llama-bias --type f32
    same_model llama-bias-strided llama-bias --type f32 -t 1
}

@test "sharded files with an index" { same_model llama-3-like llama-3-like; }

@test "safetensors files have precedence" {
    checkpoint llama-bias llama-bias
    cp "$(folder llama-bias)/model.safetensors" llama-bias
    echo nonsense >llama-bias/pytorch_model.bin
    ok bmc-convert -q llama-bias -o out.bmc
    equal_files out.bmc "$(model llama-bias)"
}

@test "a missing shard, and one with the tensors of another" {
    checkpoint llama-3-like llama-3-like
    mv llama-3-like bad
    mv bad/pytorch_model-00002-of-00002.bin other
    refuses 'bad/pytorch_model-00002-of-00002.bin: cannot open'
    cp bad/pytorch_model-00001-of-00002.bin bad/pytorch_model-00002-of-00002.bin
    refuses 'bad: tensor "model[^"]*" is missing from the weights$'
}

@test "checkpoints other than a state_dict() are refused with the globals they use" {
    checkpoint llama-bias llama-bias
    mv llama-bias bad
    cp "$FIXTURES/torch/module/pytorch_model.bin" bad
    refuses 'bad/pytorch_model.bin: the pickle uses "torch.nn.modules.linear.Linear", .*only the model.s state_dict\(\)$'
    cp "$FIXTURES/torch/legacy/pytorch_model.bin" bad
    refuses "bad/pytorch_model.bin: the PyTorch format before version 1.6 is not supported; .*torch.save\\(torch.load\\("
    head -c 700 /dev/zero >bad/pytorch_model.bin
    printf ustar | patch bad/pytorch_model.bin 257
    refuses "the PyTorch format before version 1.6 is not supported"
    printf 'version https://git-lfs.github.com/spec/v1\n' >bad/pytorch_model.bin
    refuses 'is a Git LFS pointer.*git lfs pull'
    cp "$(folder llama-bias)/model.safetensors" bad/pytorch_model.bin
    refuses 'not a PyTorch checkpoint \(a zip archive\)$'
    : >bad/pytorch_model.bin
    refuses 'not a PyTorch checkpoint'
    assert_folder bad
}

@test "a truncated or modified checkpoint is refused or gives the same model" {
    checkpoint llama-bias llama-bias
    mv llama-bias bad
    size=$(stat -c %s bad/pytorch_model.bin)
    for cut in 4 30 1000 $((size / 2)) $((size - 1)); do
        head -c "$cut" "$FIXTURES/torch/llama-bias/pytorch_model.bin" >bad/pytorch_model.bin
        refuses 'bad/pytorch_model.bin: .*(truncated|damaged)'
    done
    # Bytes 64 to 100 are in the pickle, whose checksum is verified.
    cp "$FIXTURES/torch/llama-bias/pytorch_model.bin" bad
    flip bad/pytorch_model.bin 90
    refuses 'pytorch_model/data.pkl" in the zip archive cannot be read \(CRC error\)'
}

@test "a checkpoint instead of its folder" {
    expect_error 1 'is a PyTorch checkpoint, expected .*pass its folder' \
        bmc-convert "$FIXTURES/torch/module/pytorch_model.bin" -o out.bmc
    assert_folder
}

@test "a folder with only a LoRA adapter" {
    mkdir bad
    echo '{}' >bad/adapter_config.json
    : >bad/adapter_model.safetensors
    refuses 'bad: contains only a LoRA adapter \(adapter_model.safetensors\).*--lora'
    cp "$(folder llama-bias)"/*.json bad
    refuses 'bad: contains only a LoRA adapter'
    rm bad/adapter_*
    : >bad/adapter_model.bin
    refuses 'bad: contains only a LoRA adapter \(adapter_model.bin\)'
    cp "$(folder llama-bias)/model.safetensors" bad # the model is there, too
    ok bmc-convert bad -o out.bmc
}

@test "GPTQ tensors without a quantization_config" {
    cp -r "$(folder llama-bias)" bad
    edit_safetensors bad/model.safetensors 'with_entries(.key |= sub("q_proj.weight"; "q_proj.qweight"))'
    refuses 'bad: tensor "model.layers.0.self_attn.q_proj.qweight" is of GPTQ or AWQ, but config.json has no quantization_config.*: add it$'
}

@test "out of memory: one sentence, and no output" {
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
