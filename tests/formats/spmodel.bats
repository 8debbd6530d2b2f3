# SentencePiece models: reading tokenizer.model, and its precedence.
load ../helper

MODELS=$FIXTURES/sentencepiece

# with_model FILE: ./bad, a model's folder that has only this tokenizer.model.
with_model() {
    mkdir -p bad
    cp "$(folder llama-bias)"/* bad
    rm bad/tokenizer.json
    cp "$1" bad/tokenizer.model
}

@test "pieces, scores, types and rules match SentencePiece" {
    for name in bpe unigram; do
        ok "$BMC_BUILD/tests/test_spmodel" "$MODELS/$name.model"
        run jq -c --slurpfile told "$MODELS/$name.json" \
            '[. == $told[0].tokenizer, (.model.vocab | length > 100), .bos_id, .eos_id, has("charsmap")]' <<<"$output"
        # Control pieces are optional and found by spelling.
        if [ $name = bpe ]; then assert_output '[true,true,1,2,false]'; else assert_output '[true,true,null,1,true]'; fi
    done
}

@test "tokenizer.model is read if there is no tokenizer.json" {
    n=0
    while IFS='|' read -r name pattern; do
        with_model "$MODELS/$name.model"
        expect_error 1 "bad/tokenizer.model: $pattern" bmc-convert bad -o out.bmc
        n=$((n + 1))
    done <<'END'
word|SentencePiece model type word \(3\) is not supported; unigram and bpe are$
suffix|SentencePiece models with treat_whitespace_as_suffix are not supported$
END
    [ "$n" -eq 2 ]
    echo x >bad/tokenizer.model
    expect_error 1 'bad/tokenizer.model: not a SentencePiece model' bmc-convert bad -o out.bmc
    with_model "$MODELS/bpe.model"
    rm bad/tokenizer_config.json
    expect_error 1 "bad/tokenizer.model: token .* but the model's embedding has 380 rows" bmc-convert bad -o out.bmc
    rm bad/tokenizer.model
    expect_error 1 'bad: no tokenizer: needs tokenizer.json, tokenizer.model, vocab.json and merges.txt, tiktoken.model or tekken.json$' bmc-convert bad -o b.bmc
}

@test "a model converted with tokenizer.model has its ids and texts" {
    tiny_shape some.shape layers 1 vocab 500
    for name in bpe unigram; do
        mkdir $name
        echo '{"architectures": ["LlamaForCausalLM"]}' >$name/config.json
        cp "$MODELS/$name.model" $name/tokenizer.model
        [ $name = bpe ] || echo '{"tokenizer_class": "T5Tokenizer"}' >$name/tokenizer_config.json
        ok bmc-convert --synth ./some.shape --tokenizer $name --no-bos -o $name.bmc
        # SentencePiece treats control pieces as text; a model matches its special tokens.
        jq -c '.cases[] | select(.text | test("[\n\r\u0000]|<s>") | not)' "$MODELS/$name.json" >cases
        jq -r .text cases >texts
        end=$([ $name = bpe ] || jq .tokenizer.eos_id "$MODELS/$name.json")
        jq -c ".ids + [$end]" cases >want
        [ "$(wc -l <want)" -ge 10 ]
        ok bmc-gen -q -m $name.bmc --tokenize --format jsonl <texts
        assert_equal "$(jq -c .ids <<<"$output")" "$(cat want)"
    done
}

@test "tokenizer.json, or vocab.json with merges.txt, has precedence over tokenizer.model" {
    cp -r "$(folder llama-bias)" both
    echo nonsense >both/tokenizer.model
    ok bmc-convert both -o out.bmc
    equal_files out.bmc "$(model llama-bias)"
    cp -r "$(folder opt-350m-like)" other # vocab.json and merges.txt
    echo nonsense >other/tokenizer.model
    ok bmc-convert other -o out.bmc
    equal_files out.bmc "$(model opt-350m-like)"
}

@test "add_prefix_space of tokenizer_config.json decides with Llama's class, as in transformers" {
    tiny_shape some.shape layers 1 hidden 8 heads 1 kv_heads 1 ffn 8 vocab 500
    mkdir old
    cp "$MODELS/bpe.model" old/tokenizer.model
    tokens() { # CONFIG
        echo "$1" >old/tokenizer_config.json
        ok bmc-convert --synth ./some.shape --tokenizer old -o old.bmc
        ok bmc-gen -q -m old.bmc --tokenize --format jsonl -p 'shoes'
        jq -r '.pieces | join("")' <<<"$output"
    }
    assert_equal "$(tokens '{"tokenizer_class": "LlamaTokenizer"}')" '<s> shoes'
    assert_equal "$(tokens '{"tokenizer_class": "LlamaTokenizer", "add_prefix_space": null}')" '<s> shoes'
    assert_equal "$(tokens '{"tokenizer_class": "LlamaTokenizer", "add_prefix_space": false}')" '<s>shoes'
    assert_equal "$(tokens '{"tokenizer_class": "Ernie4_5_Tokenizer", "add_prefix_space": false}')" ' shoes'
}

@test "added_tokens.json is read where tokenizer_config.json has no added tokens" {
    tiny_shape some.shape layers 1 hidden 8 heads 1 kv_heads 1 ffn 8 vocab 500
    mkdir old
    cp "$MODELS/bpe.model" old/tokenizer.model
    echo '{"<|im_start|>": 420, "<tool>": 421}' >old/added_tokens.json
    echo '{"eos_token": "</s>", "additional_special_tokens": ["<|im_start|>"]}' >old/special_tokens_map.json
    ok bmc-convert --synth ./some.shape --tokenizer old -o old.bmc
    ok bmc-gen -q -m old.bmc --tokenize --format jsonl -p '<tool><|im_start|>'
    assert_equal "$(jq -c .ids <<<"$output")" '[1,421,420]'
    ok bmc-gen -q -m old.bmc --detokenize <<<'[421,420]'
    assert_output '<tool>'
    echo '{"added_tokens_decoder": {"422": {"content": "<tool>"}}}' >old/tokenizer_config.json
    ok bmc-convert --synth ./some.shape --tokenizer old -o old.bmc
    ok bmc-gen -q -m old.bmc --tokenize --format jsonl -p '<tool>'
    assert_equal "$(jq -c .ids <<<"$output")" '[1,422]'
    echo '{"<tool>": "x"}' >old/added_tokens.json
    rm old/tokenizer_config.json
    expect_error 1 'old/added_tokens.json: the id of token "<tool>" is a string, expected an integer' \
        bmc-convert --synth ./some.shape --tokenizer old -o old.bmc
}

@test "hostile models" {
    run "$BMC_BUILD/tests/test_spmodel"
    [ "$status" -eq 0 ] || fail "$output"
    [[ $output =~ ([0-9]+)' checks, 0 failed'$ ]]
}

@test "a long text that is encoded in parts has the ids of the whole" {
    tiny_shape some.shape layers 1 vocab 500
    mkdir bpe
    echo '{"architectures": ["LlamaForCausalLM"]}' >bpe/config.json
    cp "$MODELS/bpe.model" bpe/tokenizer.model
    ok bmc-convert --synth ./some.shape --tokenizer bpe --no-bos -o bpe.bmc
    # The ids of repetitions, up to 256 KiB in one part, repeat, too.
    perl -e 'print "the,and;was.ing!ed" x 9, "\n", "the,and;was.ing!ed" x 20000, "\n"' >texts
    ok bmc-gen -q -m bpe.bmc --tokenize --format jsonl <texts
    jq -c .ids <<<"$output" >ids
    jq -nc --slurpfile ids ids '$ids[0] as $few | $ids[1] as $many
        | [range(1; 60) | select(. as $n | $few[-$n:] == $few[-2 * $n:-$n])][0] as $period
        | (($few | length) - 8 * $period) as $first
        | $period > 8 and $many == $few[:$first] + ([range(19999)] | map($few[$first:$first + $period]) | add)' >verdict
    assert_equal "$(cat verdict)" true
}
