# Embeddings (--embed): against transformers' hidden states (tests/fixtures/make_embeddings.py), batches, input and errors.
load ../helper

setup_file() { model grimm >/dev/null; }
embed() { bmc-gen -q -m "$(model grimm)" --embed "$@"; }

@test "embeddings equal pooled hidden states of transformers" {
    for models in families:embeddings:15 encoders:encoders:39; do
        IFS=: read -r folder want n <<<"$models"
        compare_embeddings "$folder" "$FIXTURES/$want.json" "$n"
    done
}

compare_embeddings() { # FOLDER EXPECTED NUMBER
    want=$2
    [ "$(jq '[.[] | select(.ids)] | length' "$want")" -eq "$3" ]
    for name in $(jq -r '[.[].model] | unique | .[]' "$want"); do
        bmc-convert "$FIXTURES/$1/$name" -o $name.bmc >/dev/null
        jq -c --arg m $name '.[] | select(.model == $m and .ids) | {ids}' "$want" >in
        for pooling in mean last cls raw_mean; do
            how="--pooling $pooling"
            [ $pooling != raw_mean ] || how="--pooling mean --no-normalize"
            # shellcheck disable=SC2086
            ok bmc-gen -q -m $name.bmc --embed --jsonl -f in --precision f32 $how
            jq -se --arg m $name --arg p $pooling --slurpfile want "$want" '[.[].embedding] as $got | [$want[0][] | select(.model == $m and .ids)[$p]] as $want | ($got | length) == 3 and
                all(range(3) as $i | ($got[$i] | length) == ($want[$i] | length) and all(range($want[$i] | length) as $j | [$i, $j]; . as [$i, $j] |
                    ($got[$i][$j] - $want[$i][$j] | fabs) <= 1e-5 * ([1, ($want[$i][$j] | fabs)] | max)); .)' <<<"$output" >/dev/null || fail "$name $pooling: ${output:0:500}"
        done
    done
}

@test "an embedding does not depend on batch, chunk, threads or cache policy" {
    jq -nc 'range(9) as $i | {id: $i, ids: [range(1 + 13 * $i) | 5 + (. * 7 + $i) % 300]}' >in
    for pooling in mean last; do
        ok embed --jsonl -f in -np 1 --pooling $pooling
        want=$output
        for how in "-np 4 --chunk 7" "-np 9 --kv paged -t 1" "-np 3 --kv shift:S=200 --unordered"; do
            # shellcheck disable=SC2086
            ok embed --jsonl -f in --pooling $pooling $how
            assert_equal "$(sort <<<"$output")" "$(sort <<<"$want")"
        done
    done
    jq -se 'length == 9 and all(.[]; (.embedding | map(. * .) | add) as $n | $n > 0.99999 and $n < 1.00001)' <<<"$want" >/dev/null || fail "${want:0:300}"
}

