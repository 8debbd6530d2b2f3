# Expectations of users of other programs: hints on standard error, special tokens in prompts, progress at a terminal, and
# bmc(7)'s list of missing features.
load ../helper

setup_file() {
    for name in grimm grimm-draft; do model "$name" >/dev/null; done
}

once='Once upon a time'
hint='it counts sequences, as -b does here, not tokens'

# Standard error of a run with statistics, without the statistics.
said() { "$@" --stats stats.json 2>&1 >/dev/null </dev/null | sed '/^$/,$d'; }

@test "-b in tokens, as in llama.cpp: a hint above 1 for a single sequence, above 256 for requests; -q hides it" {
    m=$(model grimm)
    for option in '--parallel 2' '-np 4'; do
        # shellcheck disable=SC2086
        assert_equal "$(said bmc-gen -m "$m" -p "$once" -n 1 $option)" "bmc-gen: -np ${option##* }: this run has one sequence; batches go with --jsonl"
    done
    for option in '-b 2048' '--parallel=512'; do
        # shellcheck disable=SC2086
        text=$(said bmc-gen -m "$m" -p "$once" -n 1 $option)
        value=${option##*[ =]}
        assert_equal "$text" "bmc-gen: -np $value: $hint, and this run has 1; --chunk is the number of prompt tokens per forward pass"
    done
    assert_equal "$(said bmc-gen -m "$m" -p "$once" --score -b 512 | head -n 1 | cut -d ';' -f 1)" "bmc-gen: -np 512: $hint, and this run has 1"
    [[ $(said bmc-spec -m "$m" --lookup -p "$once" -n 2 --temp 1 --samples 2 -b 3) == "bmc-spec: -np 3: $hint, and this run has 2; "* ]]
    for job in '-b 1' '' '-q -b 2048'; do
        # shellcheck disable=SC2086
        assert_equal "$(said bmc-gen -m "$m" -p "$once" -n 1 $job)" ""
    done
    echo '{"ids": [5]}' >requests
    for job in '--jsonl -n 1' '--jsonl --score'; do
        # shellcheck disable=SC2086
        [[ $(said bmc-gen -m "$m" -f requests $job -b 257) == "bmc-gen: -np 257: $hint, and the batch may have that many; "* ]]
        # shellcheck disable=SC2086
        assert_equal "$(said bmc-gen -m "$m" -f requests $job -b 256)" ""
    done
}

@test "more threads than cores: a hint; -q hides it" {
    m=$(model grimm)
    cores=$(nproc)
    hint="this process may use $cores core$([ "$cores" = 1 ] || echo s); more threads are slower"
    assert_equal "$(said bmc-gen -m "$m" -p "$once" -n 1 -t $((cores + 1)))" "bmc-gen: -t $((cores + 1)): $hint"
    assert_equal "$(said bmc-gen -m "$m" -p "$once" -n 1 -tb $((cores + 1)))" "bmc-gen: -tb $((cores + 1)): $hint"
    assert_equal "$(said taskset -c "$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')" "$BMC_BIN/bmc-spec" -m "$m" --lookup -p "$once" -n 1 -t 2)" "bmc-spec: -t 2: this process may use 1 core; more threads are slower"
    for job in "-t $cores" "-q -t $((cores + 1))"; do
        # shellcheck disable=SC2086
        assert_equal "$(said bmc-gen -m "$m" -p "$once" -n 1 $job)" ""
    done
}

@test "a snapshot of a rolling cache that is continued in another: a hint; -q hides it" {
    m=$(model grimm)
    ok bmc-gen -q -m "$m" -p "$once" -n 60 --ignore-eos --kv shift:S=32 --save-kv s.kv
    hint="bmc-gen: s.kv: saved with --kv shift:S=32; without it, later tokens attend to more than that window"
    assert_equal "$(said bmc-gen -m "$m" --load-kv s.kv -n 1)" "$hint"
    assert_equal "$(said bmc-gen -m "$m" --load-kv s.kv -n 1 --kv shift:S=32)" ""
    assert_equal "$(said bmc-gen -q -m "$m" --load-kv s.kv -n 1)" ""
}

@test "a window, step or number of allocations beyond the context: a hint that it is cut; -q hides it" {
    m=$(model grimm)
    for kv in shift:S bmc:r segment:T; do
        assert_equal "$(said bmc-gen -m "$m" -c 200 -p "$once" -n 1 --kv $kv=201)" "bmc-gen: --kv $kv=201: ${kv#*:} is cut to the context of 200 tokens, which -c sets"
    done
    assert_equal "$(said bmc-gen -m "$m" -c 200 -p "$once" -n 1 --kv shift:S=200)$(said bmc-gen -q -m "$m" -c 200 -p "$once" -n 1 --kv shift:S=201)" ""
}

@test "the line of the KV cache names the types of K and V; one that is given alone leaves the other f32" {
    bmc-gen -m "$(model grimm)" -p "$once" -n 1 --cache-type k=q8 --save-kv s.kv 2>err >/dev/null
    grep -q '^KV cache .* bmc (default), k=q8,v=f32, T ' err
    grep -qE '^saved +.* s.kv, 0\.[0-9]+ MiB$' err
}

@test "options of sampling without a temperature: a hint that they have no effect; -q hides it" {
    m=$(model grimm)
    for option in '--top-p 0.5' '--mirostat 2' '--xtc-threshold 0.2'; do
        # shellcheck disable=SC2086
        assert_equal "$(said bmc-gen -m "$m" -p "$once" -n 1 $option)" "bmc-gen: ${option% *} has no effect at temperature 0, which is greedy: give --temp"
    done
    assert_equal "$(said bmc-gen -m "$m" -p "$once" -n 1 --top-p 0.5 --temp 1)$(said bmc-gen -m "$m" -p "$once" -n 1 --repeat-penalty 2)$(said bmc-gen -q -m "$m" -p "$once" -n 1 --top-k 3)" ""
}

@test "-b and --batch are --parallel" {
    jq -nc 'range(3) | {ids: [5, 6, .]}' >requests
    for option in '-b 2' '--batch 2' '-np 2' '--parallel 2'; do
        # shellcheck disable=SC2086
        ok bmc-gen -q -m "$(model grimm)" -f requests --jsonl -n 2 $option --stats stats.json
        assert_equal "$(jq .batch stats.json)" 2
    done
    expect_error 2 '^bmc-gen: -np: needs a whole number from 1 to 65536; found "0"' bmc-gen -np 0
}

# ---- special tokens ----

# A model whose tokenizer does not know a special token: there its text is plain text for certain.
without_token() { # MODEL TOKEN
    rm -rf plain
    mkdir plain
    cp "$(folder "$1")"/* plain
    rm -f plain/special_tokens_map.json plain/added_tokens.json plain/tokenizer_config.json
    jq --arg token "$2" '.added_tokens |= map(select(.content != $token))' "$(folder "$1")/tokenizer.json" >plain/tokenizer.json
    bmc-convert plain -o plain.bmc
}

@test "--no-parse-special: special tokens are plain text in all inputs; requests can override it" {
    n=0
    while read -r name token; do
        m=$(model "$name")
        text="One $token two"
        id=$(jq --arg token "$token" '.added_tokens[] | select(.content == $token).id' "$(folder "$name")/tokenizer.json")
        without_token "$name" "$token"
        tokens() { bmc-gen -q --tokenize --format jsonl -p "$text" "$@" | jq -c .ids; }
        plain=$(tokens -m plain.bmc)
        assert_equal "$(tokens -m "$m" | jq "index($id) != null")" true
        assert_equal "$(jq "index($id)" <<<"$plain")" null
        assert_equal "$(tokens -m "$m" --no-parse-special)" "$plain"
        # Scores and texts of the ids, and of the text.
        score() { bmc-gen -q -m "$m" --score --format jsonl "$@" | jq -c 'select(.id).id' | paste -sd , ; }
        assert_equal "[$(score --no-parse-special -p "$text")]" "$plain"
        bmc-gen -q -m "$m" -p "$text" --no-parse-special --ids --echo -n 1 --ignore-eos >out
        assert_equal "[$(sed 's/ [0-9]*$//; s/ /,/g' out)]" "$plain"
        bmc-spec -q -m "$m" --lookup -p "$text" --no-parse-special --ids --echo -n 1 --ignore-eos >spec
        equal_files out spec
        # The member of a request overrides the option.
        prompt() { jq -c '[.prompt_logprobs[].id]'; }
        jq -nc --arg text "$text" '{prompt: $text, n: 1, prompt_logprobs: 1} | ., . + {parse_special: true}, . + {parse_special: false}' >requests
        bmc-gen -q -m "$m" --jsonl -f requests | prompt >ids
        parsed=$(tokens -m "$m")
        assert_equal "$(cat ids)" "$parsed"$'\n'"$parsed"$'\n'"$plain"
        bmc-gen -q -m "$m" --jsonl -f requests --no-parse-special | prompt >ids
        assert_equal "$(cat ids)" "$plain"$'\n'"$parsed"$'\n'"$plain"
        jq -nc --arg text "$text" '{text: $text}, {text: $text, parse_special: false}' >texts
        bmc-gen -q -m "$m" --score --jsonl -f texts | jq -c '[.logprobs[].id]' >ids
        assert_equal "$(cat ids)" "$parsed"$'\n'"$plain"
        n=$((n + 1))
    done <<'END'
grimm </s>
llama-2-like </s>
llama-3-like <|eot_id|>
qwen2-like <|im_end|>
END
    [ "$n" -eq 4 ]
}

@test "--parse-special; requests with messages can set it; invalid combinations" {
    m=$(model qwen2-like)
    said='a <|im_end|> b'
    chat() { bmc-gen -q -m "$m" --chat --chat-template chatml -p "$said" --ids --echo -n 1 --ignore-eos "$@"; }
    chat >plain
    chat --no-parse-special >same
    equal_files plain same
    chat --parse-special >special
    refute cmp -s plain special
    jq -nc --arg said "$said" '{messages: [{role: "user", content: $said}], max_tokens: 1, prompt_logprobs: 1} | ., . + {parse_special: true}' >requests
    bmc-gen -q -m "$m" --chat-template chatml --jsonl -f requests | jq -r '[.prompt_logprobs[].id] | map(tostring) | join(" ")' >ids
    assert_equal "$(cat ids)" "$(sed 's/ [0-9]*$//' plain special)"
    for options in '--parse-special --chat' '--prompt-ids 5' --detokenize; do
        # shellcheck disable=SC2086
        expect_error 2 '^bmc-gen: --no-parse-special goes with text, and not with --parse-special' bmc-gen -m "$m" --no-parse-special $options </dev/null
    done
    run bmc-gen -q -m "$m" --score --jsonl <<<'{"text": "a", "parse_special": 1}'
    assert_output --partial '\"parse_special\" is an integer, true or false is expected'
}

# ---- missing features ----

missing() { sed -n '/^\.SH NOT IMPLEMENTED/,/^\.SH FILES/p' "$ROOT/man/bmc.7" | tr -d '\\'; }

@test "the list of missing features: no program has its options, and messages give the reason" {
    missing | grep -oE 'fB-[^ ]*fR' | sed 's/^fB//; s/fR$//' >options
    [ "$(wc -l <options)" -ge 15 ]
    while read -r option; do
        for program in bmc-gen bmc-spec; do
            run --separate-stderr "$BMC_BIN/$program" "$option" x </dev/null
            assert_equal "$status" 2
            [[ $stderr == "$program: unknown option $option: "* ]] || fail "$option: $stderr"
            [[ $stderr != *': here it is '* ]] || fail "$option: $stderr"
        done
    done <options
}

@test "GGUF types: missing ones are not read, those of bmc-convert(1)'s table are" {
    sed -nE 's/^    (X\(|.*\{")([A-Z0-9_]+)"?, [0-9]+, (SMALL|SUPER|[0-9]+), .*/\2/p' "$ROOT/lib/format/gguf/block_types.c" | sort >read
    [ "$(wc -l <read)" -eq 28 ]
    missing | sed 's/does not quantise to MXFP4//' | grep -oE '\b(I?Q[0-9]_[A-Z0-9]+|IQ[0-9]_[A-Z]+|TQ[0-9]_0|MXFP4)\b' | sort >named
    [ "$(wc -l <named)" -eq 0 ]
    assert_equal "$(comm -12 read named)" ""
    sed -n '/^GGUF\tbits/,/^\.TE/p' "$ROOT/man/bmc-convert.1" | cut -f 1 | grep -oE '[IT]?Q[0-9]_[A-Z0-9]+' | sort >table
    assert_equal "$(comm -3 <(grep Q read) table)" ""
}
