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