@test "an encoder computes a text in one pass, whatever the chunk, batch and policy" {
    bmc-convert "$FIXTURES/encoders/modernbert" -o a.bmc >/dev/null
    jq -nc 'range(7) as $i | {id: $i, ids: [range(1 + 9 * $i) | 5 + (. * 7 + $i) % 80]}' >in
    ok bmc-gen -q -m a.bmc --embed --jsonl -f in -np 1
    want=$output
    for how in "-np 4 --chunk 7" "-np 7 --kv paged -t 1" "-np 3 --kv segment" "-np 2 --kv iterative"; do
        # shellcheck disable=SC2086
        ok bmc-gen -q -m a.bmc --embed --jsonl -f in $how
        assert_equal "$output" "$want"
    done
    expect_error 1 'a.bmc: an encoder computes a text in one pass, and this cache has room for [0-9]+ tokens of one: choose another --kv' \
        bmc-gen -m a.bmc --embed -p x --kv shift:S=20
    jq '. + {use_cache: true, is_decoder: true}' "$FIXTURES/encoders/bert/config.json" >config.json
    mkdir decoder
    cp -L "$FIXTURES"/encoders/bert/*.safetensors "$FIXTURES/encoders/bert/tokenizer.json" config.json decoder
    expect_error 1 'is_decoder" is true, but the bert family supports only false' bmc-convert decoder -o b.bmc
}

# The references' tokens are those of the tokenizers library; pooling, dense layers and unit length are declared. llama.cpp's converter made
# the GGUF files of the folders.
@test "texts: tokens, and the embedding that the model declares; the same of folders and GGUF files, one by one and in batches" {
    want=$FIXTURES/encoders.json
    [ "$(jq '[.[] | select(.text and .prompt == null).model] | unique | length' "$want")" -eq 12 ]
    found=0
    for name in $(jq -r '[.[] | select(.text).model] | unique | .[]' "$want"); do
        jq -c --arg m $name '.[] | select(.model == $m and .prompt == null) | if .ids then {ids} else {text} end' "$want" >in
        bmc-convert -q "$FIXTURES/encoders/$name" -o a.bmc
        ok bmc-gen -q -m a.bmc --embed --jsonl -f in --precision f32 -np 1 --embed-prompt ""
        jq -se --arg m $name --slurpfile want "$want" '[.[] | select(.index >= 3)] as $got | [$want[0][] | select(.model == $m and .text and .prompt == null)] as $want |
            [$got[].tokens] == [$want[].tokens] and ($got | length) == 2 and all(range(2) as $i | range($want[$i].embedding | length) as $j | [$i, $j];
                . as [$i, $j] | ($got[$i].embedding[$j] - $want[$i].embedding[$j] | fabs) <= 1e-5)' <<<"$output" >/dev/null || fail "$name: ${output:0:500}"
        folder=$output
        file=$FIXTURES/encoders/$name.gguf
        [ -e "$file" ] || continue
        found=$((found + 1))
        bmc-convert -q "$file" -o b.bmc
        ok bmc-gen -q -m b.bmc --embed --jsonl -f in --precision f32 -np 5
        assert_equal "$output" "$folder"
    done
    [ $found -eq 9 ]
}

@test "prompts of the model precede texts, by name or as it declares; one that it lacks is refused" {
    want=$FIXTURES/encoders.json
    [ "$(jq -c '[.[] | select(.prompt) | .model + "/" + .prompt] | unique | length' "$want")" -eq 6 ]
    for pair in $(jq -r '[.[] | select(.prompt) | .model + "/" + .prompt] | unique | .[]' "$want"); do
        name=${pair%/*} prompt=${pair#*/}
        run_plain bmc-convert "$FIXTURES/encoders/$name" -o $name.bmc
        [[ $stderr == *"has prompts ("*"bmc-gen --embed-prompt NAME adds one"* ]] || fail "$stderr"
        jq -c --arg m $name --arg p $prompt '.[] | select(.model == $m and .prompt == $p) | {text}' "$want" >in
        ok bmc-gen -q -m $name.bmc --embed --jsonl -f in --precision f32 --embed-prompt $prompt
        jq -se --arg m $name --arg p $prompt --slurpfile want "$want" '. as $got | [$want[0][] | select(.model == $m and .prompt == $p)] as $want | [$got[].tokens] == [$want[].tokens] and
            all(range(2) as $i | range($want[$i].embedding | length) as $j | [$i, $j]; . as [$i, $j] | ($got[$i].embedding[$j] - $want[$i].embedding[$j] | fabs) <= 1e-5)' <<<"$output" >/dev/null ||
            fail "$pair: ${output:0:500}"
    done
    ok bmc-gen -q -m nomic-bert.bmc --embed --precision f32 -p "The king"
    default=$output
    ok bmc-gen -q -m nomic-bert.bmc --embed --precision f32 -p "The king" --embed-prompt search_document
    assert_equal "$output" "$default"
    ok bmc-convert --info --format json nomic-bert.bmc
    assert_equal "$(jq -c .prompts <<<"$output")" '{"":"search_document: ","search_document":"search_document: ","search_query":"search_query: "}'
    expect_error 1 'nomic-bert.bmc: has no prompt "query" for embeddings; its prompts are search_query, search_document' bmc-gen -m nomic-bert.bmc --embed --embed-prompt query -p x
    expect_error 1 'declares no prompts for embeddings: put "query" into the texts' bmc-gen -m "$(model grimm)" --embed --embed-prompt query -p x
    expect_error 2 'embed-prompt' bmc-gen -m nomic-bert.bmc -p x --embed-prompt query
}

