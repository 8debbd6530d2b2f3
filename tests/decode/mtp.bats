# Layers for multi-token prediction in a model's checkpoint: a draft head in the model's file, for bmc-spec -d self.
load ../helper

# The target of make_heads.py, and its MTP head as the layer behind the last.
setup_file() {
    cd "$BATS_FILE_TMPDIR" || return 1
    mkdir plain mtp
    ln -s "$FIXTURES"/heads/target/* "$FIXTURES"/models/llama-3-like/tokenizer* plain/
    bmc-convert plain -o plain.bmc || return 1
    make_checkpoint mtp && bmc-convert mtp -o mtp.bmc || return 1
    jq -c '.cases[] | {ids: .ids[:9], n: 60}, {ids: .ids[:15], n: -1}' "$FIXTURES/heads/mtp.json" >in
    bmc-gen --no-spec -q -m plain.bmc --jsonl -c 200 -np 1 --stats plain.json <in | jq -c '[.ids, .finish]' >want
    [ "$(wc -l <want)" -eq 6 ]
}

setup() {
    mkdir "$BATS_TEST_TMPDIR/here" && cd "$BATS_TEST_TMPDIR/here" || return 1
    ln -s "$BATS_FILE_TMPDIR"/{*.bmc,in,want} .
}

names() { tail -c +9 "$1" | head -c "$(number_at "$1" 0 8)" | jq -c 'keys - ["__metadata__"]'; }

# A checkpoint of two files: that of the target, and the second one, of the MTP layer.
make_checkpoint() {
    local heads=$FIXTURES/heads
    mkdir -p "$1"
    ln -s "$FIXTURES"/models/llama-3-like/tokenizer* "$1"
    ln -s "$heads/target/model.safetensors" "$1/model-1.safetensors"
    cp "$heads/mtp/model.safetensors" "$1/model-2.safetensors"
    edit_safetensors "$1/model-2.safetensors" 'with_entries(.key |= "model.layers.7." + sub("^layers.0."; ""))'
    jq '.num_nextn_predict_layers = 1' "$heads/target/config.json" >"$1/config.json"
    write_index "$1"
}

write_index() { # FOLDER
    for file in "$1"/model-?.safetensors; do names "$file" | jq --arg file "$(basename "$file")" 'map({(.): $file}) | add'; done |
        jq -s '{weight_map: add}' >"$1/model.safetensors.index.json"
}

edit_json() { jq "$2" "$1" >edited.json && mv edited.json "$1"; }

info() { bmc-convert --info --format json "$1" | jq -r "$2"; }

# The MTP layer of MODEL proposes what CASES say, in at least so many checks.
proposals_match() { # MODEL CASES CHECKS
    run "$BMC_BUILD/tests/test_eagle" "$1" self "$2"
    assert_success
    [[ $output =~ ([0-9]+)' checks, 0 failed'$ ]]
    [ "${BASH_REMATCH[1]}" -ge "$3" ]
}

# Ids and logits of MODEL with its MTP layer are those of PLAIN without drafts, for prompts of CASES; more than DRAFTED tokens are drafted.
drafts_change_nothing() { # MODEL PLAIN CASES DRAFTED SEQUENCES
    jq -c '.cases[] | {ids: .ids[:9], n: 40}' "$3" >cases.in
    bmc-gen --no-spec -q -m "$2" --jsonl --ignore-eos -np 1 --stats one.json <cases.in | jq -c .ids >cases.want
    for options in "-k 3 -np $5 --kv paged:16" '--tree 12 -np 1'; do
        # shellcheck disable=SC2086 # words
        bmc-spec -q -m "$1" -d self --jsonl --ignore-eos --always --stats two.json $options <cases.in | jq -c .ids | diff - cases.want
        jq -e --slurpfile one one.json --argjson least "$4" '.logits_hash == $one[0].logits_hash and .drafted > $least' two.json || fail "$1 $options"
    done
}

@test "the model is the same, and proposals of its MTP layer match PyTorch" {
    assert_equal "$(info mtp.bmc .model_id)" "$(info plain.bmc .model_id)"
    refute [ "$(info mtp.bmc .file_id)" = "$(info plain.bmc .file_id)" ]
    assert_equal "$(info mtp.bmc '.draft, .draft_parameters, .parameters')" "$(printf 'mtp\n9888\n%s' "$(info plain.bmc .parameters)")"
    assert_equal "$(info plain.bmc .draft)" null
    assert_equal "$(info mtp.bmc '[.rows[] | select(.name | startswith("draft."))] | length')" 13
    ok bmc-convert --verify mtp.bmc
    assert_output "mtp.bmc: ok"
    assert_equal "$(bmc-gen --no-spec -q -m mtp.bmc --jsonl -c 200 <in | jq -c '[.ids, .finish]')" "$(cat want)"
    run "$BMC_BUILD/tests/test_eagle" mtp.bmc self "$FIXTURES/heads/mtp.json"
    assert_success
    [[ $output =~ ([0-9]+)' checks, 0 failed'$ ]]
    [ "${BASH_REMATCH[1]}" -ge 1000 ]
    # Written to a pipe, where hashes come first, the file is the same.
    bmc-convert "$BATS_FILE_TMPDIR/mtp" -o - | cmp - mtp.bmc
}

@test "-d self gives the ids and the logits of bmc-gen" {
    while read -r options; do
        # shellcheck disable=SC2086 # words
        bmc-spec -q -m mtp.bmc -d self --jsonl -c 200 --always --stats stats.json $options <in | jq -c '[.ids, .finish]' >got
        diff got want || fail "$options"
        jq -e --slurpfile plain "$BATS_FILE_TMPDIR/plain.json" '.logits_hash == $plain[0].logits_hash and .drafter == "mtp" and .drafted > 100' stats.json ||
            fail "$options: $(cat stats.json)"
    done <<'END'
-k 4 -np 1 --kv bmc:r=16
-k 8 -np 3 --kv paged:16
--tree 12 -np 3 --kv bmc:r=16
--tree 26 -np 1 --kv paged:16 --mlock
--tree 12 --dynamic -np 3
END
}

# A model of FAMILY with the MTP layer heads/mtp-NAME: folder `here`, here.bmc; EDIT of its config.json.
with_layer() { # FAMILY NAME EDIT
    rm -rf here
    mkdir here
    ln -s "$FIXTURES/families/tokenizer.json" here
    ln -s "$FIXTURES/families/$1/model.safetensors" here/model-1.safetensors
    ln -s "$FIXTURES/heads/mtp-$2/model.safetensors" here/model-2.safetensors
    jq "$3" "$FIXTURES/families/$1/config.json" >here/config.json
    write_index here
    bmc-convert here -o here.bmc
}

@test "MTP layers with latent attention and experts: proposals match transformers, ids those without them" {
    with_layer deepseek-v3-moe latent '.num_nextn_predict_layers = 1'
    assert_equal "$(info here.bmc '.draft, .experts')" "$(printf 'mtp\n8')"
    proposals_match here.bmc "$FIXTURES/heads/mtp-latent.json" 1000
    for type in auto q8_0; do
        bmc-convert here --type $type -o here.bmc
        drafts_change_nothing here.bmc here.bmc "$FIXTURES/heads/mtp-latent.json" 50 3
    done
}

@test "MTP layers with sparse attention and of Step 3.5: proposals match transformers, ids those without them" {
    while read -r family name draft edit; do
        with_layer $family $name ".num_nextn_predict_layers = 1 | $edit"
        assert_equal "$name $(info here.bmc .draft)" "$name $draft"
        proposals_match here.bmc "$FIXTURES/heads/mtp-$name.json" 1000
        drafts_change_nothing here.bmc here.bmc "$FIXTURES/heads/mtp-$name.json" 40 3
    done <<'END'
deepseek-v32 v32 mtp .
glm-moe-dsa glm-dsa mtp .
step35 step35 step-mtp .swiglu_limits_shared[4] = 0.5
END
    # Of lists with an entry per layer it needs its own; a second layer is not used.
    edit_json here/config.json '.swiglu_limits_shared = .swiglu_limits_shared[:4]'
    expect_error 1 'config.json: "swiglu_limits_shared" has 4 entries for 4 layers and 1 MTP layers; complete it, or set "num_nextn_predict_layers" to 0' \
        bmc-convert here -o x.bmc
}

@test "MTP layers of Qwen3.5 and Qwen3-Next: proposals match PyTorch, ids those without them" {
    for name in qwen35 qwen35-moe qwen3next; do
        with_layer $name $name .
        bmc-convert "$FIXTURES/families/$name" -o alone.bmc
        assert_equal "$name $(info here.bmc '.draft, .model_id')" "$name $(printf 'qwen-mtp\n%s' "$(info alone.bmc .model_id)")"
        assert_equal "$name $(info alone.bmc .draft)" "$name null"
        proposals_match here.bmc "$FIXTURES/heads/mtp-$name.json" 600
        drafts_change_nothing here.bmc alone.bmc "$FIXTURES/heads/mtp-$name.json" 40 2
    done
    # By the member of config.json: none. In a multimodal model that is inside text_config.
    edit_json here/config.json '.mtp_num_hidden_layers = 0'
    bmc-convert here -o none.bmc
    equal_files none.bmc alone.bmc
    edit_json here/config.json '.mtp_num_hidden_layers = 65'
    expect_error 1 'is 65, expected a number of MTP layers from 0 to 64$' bmc-convert here -o x.bmc
}

@test "copies of embedding and output head are stored once, others are the head's own" {
    make_checkpoint copies
    cp "$FIXTURES/heads/target/model.safetensors" copies/model-3.safetensors
    edit_safetensors copies/model-3.safetensors '{"model.layers.7.embed_tokens.weight": ."model.embed_tokens.weight",
        "model.layers.7.shared_head.head.weight": ."lm_head.weight"}'
    write_index copies
    bmc-convert copies -o copies.bmc
    equal_files copies.bmc mtp.bmc
    at=$(safetensors_at copies/model-3.safetensors model.layers.7.shared_head.head.weight)
    printf '\x01' | patch copies/model-3.safetensors "$at"
    bmc-convert copies -o own.bmc
    assert_equal "$(info own.bmc '.rows[] | select(.name == "draft.head.weight") | .shape')" 406x32
    assert_equal "$(info own.bmc '.rows[] | select(.name == "draft.embed.weight")')" ""
    bmc-spec -q -m own.bmc -d self --jsonl -c 200 --always <in | jq -c '[.ids, .finish]' >got
    diff got want
}

@test "of several MTP layers the first is converted; without their weights, none" {
    make_checkpoint two
    cp two/model-2.safetensors two/model-3.safetensors
    edit_safetensors two/model-3.safetensors 'with_entries(.key |= sub("layers.7"; "layers.8"))'
    write_index two
    expect_error 1 'does not use tensor model.layers.8.eh_proj.weight and 12 others' bmc-convert two -o two.bmc
    edit_json two/config.json '.num_nextn_predict_layers = 2'
    bmc-convert two -o two.bmc
    equal_files two.bmc mtp.bmc
    edit_json two/config.json '.mtp_num_hidden_layers = 2 | del(.num_nextn_predict_layers)'
    bmc-convert two -o two.bmc
    equal_files two.bmc mtp.bmc
    rm two/model-[23].safetensors
    write_index two
    bmc-convert two -o two.bmc
    equal_files two.bmc plain.bmc
    expect_error 1 'two.bmc: has no draft head: .*choose another drafter' bmc-spec -m two.bmc -d self -p x
    # A file of that name.
    expect_error 1 '\./self: ' bmc-spec -m mtp.bmc -d ./self -p x
    bmc-convert "$FIXTURES/heads/eagle" -o self
    bmc-spec -q -m two.bmc -d ./self -p x -n 20 --always --stats stats.json
    assert_equal "$(jq -r .drafter stats.json)" eagle
    rm self
    edit_json two/config.json '.mtp_num_hidden_layers = -1'
    expect_error 1 'two/config.json: "num_nextn.*" is -1, expected a number of MTP layers' bmc-convert two -o x.bmc
    make_checkpoint part
    edit_safetensors part/model-2.safetensors 'del(."model.layers.7.enorm.weight")'
    write_index part
    expect_error 1 'part: tensor "model.layers.7.enorm.weight" is missing' bmc-convert part -o x.bmc
}

@test "family files of MTP layers" {
    mkdir models
    cp -r "$ROOT/models.d/families" "$ROOT/models.d/chat" models
    convert() { bmc-convert --models-dir models "$BATS_FILE_TMPDIR/mtp" -o x.bmc; }
    with() { sed -i "s/^mtp .*/mtp $1/" models/families/llama.family; }
    with 'mtp'
    expect_error 1 'llama.family: invalid syntax: "mtp mtp"' convert
    with '..\/mtp from num_nextn_predict_layers'
    expect_error 1 'llama.family: invalid syntax: "mtp ../mtp' convert
    with 'none from num_nextn_predict_layers'
    expect_error 1 'models/families/none.family' convert
    with 'other from num_nextn_predict_layers'
    sed '$a like llama' models/families/mtp.family >models/families/other.family
    expect_error 1 'other.family: "like" has no place' convert
    # A line of the family of MTP layers replaces the model's.
    sed 's/^family.*/family other/; $a tensor layer.q.weight model.layers.%.self_attn.query.weight' models/families/mtp.family >models/families/other.family
    expect_error 1 'tensor "model.layers.7.self_attn.query.weight" is missing' convert
    sed -i 's/query.weight/q_proj.weight/' models/families/other.family
    convert
    assert_equal "$(info x.bmc '.draft, .model_id')" "$(printf 'other\n%s' "$(info mtp.bmc .model_id)")"
    # It is no family of models.
    expect_error 1 'mtp.family: an "architecture" line is missing' bmc-convert --family models/families/mtp.family "$BATS_FILE_TMPDIR/mtp" -o x.bmc
}

