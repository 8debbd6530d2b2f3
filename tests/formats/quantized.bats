# Folders of GPTQ, AWQ, compressed-tensors, FP8 and BitNet: the values that their formats define, bit for bit; refusals.
load ../helper

# copy NAME: ./bad is the folder NAME, with files of its own.
copy() {
    rm -rf bad
    mkdir bad
    cp "$FIXTURES/quantized/$1"/{config.json,model.safetensors.index.json,*.safetensors} bad
    ln -s "$FIXTURES/families/tokenizer.json" bad
}

config() { # JQ-PROGRAM
    jq "$1" bad/config.json >edited
    mv edited bad/config.json
}

# renamed OLD NEW: tensors of ./bad, whose names have OLD, have NEW there.
renamed() {
    edit_safetensors bad/quantized.safetensors "with_entries(.key |= sub(\"$1\"; \"$2\"))"
    jq ".weight_map |= with_entries(.key |= sub(\"$1\"; \"$2\"))" bad/model.safetensors.index.json >edited
    mv edited bad/model.safetensors.index.json
}

refuses() {
    expect_error 1 "$1" bmc-convert bad -o out.bmc
    [ ! -e out.bmc ]
}

# has_expected MODEL NAME: the f32 model MODEL has the hash of each matrix's values.
has_expected() {
    local n=0 matrix hash header
    header=$(od -An -v -tx1 -N 65536 "$1" | tr -d ' \n')
    while read -r matrix hash; do
        [[ $header == *"$hash"* ]] || fail "$1: $matrix has other values"
        n=$((n + 1))
    done <"$FIXTURES/quantized/$2/expected.txt"
    [ $n -eq 7 ]
}

@test "values are those of the formats, converted to f32 at once or from the types that hold them" {
    n=0
    while read -r name types; do
        folder=$FIXTURES/quantized/$name
        bmc-convert -q "$folder" --type f32 -o f32.bmc
        has_expected f32.bmc "$name"
        bmc-convert -q "$folder" -o own.bmc
        assert_equal "$name $(bmc-convert --info --format json own.bmc | jq -r '[.rows[] | select(.name | test("layers.*(q|k|v|out|gate|up|down).weight")).type] | unique | join(",")')" "$name $types"
        bmc-convert -q own.bmc --type f32 -o again.bmc
        equal_files again.bmc f32.bmc
        bmc-convert -q -t 1 "$folder" -o one.bmc
        equal_files one.bmc own.bmc
        n=$((n + 1))
    done <<'END'
gptq-sym-32 q4_0
gptq-asym-128 q4_z128
gptq-v2-64 q4_z128,q4_z32
gptq-order f32
gptq-8bit q8_0
gptq-2bit q4_z128
awq-128 q4_z128
awq-32 q4_z32
int4-32 q4_0
int4-asym q4_z128,q4_z32
int8-packed q8_0,q8_channel
int8-channel q8_channel
fp8-block f32
fp8-powers bf16
fp8-tensor f32
fp8-channel f32
bitnet bf16,tq2_0
bitnet-inverse f32
END
    [ $n -eq 18 ]
}

@test "latent attention, and experts of different types: the model of the same values in f32" {
    for name in latent experts; do
        bmc-convert -q "$FIXTURES/quantized/$name" --type f32 -o quantized.bmc
        bmc-convert -q "$FIXTURES/quantized/$name-plain" --type f32 -o plain.bmc
        equal_files quantized.bmc plain.bmc
        bmc-convert -q "$FIXTURES/quantized/$name" -o own.bmc
        bmc-convert -q own.bmc --type f32 -o again.bmc
        equal_files again.bmc plain.bmc
    done
}

@test "notes say what becomes wide, and what is left out" {
    run -0 bmc-convert --dry-run "$FIXTURES/quantized/fp8-tensor"
    [[ $output == *'7 matrices of FP8 become f32, the narrowest type that holds the values exactly: 0.2 MB; --type bf16'* ]] || fail "$output"
    [[ $output == *'7 tensors that the language model does not use are left out: scales for quantised activations and KV entries (7)'* ]] || fail "$output"
    run -0 bmc-convert --dry-run "$FIXTURES/quantized/gptq-order"
    [[ $output == *'7 matrices of GPTQ become f32'* ]] || fail "$output"
    run -0 bmc-convert --dry-run "$FIXTURES/quantized/gptq-asym-128"
    [[ $output != *become* ]] || fail "$output"
    run -0 bmc-convert --dry-run "$FIXTURES/quantized/bitnet" -o out.gguf
    [[ $output == *'inputs of products are rounded to 8 bits per token, which a GGUF file does not say'* ]] || fail "$output"
    expect_error 1 'q4_z128, which GGUF lacks: choose another type with --type' bmc-convert "$FIXTURES/quantized/awq-128" -o out.gguf
}

@test "other types: quantised from the values; wider ones gain nothing" {
    for name in gptq-order fp8-block; do
        bmc-convert -q "$FIXTURES/quantized/$name" --type q8_0 -o q8_0.bmc
        bmc-convert -q "$FIXTURES/quantized/$name" --type f32 -o f32.bmc
        bmc-convert -q f32.bmc --type q8_0 -o again.bmc
        equal_files q8_0.bmc again.bmc
    done
    run -0 bmc-convert --dry-run "$FIXTURES/quantized/awq-128" --type q8_0
    [[ $output == *'7 matrices stay as in the source (q4_z128 instead of q8_0)'* ]] || fail "$output"
}

