# All kinds of tokenizers, converted with a model and used from its file.
load ../helper

@test "pre-tokenizers, unsupported components, damaged tables, long texts" {
    run "$BMC_BUILD/tests/test_tokenizers" "$FIXTURES"
    assert_success
    refute_output --partial 'not ok'
    [ "$(grep -c '^ok - ' <<<"$output")" -ge 70 ]
}

# Converts a random model with the tokenizer of a folder.
with_tokenizer() { # NAME
    tiny_shape some.shape layers 1 vocab 1000 eos 2
    mkdir -p folder
    echo '{"architectures": ["LlamaForCausalLM"]}' >folder/config.json
    cp "$FIXTURES/tokenizers/$1/tokenizer.json" folder/
    rm -f folder/tokenizer_config.json
    [ "$1" != spm-unigram ] || echo '{"tokenizer_class": "T5Tokenizer"}' >folder/tokenizer_config.json
    ok bmc-convert --synth ./some.shape --tokenizer folder -o "$1.bmc"
}

@test "tokenizers of each kind: ids and texts match the reference" {
    for name in spm spm-words spm-unigram t5 xlnet gemma falcon wordpiece wordpiece-cased; do
        with_tokenizer "$name"
        ok bmc-convert --verify "$name.bmc"
        jq -r '.cases[] | select(.text | test("[\n\r\u0000]") | not) | .text' "$FIXTURES/tokenizers/$name/cases.json" >texts
        [ "$(wc -l <texts)" -ge 50 ]
        jq -c '.cases[] | select(.text | test("[\n\r\u0000]") | not) | .ids' "$FIXTURES/tokenizers/$name/cases.json" >want
        ok bmc-gen -q -m "$name.bmc" --tokenize --format jsonl <texts
        assert_equal "$(jq -c .ids <<<"$output")" "$(cat want)"
    done
}

@test "bytes and a leading space survive a round trip" {
    with_tokenizer spm-words
    printf '%s\n' 'a 😀 b' ' two  spaces ' '你好e' >texts
    ok bmc-gen -q -m spm-words.bmc --tokenize --format jsonl <texts
    jq -c .ids <<<"$output" >ids
    [[ $output == *'"<0xF0>","<0x9F>","<0x98>","<0x80>"'* ]]
    [[ $output != *▁* ]]
    ok bmc-gen -q -m spm-words.bmc --detokenize <ids
    assert_equal "$output" "$(cat texts)"
    # Generated text after a prompt keeps its leading space.
    ok bmc-gen -q -m spm-words.bmc --tokenize -p 'a' --format jsonl
    id=$(jq .ids[-1] <<<"$output")
    ok bmc-gen -q -m spm-words.bmc -p 'x' -n 1 --logit-bias "$id=100" --temp 0
    assert_output ' a'
}

@test "as many added tokens as embedding rows take seconds, not hours" {
    tiny_shape some.shape layers 1 hidden 8 heads 1 kv_heads 1 ffn 8 vocab 200000
    mkdir many
    echo '{"architectures": ["LlamaForCausalLM"]}' >many/config.json
    jq -cn '{added_tokens: [range(200000) | {id: ., content: "<\(.)>", special: true}],
        pre_tokenizer: {type: "ByteLevel"}, decoder: {type: "ByteLevel"}, model: {type: "BPE", vocab: {}, merges: []}}' >many/tokenizer.json
    ok timeout 30 "$BMC_BIN/bmc-convert" --synth ./some.shape --tokenizer many -o many.bmc
    ok bmc-gen -q -m many.bmc --tokenize --format jsonl <<<'<7><199999>'
    assert_equal "$(jq -c .ids <<<"$output")" '[7,199999]'
}

