# Where texts end: stop strings, the end of a turn, and special tokens, which texts leave out or have.
load ../helper

setup_file() {
    for name in grimm grimm-draft qwen2-like; do model "$name" >/dev/null; done
}

# Requests whose text is known in advance, with the turn's end of ChatML, which is no token of the model.
written() { # PROGRAM OPTION.. <REQUESTS -> text and reason of each, in order
    local program=$1
    shift
    jq -c '. + {grammar: "root ::= \"abc<|im_end|>def\"", max_tokens: 40}' | "$program" -q -m "$(model grimm)" --jsonl --chat-template chatml "$@" |
        jq -r 'select(has("finish") or has("choices")) | (.choices // [.])[] | [.text, .finish] | join(" ")'
}

drafting() { bmc-spec -d "$(model grimm-draft)" "$@"; }

@test "a text ends at its own stop strings, else at those of --stop; a turn at its end in any case" {
    cat >messages <<'END'
{"messages": [{"role": "user", "content": "x"}]}
{"messages": [{"role": "user", "content": "x"}], "stop": ["ZZ"]}
{"messages": [{"role": "user", "content": "x"}], "stop": "bc"}
{"messages": [{"role": "user", "content": "x"}], "stop": [], "stream": true}
{"messages": [{"role": "user", "content": "x"}], "stop": ["ZZ", "c<"], "n_choices": 2}
END
    jq -c 'del(.messages) + {prompt: "x"}' messages >prompts
    turns=$'abc stop\nabc stop\na stop\nabc stop\nab stop\nab stop'
    texts=$'abc<|im_end|>def eos\nabc<|im_end|>def eos\na stop\nabc<|im_end|>def eos\nab stop\nab stop'
    for name in bmc-gen drafting; do
        assert_equal "$(written "$name" <messages)" "$turns"
        assert_equal "$(written "$name" --chat <prompts)" "$turns"
        assert_equal "$(written "$name" <prompts)" "$texts"
        # --stop holds for requests without stop strings of their own.
        assert_equal "$(written "$name" --stop b <messages)" "${turns/abc/a}"
        assert_equal "$(written "$name" --stop b <prompts)" "${texts/"abc<|im_end|>def eos"/a stop}"
    done
    # As a single text, and on from a snapshot.
    echo 'root ::= "abc<|im_end|>def"' >g.gbnf
    assert_equal "$(bmc-gen -q -m "$(model grimm)" --chat --chat-template chatml -p x --stop ZZ --grammar g.gbnf)" abc
    bmc-gen -q -m "$(model grimm)" -p x -n 2 --save-kv k.kv >/dev/null
    assert_equal "$(written bmc-gen --load-kv k.kv <<<'{"messages": [{"role": "user", "content": "x"}], "stop": "ZZ"}')" 'abc stop'
    assert_equal "$(written bmc-gen --load-kv k.kv --chat --stop b <<<$'{"prompt": "x", "stop": "ZZ"}\n{}')" $'abc stop\na stop'
}

# A text of A and <|im_end|> in turn, as each gets less likely with every occurrence.
taking_turns() { # MEMBERS OPTION.. -> result
    jq -c --argjson more "$1" '. + $more' <<<'{"ids": [5], "n": 6, "ignore_eos": true, "frequency_penalty": 150, "repeat_last_n": -1, "logit_bias": {"32": 1000, "402": 900}}' |
        bmc-gen -q -m "$(model qwen2-like)" --jsonl "${@:2}"
}

@test "special tokens are printed on request, in every way to get text" {
    end='<|im_end|>'
    assert_equal "$(taking_turns '{}' | jq -c '[.text, .ids]')" '["AAA",[32,402,32,402,32,402]]'
    assert_equal "$(taking_turns '{}' --special | jq -r .text)" "A${end}A${end}A${end}"
    assert_equal "$(taking_turns '{"skip_special_tokens": true}' -sp | jq -r .text)" AAA
    taking_turns '{"skip_special_tokens": false, "stream": true}' >streamed
    assert_equal "$(jq -rs 'map(.delta // "") | join("")' streamed)" "A${end}A${end}A${end}"
    assert_equal "$(tail -n 1 streamed | jq -r .text)" "A${end}A${end}A${end}"
    assert_equal "$(bmc-gen -q -m "$(model qwen2-like)" --special --detokenize <<<'32 402 33')" "A${end}B"
    assert_equal "$(bmc-gen -q -m "$(model qwen2-like)" --detokenize <<<'32 402 33')" AB
    assert_equal "$(bmc-gen -q -m "$(model qwen2-like)" --prompt-ids 5 -n 2 --ignore-eos --logit-bias 402=900 --special)" "$end$end"
    expect_error 2 '^bmc-gen: --special \(-sp\) goes with generated text' bmc-gen -m "$(model qwen2-like)" --special --ids -p x
}

@test "a stop string that names a special token fires at that token, whether it is printed or not" {
    while read -r stop hidden shown; do
        assert_equal "$(taking_turns "{\"stop\": $stop}" | jq -c '[.text, .finish]')" "$hidden"
        assert_equal "$(taking_turns "{\"stop\": $stop, \"skip_special_tokens\": false}" | jq -c '[.text, .finish]')" "$shown"
    done <<'END'
"<|im_end|>" ["A","stop"] ["A","stop"]
"A<|im_end|>A" ["","stop"] ["","stop"]
["<|im_start|>","<|im_end|>A"] ["A","stop"] ["A","stop"]
"AA" ["","stop"] ["A<|im_end|>A<|im_end|>A<|im_end|>","length"]
"im_end" ["AAA","length"] ["A<|","stop"]
"<|im_end|><|im_end|>" ["AAA","length"] ["A<|im_end|>A<|im_end|>A<|im_end|>","length"]
END
    # Nothing is streamed that a stop string takes back.
    taking_turns '{"stop": ["A<|im_end|>A<|im_end|>A"], "stream": true}' >streamed
    assert_equal "$(jq -c '[.delta, .text]' streamed)" '[null,""]'
}