@test "BERT's words in GGUF files are folded unless the file says that they are not; modules that cannot be read are refused" {
    bmc-convert -q "$FIXTURES/encoders/bert.gguf" -o a.bmc
    sed 's/tokenizer.ggml.normalizer.lowercase/tokenizer.ggml.normalizer.nowercase/' "$FIXTURES/encoders/bert.gguf" >other.gguf
    bmc-convert -q other.gguf -o b.bmc
    for model in a b; do # lower case is the default
        ok bmc-gen -q -m $model.bmc --tokenize --format jsonl -p "KING Ä"
        assert_equal "$(jq -c '.pieces | length' <<<"$output")" 4
    done
    at=$(grep -abo tokenizer.ggml.normalizer.lowercase "$FIXTURES/encoders/bert.gguf" | cut -d: -f1)
    { head -c $((at + 35 + 4)) "$FIXTURES/encoders/bert.gguf"; printf '\0'; tail -c +$((at + 35 + 6)) "$FIXTURES/encoders/bert.gguf"; } >cased.gguf
    bmc-convert -q cased.gguf -o c.bmc
    ok bmc-gen -q -m c.bmc --tokenize --format jsonl -p "KING king"
    assert_equal "$(jq -c .pieces <<<"$output")" '["[CLS]","[UNK]"," king","[SEP]"]'
    cp -rL "$FIXTURES/encoders/gemma3-encoder" folder
    rm folder/3_Dense/model.safetensors
    expect_error 1 'the folder 3_Dense, a module of modules.json, has no model.safetensors' bmc-convert folder -o a.bmc
    jq '. + [.[3]]' "$FIXTURES/encoders/gemma3-encoder/modules.json" >folder/modules.json
    run bmc-convert folder -o a.bmc
    [[ $output == *'not supported (a dense layer that cannot be read, a third one'* ]] || fail "$output"
}

@test "lines of text, JSON lines, -p: the same embeddings" {
    printf 'The king\n\nOnce upon a time' >text
    ok embed -f text --stats stats.json
    want=$(jq -c '[.index, .tokens, .embedding]' <<<"$output")
    assert_equal "$(wc -l <<<"$want")" 2
    jq -e '.sequences == 2 and .prefill_tokens == 6' stats.json >/dev/null || fail "$(<stats.json)"
    ok embed -p "$(<text)"
    assert_equal "$(jq -c '[.index, .tokens, .embedding]' <<<"$output")" "$want"
    ok embed --jsonl -f <(printf '{"text": "The king"}\n{"id": "b", "prompt": "Once upon a time"}\n')
    assert_equal "$(jq -c '[.index, .tokens, .embedding]' <<<"$output")" "$want"
    assert_equal "$(jq -c '[.id, .error]' <<<"$output" | xargs)" '[null,null] [b,null]'
}

@test "what cannot be embedded is an error of its line" {
    printf '%s\n' '{"ids": [5, 6]}' '{"ids": []}' '{"ids": [99999]}' '{"text": 3}' '{"txt": "a"}' "{\"ids\": [$(seq -s , 5 50)]}" '{"ids": [7]}' >in
    run --separate-stderr embed --jsonl -f in -c 40
    [ "$status" -eq 1 ]
    assert_equal "$stderr" "bmc-gen: 5 of 7 lines failed: their results say why"
    assert_equal "$(jq -r '.error // "-"' <<<"$output" | cut -c 1-46)" "-
line 2: the text is empty
line 3: id 99999 is outside the vocabulary of 
line 4: \"text\" is an integer, a string is expe
$(jq -r 'select(.index == 4).error' <<<"$output" | cut -c 1-46)
line 6: the text has 46 tokens, the context ho
-"
    expect_error 2 'embed excludes other jobs' embed --score </dev/null
    expect_error 2 '--pooling goes with --embed' bmc-gen -p x --pooling last
    expect_error 2 'pooling' embed --pooling max </dev/null
}

@test "a model without LM head is converted, for embeddings; nothing else runs with it" {
    # The weights of qwen2-like have no LM head, since it is tied.
    for kind in base untied; do
        cp -r "$FIXTURES/models/qwen2-like" $kind
        chmod -R u+w $kind
    done
    jq '.architectures = ["Qwen2Model"]' "$FIXTURES/models/qwen2-like/config.json" >base/config.json
    jq '.tie_word_embeddings = false' "$FIXTURES/models/qwen2-like/config.json" >untied/config.json
    want=$(bmc-gen -q -m "$(model qwen2-like)" --embed -p "a text" | jq -c .embedding)
    for case in base='by its architecture' untied='its weights lack one'; do
        run_plain bmc-convert "${case%%=*}" -o a.bmc
        assert_success
        assert_equal "$stderr" "bmc-convert: ${case%%=*}: has no LM head (${case#*=}): it is a model for embeddings (bmc-gen --embed)"
        ok bmc-gen -q -m a.bmc --embed -p "a text"
        assert_equal "$(jq -c .embedding <<<"$output")" "$want"
    done
    ok bmc-convert --info --format json a.bmc
    assert_equal "$(jq -c '[.no_head, .tied_head, .pooling]' <<<"$output")" '[true,false,null]'
    ok bmc-convert --verify a.bmc
    ok bmc-gen -q -m a.bmc --tokenize -p "a text"
    for job in "bmc-gen -m a.bmc -p x" "bmc-gen -m a.bmc --score -p x" "bmc-spec -m a.bmc -p x --lookup" "$BMC_BIN/bmc-prof bench -m a.bmc" "$BMC_BIN/bmc-tune -m a.bmc --dry-run"; do
        # shellcheck disable=SC2086
        expect_error 1 'a.bmc: has no LM head, so it generates no text and scores none: it is for embeddings \(bmc-gen --embed\)$' $job
    done
    jq '.architectures = ["NoSuchModel"]' base/config.json >untied/config.json
    expect_error 1 'architecture "NoSuchModel" is unknown' bmc-convert untied -o b.bmc
}