@test "types of the draft head's matrices" {
    bmc-convert "$BATS_FILE_TMPDIR/mtp" --type q8_0 --tensor-type 'draft.*=bf16' --tensor-type 'draft.layers.0.?.weight=f32' -o types.bmc
    assert_equal "$(info types.bmc '[.rows[] | select(.shape | test("x")) | select(.name | startswith("draft")) | .type] | group_by(.) | map("\(.[0]) \(length)") | join(", ")')" \
        "bf16 5, f32 3"
    assert_equal "$(info types.bmc .weight_type)" q8_0
    ok bmc-convert --verify types.bmc
    bmc-gen --no-spec -q -m types.bmc --prompt-ids "5 6 7" -n 40 --ids >want
    ok bmc-spec -q -m types.bmc -d self --prompt-ids "5 6 7" -n 40 --ids --always
    assert_output "$(cat want)"
    expect_error 1 'tensor-type draft.q: matches no tensor' bmc-convert "$BATS_FILE_TMPDIR/mtp" --tensor-type draft.q=f32 -o x.bmc
    expect_error 1 'matches no tensor' bmc-convert "$BATS_FILE_TMPDIR/plain" --tensor-type 'draft.*=f32' -o x.bmc
}

# le64 NUMBER: its 8 bytes.
le64() { bytes_le 8 "$1"; }