@test "variants that are not supported, and configurations that do not fit" {
    n=0
    while IFS='|' read -r name edit message; do
        copy "$name"
        config ".quantization_config$edit"
        refuses "$message"
        n=$((n + 1))
    done <<'END'
gptq-sym-32|.quant_method = "eetq"|bad: quantized weights .eetq, quantization_config in config.json. are not supported
gptq-sym-32|.quant_method = 4|quantized weights .of an unnamed kind
gptq-sym-32|.checkpoint_format = "marlin"|quantized weights .gptq, checkpoint_format "marlin" in config.json. are not supported
gptq-sym-32|.bits = 3|gptq of 3 bits. are not supported, only of 2, 4 and 8
gptq-sym-32|.bits = 0|gptq of 0 bits
gptq-sym-32|.bits = 8|scales" is F16.8..64.*expected F32, F16 or BF16 .4..64.
gptq-sym-32|.group_size = 0|group_size is not positive
gptq-sym-32|.group_size = -2|group_size is not positive
gptq-sym-32|.group_size = 16|down_proj.scales" is F16.8..64., which does not fit "model.layers.0.mlp.down_proj.qweight" .gptq.: expected F32, F16 or BF16 .16..64.
gptq-sym-32| = null|tensor "model.layers.0.mlp.down_proj.qweight" is of GPTQ or AWQ, but config.json has no quantization_config
awq-128|.bits = 8|awq of 8 bits. are not supported, only of 4
awq-128|.version = "gemv"|awq, version "gemv"
awq-128|.quant_method = "gptq"|expected
awq-128|.quant_method = "fp8"|says that the weights are quantized .fp8., but no tensor is
int4-32|.format = "marlin-24"|compressed-tensors, format "marlin-24"
fp8-block|.weight_block_size = [0, 80]|weight_scale_inv" is F32.*expected a scale of all
fp8-block|.weight_block_size = [128, 128]|weight_scale_inv" is F32.*expected a scale of all
fp8-block|.fmt = "e5m2"|fp8, fmt "e5m2"
bitnet|.quantization_mode = "online"|bitnet, quantization_mode "online"
bitnet|.use_rms_norm = true|bitnet with use_rms_norm
END
    [ $n -eq 20 ]
}

@test "tensors that are missing, damaged or of another shape" {
    copy gptq-order
    renamed q_proj.g_idx q_proj.other
    refuses 'q_proj.g_idx" is missing, although desc_act says'
    for part in qzeros scales; do
        copy gptq-asym-128
        renamed "k_proj.$part" "k_proj.other"
        refuses "k_proj.$part\" is missing, which belongs to .*k_proj.qweight"
    done
    copy gptq-order
    printf '\377\377\377\377' | patch bad/quantized.safetensors "$(safetensors_at bad/quantized.safetensors model.layers.0.mlp.down_proj.g_idx)"
    refuses 'down_proj.g_idx" says that column 0 is in group -1 of 8$'
    copy fp8-block
    renamed o_proj.weight_scale_inv o_proj.other
    refuses 'o_proj.weight_scale" is missing, which belongs to .*o_proj.weight"'
    copy fp8-block
    printf '\177' | patch bad/quantized.safetensors "$(safetensors_at bad/quantized.safetensors model.layers.0.mlp.down_proj.weight)"
    refuses 'down_proj.weight" has weights that are NaN or infinite as f32'
    copy gptq-sym-32
    printf '\377\177' | patch bad/quantized.safetensors "$(safetensors_at bad/quantized.safetensors model.layers.0.mlp.down_proj.scales)"
    refuses 'down_proj.weight" has weights that are NaN or infinite as q4_0'
    copy int4-32
    renamed weight_shape other
    refuses 'weight_shape" is missing, or is no pair of I64'
    for bytes in '\377\377\377\377\377\377\377\177' '\0\0\0\0\0\0\0\0' '\377\377\377\377\377\377\377\377'; do
        copy int4-32
        at=$(safetensors_at bad/quantized.safetensors model.layers.0.mlp.down_proj.weight_shape)
        printf "$bytes" | patch bad/quantized.safetensors $((at + 8))
        refuses 'down_proj.weight_packed" is I32.64..32., which does not fit'
    done
    copy awq-32
    renamed q_proj.qweight k_proj.weight
    refuses '.'
    copy gptq-sym-32
    edit_safetensors bad/quantized.safetensors '.["model.layers.0.mlp.up_proj.qweight"].shape |= [.[0] * .[1], 1]'
    refuses 'up_proj.qweight|up_proj.(scales|qzeros)" is'
    copy gptq-sym-32
    size=$(stat -c %s bad/quantized.safetensors)
    for cut in 100 $((size / 2)) $((size - 1)); do
        head -c "$cut" "$FIXTURES/quantized/gptq-sym-32/quantized.safetensors" >bad/quantized.safetensors
        refuses 'quantized.safetensors: .*(truncated|not a safetensors)'
    done
}

@test "biases of zeros that AutoGPTQ adds are left out, others are refused" {
    copy gptq-sym-32
    bmc-convert -q bad -o a.bmc
    printf '\1' | patch bad/quantized.safetensors "$(safetensors_at bad/quantized.safetensors model.layers.0.mlp.down_proj.bias)"
    refuses 'does not use tensor model.layers.0.mlp.down_proj.bias'
}