@test "the pooling that a model declares is the default" {
    cp -r "$FIXTURES/models/qwen2-like" m
    chmod -R u+w m
    mkdir m/1_Pooling
    modules() { # TYPE..
        printf '%s\n' "$@" | jq -R '{path: (if test("Pooling") then "1_Pooling" else "" end), type: ("sentence_transformers.models." + .)}' | jq -s . >m/modules.json
    }
    declared() { # WANT OPTIONS..: the embedding without options is that with OPTIONS
        ok bmc-convert m -q -o a.bmc
        ok bmc-convert --info --format json a.bmc
        assert_equal "$(jq -c '[.pooling, .embed_normalize]' <<<"$output")" "$1"
        shift
        ok bmc-gen -q -m a.bmc --embed -p "a text"
        default=$output
        ok bmc-gen -q -m "$(model qwen2-like)" --embed -p "a text" "$@"
        assert_equal "$default" "$output"
    }
    modules Transformer Pooling Normalize
    echo '{"pooling_mode_mean_tokens": false, "pooling_mode_lasttoken": true}' >m/1_Pooling/config.json
    declared '["last",null]' --pooling last
    ok bmc-gen -q -m a.bmc --embed -p "a text" --pooling mean --no-normalize
    assert_equal "$output" "$(bmc-gen -q -m "$(model qwen2-like)" --embed -p "a text" --no-normalize)"
    modules Transformer Pooling
    echo '{"pooling_mode": "cls"}' >m/1_Pooling/config.json
    declared '["cls",false]' --pooling cls --no-normalize
    ok bmc-gen -q -m a.bmc --embed -p "a text" --normalize
    assert_equal "$output" "$(bmc-gen -q -m "$(model qwen2-like)" --embed -p "a text" --pooling cls)"
    expect_error 2 'normalize and --no-normalize exclude each other' bmc-gen -m a.bmc --embed --normalize --no-normalize -p x
    # What is not supported is said, and needs a choice.
    while IFS='|' read -r list config what; do
        # shellcheck disable=SC2086
        modules $list
        echo "$config" >m/1_Pooling/config.json
        run_plain bmc-convert m -o a.bmc
        assert_success
        assert_equal "$stderr" "bmc-convert: m: embeddings are declared to be made in a way that is not supported ($what): bmc-gen --embed will need --pooling"
    done <<'END'
Transformer Pooling|{"pooling_mode_weightedmean_tokens": true}|weightedmean
Transformer Pooling|{"pooling_mode_cls_token": true, "pooling_mode_max_tokens": true}|more than one mode of pooling
Transformer Pooling LayerNorm Normalize|{"pooling_mode_mean_tokens": true}|sentence_transformers.models.LayerNorm
Transformer Pooling Dense Normalize|{"pooling_mode_mean_tokens": true}|a dense layer that cannot be read, a third one, or its activation
END
    expect_error 1 'a.bmc: declares a pooling that is not supported; choose one with --pooling' bmc-gen -m a.bmc --embed -p x
    ok bmc-gen -q -m a.bmc --embed -p x --pooling mean
    rm -r m/1_Pooling
    modules Transformer Pooling
    run_plain bmc-convert m -o a.bmc
    assert_success
    [[ $stderr == *' not supported (its pooling module cannot be read): '* ]] || fail "$stderr"
    rm m/modules.json
    ok bmc-convert m -q -o a.bmc
    equal_files a.bmc "$(model qwen2-like)"
    # GGUF: 64 more bytes of metadata keep the alignment.
    file=$FIXTURES/gguf/qwen2-like.gguf
    for type in 3=last 2=cls 4=unsupported; do
        {
            head -c 16 "$file"
            bytes_le 8 $(($(number_at "$file" 16 8) + 2))
            bytes_le 8 18
            printf qwen2.pooling_type
            bytes_le 4 4
            bytes_le 4 ${type%=*}
            bytes_le 8 3
            printf g.x
            bytes_le 4 8
            bytes_le 8 7
            printf 1234567
            tail -c +25 "$file"
        } >a.gguf
        ok bmc-convert a.gguf -q -o a.bmc
        ok bmc-convert --info --format json a.bmc
        assert_equal "$(jq -r .pooling <<<"$output")" "${type#*=}"
    done
}