@test "a damaged draft head" {
    size=$(stat -Lc %s mtp.bmc)
    at=$(number_at mtp.bmc 192 8)
    [ $((at % 4096)) -eq 0 ]
    assert_equal "$(number_at mtp.bmc 200 8)" $((size - at))
    try() { # MESSAGE: of bad.bmc, for every program that opens it
        for command in "bmc-gen -m bad.bmc -p x" "bmc-spec -m bad.bmc -d self -p x" "bmc-convert --verify bad.bmc" "bmc-convert --info bad.bmc"; do
            # shellcheck disable=SC2086 # words
            expect_error 1 "$1" $command
        done
    }
    fresh() { cp mtp.bmc bad.bmc; }
    # change OFFSET NUMBER MESSAGE: 8 bytes of the model's header.
    change() {
        fresh
        le64 "$2" | patch bad.bmc "$1"
        reseal bad.bmc
        try "$3"
    }
    change 192 0 'draft head of [0-9]+ bytes at 0 does not end with the file'
    change 192 $((at + 64)) "draft head of $((size - at)) bytes at $((at + 64)) does not end with the file of $size bytes"
    change 192 4096 'does not end with the file'
    change 192 -4096 'at 18446744073709547520 does not end'
    change 200 $((size - at - 1)) 'does not end with the file'
    change 200 -1 'does not end with the file'
    change 208 7 'draft head of bad.bmc: does not match draft_hash'
    # A smaller or a larger image at another place.
    for by in -4096 4096; do
        fresh
        le64 $((at + by)) | patch bad.bmc 192
        le64 $((size - at - by)) | patch bad.bmc 200
        reseal bad.bmc
        try 'tensors end at byte [0-9]+, but its draft head begins at'
    done
    # Truncated, with and without a matching size.
    head -c $((size - 100)) mtp.bmc >bad.bmc
    try "has $((size - 100)) bytes, its header says $size: truncated"
    le64 $((size - 100)) | patch bad.bmc 24
    le64 $((size - at - 100)) | patch bad.bmc 200
    reseal bad.bmc
    try "draft head of bad.bmc: has $((size - at - 100)) bytes, its header says $((size - at)): truncated"
    head -c $((at + 100)) mtp.bmc >bad.bmc
    le64 $((at + 100)) | patch bad.bmc 24
    le64 100 | patch bad.bmc 200
    reseal bad.bmc
    try 'draft head of bad.bmc: not a .bmc model'
}