@test "unsupported models and components are refused by name" {
    mkdir some
    echo '{"architectures": ["LlamaForCausalLM"]}' >some/config.json
    refuse() { # JQ REGEX
        jq -c "$1" "$FIXTURES/tokenizers/t5/tokenizer.json" >some/tokenizer.json
        expect_error 1 "some/tokenizer.json: $2" bmc-convert --synth opt-125m --tokenizer some -o none.bmc
        [ ! -e none.bmc ]
    }
    refuse '.model = {type: "WordLevel", vocab: {}}' 'model "WordLevel" is not supported; supported are BPE, Unigram, SPM and WordPiece'
    refuse '.model = {type: "WordPiece", vocab: {}, max_input_chars_per_word: 20}' 'a WordPiece model is supported with '
    refuse '.normalizer = {type: "Nmt"}' 'normalizer "Nmt" is not supported; supported are '
    refuse '.normalizer.precompiled_charsmap |= .[4:]' 'the charsmap of the normalizer is damaged'
    refuse '.model.vocab[3] = ["x"]' 'token 3 is not a piece and its score'
    refuse '.model.unk_id = 100000' '"unk_id" is not an id of the '
}

@test "tiktoken.model, Kimi K2's GGUF vocabulary and tekken.json have tiktoken's ids" {
    local dir=$FIXTURES/tiktoken
    tiny_shape some.shape layers 1 hidden 8 heads 1 kv_heads 1 ffn 8 vocab 661 eos 2
    for source in kimi=kimi kimi-k2.gguf=kimi tekken=tekken tekken/tekken.json=tekken; do
        [ "$(wc -l <"$dir/${source#*=}.jsonl")" -ge 15 ]
        ok bmc-convert --synth ./some.shape --tokenizer "$dir/${source%=*}" -o a.bmc
        jq -r .text "$dir/${source#*=}.jsonl" >texts
        ok bmc-gen -q -m a.bmc --tokenize --format jsonl <texts
        assert_equal "$(jq -c .ids <<<"$output")" "$(jq -c .ids "$dir/${source#*=}.jsonl")"
    done
    # A folder with tekken.json alone has the named tokens that chat templates want.
    cp -r "$FIXTURES/models/qwen2-like" small
    chmod -R u+w small
    rm small/*token* small/vocab.json small/merges.txt
    cp "$dir/tekken/tekken.json" small
    echo '{{ bos_token }}[INST]{{ messages[0].content }}[/INST]{{ eos_token }}' >small/chat_template.jinja
    ok bmc-convert small -q -o a.bmc
    ok bmc-gen -m a.bmc -q --chat --render-chat -p Hi
    assert_output '<s>[INST]Hi[/INST]</s>'
    mkdir bad
    refuse() { # REGEX
        expect_error 1 "$1" bmc-convert --synth ./some.shape --tokenizer bad -o none.bmc
    }
    cp "$dir"/kimi/* bad
    sed -i '7s/ .*/ x/' bad/tiktoken.model
    refuse 'bad/tiktoken.model: line 7 is "[^"]* x", expected a token in base64 and its id$'
    sed '1d' "$dir/kimi/tiktoken.model" >bad/tiktoken.model
    refuse 'bad/tiktoken.model: has tokens for 255 of 256 bytes$'
    sed -i 's/TikTokenTokenizer",/QWenTokenizer",/; s/"TikTokenTokenizer"}/"QWenTokenizer"}/' bad/tokenizer_config.json
    mv bad/tiktoken.model bad/tokenizer.model
    refuse 'bad/tokenizer.model: tokenizer_class "QWenTokenizer" of tokenizer_config.json is not supported with a vocabulary of tiktoken; only "TikTokenTokenizer" is \(Kimi K2, Moonlight\); add the tokenizer.json of the model$'
    rm bad/*
    jq -c 'del(.special_tokens)' "$dir/tekken/tekken.json" >bad/tekken.json
    refuse 'bad/tekken.json: has no special_tokens, as files before version 7 of the format; add the tokenizer.json of the model$'
    jq -c '.vocab[3].rank = 9' "$dir/tekken/tekken.json" >bad/tekken.json
    refuse 'bad/tekken.json: token 3 of vocab has no token_bytes, or another rank$'
    jq -c '.config.default_num_special_tokens = 16777216' "$dir/tekken/tekken.json" >bad/tekken.json
    refuse 'bad/tekken.json: has [0-9]+ special tokens, and default_num_special_tokens is 16777216 of at most 65536$'
    sed 's/\("default_vocab_size":\)[0-9]*/\1-9223372036854775808/' "$dir/tekken/tekken.json" >bad/tekken.json
    refuse 'bad/tekken.json: has tokens for 0 of 256 bytes$'
}