# embed IMAGE: bad.bmc becomes plain.bmc with this draft head.
embed() {
    local at end
    end=$(stat -Lc %s plain.bmc)
    at=$(((end + 4095) / 4096 * 4096))
    {
        cat plain.bmc
        head -c $((at - end)) /dev/zero
        cat "$1"
    } >bad.bmc
    le64 "$(stat -Lc %s bad.bmc)" | patch bad.bmc 24
    {
        le64 $at
        le64 "$(stat -Lc %s "$1")"
        tail -c +33 "$1" | head -c 32
    } | patch bad.bmc 192
    reseal bad.bmc
}

@test "other images in place of a draft head" {
    tail -c +$((1 + $(number_at mtp.bmc 192 8))) mtp.bmc >head.bmc
    embed head.bmc
    equal_files bad.bmc mtp.bmc
    ok bmc-convert --info head.bmc
    # A draft head in a draft head, a model, a head for another model, another version, text.
    embed mtp.bmc
    for command in "bmc-gen -m bad.bmc -p x" "bmc-convert --info bad.bmc" "bmc-convert --verify bad.bmc"; do
        # shellcheck disable=SC2086 # words
        expect_error 1 'draft head of bad.bmc: has a draft head itself: the file is damaged' $command
    done
    embed plain.bmc
    expect_error 1 'draft head of bad.bmc: is a model of its own' bmc-spec -m bad.bmc -d self -p x
    expect_error 1 'draft head of bad.bmc: is a model of its own' bmc-convert --verify bad.bmc
    embed "$(model grimm-eagle)"
    expect_error 1 'draft head of bad.bmc: is a draft head for a model with a hidden size of 256, the model bad.bmc has 32' bmc-spec -m bad.bmc -d self -p x
    ok bmc-gen -q -m bad.bmc --prompt-ids 5 -n 2 --ids
    cp head.bmc other.bmc
    printf '\x09' | patch other.bmc 8
    embed other.bmc
    expect_error 1 'draft head of bad.bmc: .bmc version 9 is unsupported' bmc-gen -m bad.bmc -p x
    head -c 9000 /dev/zero | tr '\0' 'a' >text
    embed text
    expect_error 1 'draft head of bad.bmc: not a .bmc model' bmc-gen -m bad.bmc -p x
    # One byte of a weight, and of the gap before the draft head.
    cp mtp.bmc bad.bmc
    printf '\x7f' | patch bad.bmc "$(info mtp.bmc '.rows[] | select(.name == "draft.fusion.weight") | .offset')"
    expect_error 1 'draft head of bad.bmc: tensor "fusion.weight" has hash' bmc-convert --verify bad.bmc
    cp mtp.bmc bad.bmc
    printf '\x01' | patch bad.bmc $(($(number_at mtp.bmc 192 8) - 1))
    expect_error 1 'before the draft head, is not zero' bmc-convert --verify bad.bmc
}
