# Conversations at a terminal: bmc-gen --chat -i. tests/unit/pty.c plays the user.
load ../helper

setup_file() {
    model grimm >/dev/null
    export BMC_SEED=${BMC_SEED:-$RANDOM}
    echo "# BMC_SEED=$BMC_SEED" >&3
}

# Plays a script at a terminal without line editing, greedily unless told otherwise; PLAYED_BY: the program, TERMINAL: its TERM.
converse() { # ARGUMENT.. <SCRIPT -> transcript, status
    status=0
    TERM=${TERMINAL:-dumb} "$BMC_BUILD/tests/pty" "$BMC_BIN/${PLAYED_BY:-bmc-gen}" -m "${MODEL:-$(model grimm)}" --chat --chat-template chatml --temp 0 -i "$@" >raw 2>pty.err || status=$?
    tr -d '\r' <raw >transcript
    [ ! -s pty.err ] || fail "$(cat pty.err transcript)"
}

# A script that says each line and waits for the prompt after the answer.
script() { # LINE.. -> script
    printf 'wait > \n'
    for line in "$@"; do
        printf 'type %s\nwait ]\nwait > \n' "$line"
    done
}

# What a run without earlier turns answers to the saved conversation, up to its last answer.
answer_to() { # FILE ARGUMENT..
    jq -c '{messages: .messages[:-1]}' "$1" | bmc-gen -q --jsonl -m "${MODEL:-$(model grimm)}" --chat-template chatml "${@:2}" | jq -r .text
}

@test "a second turn computes the tokens of that turn only" {
    cp -r "$(folder grimm)" long
    jq '.max_position_embeddings = 4096' "$(folder grimm)/config.json" >long/config.json
    bmc-convert long -o long.bmc
    for ((i = 0; i < 250; i++)); do echo "The king had a daughter, $i of them."; done >tale.txt
    # An answer that EOS ends: the constraint allows nothing else.
    { printf 'wait > \ntype /file tale.txt\nwait next message\n'; script 'What of it?' 'And then?' | sed 's/^wait ]/wait king./'; echo end; } >script
    MODEL=long.bmc converse --regex ' It was a [a-z]{3,9} king[.]' --stats stats.json -q <script
    [ "$status" -eq 0 ] || fail "$(cat transcript)"
    assert_equal "$(jq -c '[.turns[].finish]' stats.json)" '["eos","eos"]'
    [ "$(jq '.turns[0].prompt_tokens' stats.json)" -ge 2000 ]
    # What the second turn adds, as a prompt of its own (this model has no BOS); and the last token of the answer, which the
    # constraint ended: nothing was computed after it.
    bmc-gen -q -m long.bmc -n 0 -p $'<|im_end|>\n<|im_start|>user\nAnd then?<|im_end|>\n<|im_start|>assistant\n' --stats added.json >/dev/null
    new=$(jq '.turns[1].prefill_tokens' stats.json)
    assert_equal "$new" $(($(jq .prefill_tokens added.json) + 1))
    assert_equal "$(jq '.turns[1] | .prompt_tokens - .reused_tokens' stats.json)" "$new"
    assert_equal "$(jq '.turns[0].prompt_tokens + .turns[0].generated_tokens - 1' stats.json)" "$(jq '.turns[1].reused_tokens' stats.json)"
    assert_equal "$(jq '[.turns[].prefill_tokens] | add' stats.json)" "$(jq .prefill_tokens stats.json)"
}

@test "answers are those of a conversation given at once, under every cache policy and with drafts" {
    script 'The king' 'And the daughter?' '/undo' 'And his son?' '/regen' '/file tale.txt' 'What then?' '/save saved.json' | sed 's/^type \/\(undo\|file\|save\).*/&\nwait > /' |
        awk '/^type \/(undo|file|save)/ { print; getline; print; getline; getline; next } { print }' >script
    echo end >>script
    echo 'Once there was a wolf.' >tale.txt
    policies=$(kv_policies)
    for policy in $policies; do
        sampled 3 || [ "$policy" = bmc ] || continue
        rm -f saved.json
        converse -n 17 --kv "${policy/#headwise/headwise:ram=2M,dir=.}" <script
        [ "$status" -eq 0 ] || fail "$policy: $(cat transcript)"
        assert_equal "$(jq -c '[.messages[].role]' saved.json)" '["user","assistant","user","assistant","user","assistant"]'
        assert_equal "$(jq -r '.messages[2].content' saved.json)" 'And his son?'
        assert_equal "$(jq -r '.messages[4].content' saved.json)" $'Once there was a wolf.\nWhat then?'
        assert_equal "$(answer_to saved.json -n 17)" "$(jq -r '.messages[-1].content' saved.json)"
        [ "${policy}" = bmc ] || continue
        for cache in q8 bf16; do
            rm -f saved.json
            converse -n 17 --cache-type $cache <script
            assert_equal "$(answer_to saved.json -n 17 --cache-type $cache)" "$(jq -r '.messages[-1].content' saved.json)"
        done
        rm -f saved.json
        PLAYED_BY=bmc-spec converse -n 17 --lookup -k 4 --always <script
        assert_equal "$(answer_to saved.json -n 17)" "$(jq -r '.messages[-1].content' saved.json)"
    done
}

@test "models with recurrent layers: /regen and /undo roll their states back" {
    bmc-convert "$FIXTURES/families/lfm2" -o lfm2.bmc
    { script 'Hello' 'And then?' /regen; printf 'type /undo\nwait > \ntype And what?\nwait ]\nwait > \ntype /save saved.json\nwait saved\nend\n'; } >script
    MODEL=lfm2.bmc
    converse -n 8 --ignore-eos --regex '[a-z ]{30}' --stats stats.json <script
    [ "$status" -eq 0 ] || fail "$(cat transcript)"
    assert_equal "$(jq -r '.messages[-1].content' saved.json)" "$(answer_to saved.json -n 8 --ignore-eos --regex '[a-z ]{30}')"
    assert_equal "$(jq '[.turns[].reused_tokens > 0] | [.[0], (.[1:] | unique)]' -c stats.json)" '[false,[true]]'
}

@test "thoughts that the template drops are read again, and nothing before them" {
    cat >drops.jinja <<'END'
{%- for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' %}{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}<|end|>
{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}
END
    { script 'A long question, which has many words in it' 'And then?' | sed 's/^wait ]/wait king./'; printf 'type /save saved.json\nwait saved\nend\n'; } >script
    converse --chat-template drops.jinja --regex '<think>[a-z ]{12,20}</think>A [a-z]{3,9} king[.]' --stats stats.json -q <script
    assert_equal "$status" 0
    read -r first second reused new <<<"$(jq -r '[.turns[0].prompt_tokens, .turns[1].prompt_tokens, .turns[1].reused_tokens, .turns[1].prefill_tokens] | join(" ")' stats.json)"
    # The first prompt is kept, but for tokens at its end that go on otherwise; the answer is read again.
    [ "$reused" -le "$first" ]
    [ "$reused" -ge $((first - 2)) ]
    assert_equal $((second - reused)) "$new"
    [[ $(jq -r '.messages[1].content' saved.json) == '<think>'*'</think>A '* ]]
    ok bmc-gen --chat-template drops.jinja --render-chat --jsonl <saved.json
    refute grep -q think <<<"$(jq -r .prompt <<<"$output")"
    # A greedy answer without the cache.
    jq -c '{messages: .messages[:-1], regex: "<think>[a-z ]{12,20}</think>A [a-z]{3,9} king[.]"}' saved.json >request
    assert_equal "$(bmc-gen -q -m "$(model grimm)" --chat-template drops.jinja --jsonl <request | jq -r .text)" "$(jq -r '.messages[-1].content' saved.json)"
}

@test "Ctrl-C ends an answer or a line, Ctrl-D the conversation" {
    cat >script <<'END'
wait > 
type Tell me all
wait ing
stop
wait [stopped
wait > 
keys half a line
stop
wait Ctrl-D or /quit ends
wait > 
type And?
wait ing
stop
wait [stopped
wait > 
end
END
    converse -n 100000 --kv shift:S=256 --ignore-eos -q --stats stats.json <script
    assert_equal "$status" 0
    assert_equal "$(jq -c '[.finished_cancelled, .sequences, .turns[].finish]' stats.json)" '[2,2,"cancelled","cancelled"]'
}

@test "an answer that repeats itself is ended, and a sentence says so" {
    printf 'wait > \ntype The king\nwait [ended because the answer repeats itself\nwait > \nend\n' >script
    converse -n 300 -q --temp 0.8 --logit-bias 101=1e6 --stats stats.json <script
    assert_equal "$(jq -c '[.finished_repetition, .turns[].generated_tokens, .turns[].finish]' stats.json)" '[1,256,"repetition"]'
}

@test "a hang-up ends the program, and the KV cache is saved; a conversation goes on from it" {
    printf 'wait > \ntype The king\nwait tokens/s]\nwait > \nhang up\n' >script
    converse -n 10 --save-kv said.kv <script
    assert_equal "$status" $((128 + 1))
    ok bmc-convert --verify said.kv
    # During an answer: its first tokens are saved, too.
    printf 'wait > \ntype Tell me all\nwait ing\nhang up\n' >script
    converse -n 100000 --kv shift:S=256 --ignore-eos --save-kv half.kv <script
    assert_equal "$status" $((128 + 1))
    ok bmc-convert --verify half.kv
    [ "$(bmc-convert --info --format json half.kv | jq '.rows[0].tokens')" -gt 20 ]
    { script 'And his son?'; echo end; } >script
    converse -n 10 --load-kv said.kv --save-kv more.kv --stats stats.json <script
    assert_equal "$status" 0
    [ "$(jq '.turns[0].reused_tokens' stats.json)" -ge 16 ]
    assert_equal "$(jq '.turns[0] | .prompt_tokens - .reused_tokens' stats.json)" "$(jq '.turns[0].prefill_tokens' stats.json)"
    ok bmc-convert --verify more.kv
    # The same turns without a terminal.
    bmc-gen -q -m "$(model grimm)" --chat --chat-template chatml -p 'The king' -n 10 --temp 0 --save-kv plain.kv >/dev/null
    bmc-gen -q -m "$(model grimm)" --chat --chat-template chatml -p 'And his son?' -n 10 --load-kv plain.kv >plain
    grep -qF "$(cat plain)" transcript
}

@test "commands, messages of several lines, and what is wrong with them" {
    echo data >other
    printf '\x00\x01' >zero
    jq -n '{messages: [{role: "user", content: "2 + 3?"}, {role: "assistant", tool_calls: [{id: "1"}]}, {role: "tool", content: "5"}]}' >calls.json
    cat >script <<'END'
wait > 
type /help
wait Ctrl-C stops
wait > 
type /nothing
wait there is no command /nothing
type /s
wait /s could be /system, /save, /stats
type /save empty.json
wait there is no message to save
type /load
wait /load needs a name: /load FILE
type /undo now
wait /undo takes no argument
type /undo
wait there is no message to take back
type /regen
wait there is no message to answer
type /file missing
wait missing: cannot open
type /file zero
wait zero: is no text
type /save other
wait other: exists and is no saved conversation
type /save x.kv
wait the KV cache holds nothing to save
type /load other
wait other
type /load calls.json
wait 3 messages
type /reset
wait > 
type /system
wait there is no system prompt
type /system Be kind
type /system
wait system prompt: Be kind
type one\
wait ...
type two
wait tokens/s]
wait > 
type """three
wait ...
type  four
type """
wait tokens/s]
wait > 
type //five
wait tokens/s]
wait > 
type /stats
wait KV cache:
type /undo
wait 2 left
type /stats
wait KV cache:
type //five
wait tokens/s]
wait > 
type /save a.json
wait saved as a.json
type /save a.kv
wait saved as a.kv
type /undo
wait 2 left
type /save b.kv
wait saved as b.kv
type /reset
wait with the same system prompt
type /stats
wait context: 0 of
wait KV cache:
type /load a.json
wait 7 messages
type /stats
wait KV cache:
type /load a.kv
wait goes on after
type /save c.json
wait whose messages are unknown
type /system no
wait and its system prompt with it
type six
wait tokens/s]
wait > 
type /quit
END
    converse -n 4 --stats stats.json <script
    [ "$status" -eq 0 ] || fail "$(cat transcript)"
    assert_equal "$(jq -c '[.messages[] | select(.role != "assistant").content]' a.json)" '["Be kind","one\ntwo","three\n four","/five"]'
    ok bmc-convert --verify a.kv
    ok bmc-convert --verify b.kv
    # After /undo the context is shorter, after /load that of the loaded conversation (and of the beginning of an answer).
    assert_equal "$(sed -n 's/^context: \([0-9]*\) of.*/\1/p' transcript | awk '{ n[NR] = $1 } END { print NR, (n[2] < n[1]), n[3], (n[4] >= n[1]), (n[4] < n[1] + 40) }')" '4 1 0 1 1'
    assert_equal "$(stat -c %a a.json a.kv | uniq)" 600
    assert_equal "$(jq '.save_kv_ms > 0' stats.json)" true
    # What was saved is a request, with a chat format as with a template.
    ok bmc-gen -q -m "$(model grimm)" --chat-template chatml --render-chat --jsonl <a.json
    [[ $(jq -r .prompt <<<"$output") == *$'/five<|im_end|>\n<|im_start|>assistant\n'?*$'<|im_end|>\n<|im_start|>assistant' ]]
    # The last turn continues a.kv, of which all is in the cache but the last token.
    assert_equal "$(jq '.turns[-1] | .prompt_tokens - .reused_tokens == .prefill_tokens and .reused_tokens > 60' stats.json)" true
}

@test "a KV cache of another conversation, a first message that is too long" {
    cat >script <<'END'
wait > 
type one
wait tokens/s]
wait > 
type two
wait tokens/s]
wait > 
type /system Be kind
type /undo
wait 1 left
type /save x.kv
wait none of its answers stands in this one: save it after the next answer
type three
wait tokens/s]
wait > 
type /save x.kv
wait saved as x.kv
end
END
    converse -n 4 <script
    [ "$status" -eq 0 ] || fail "$(cat transcript)"
    ok bmc-convert --verify x.kv
    printf 'wait > \ntype %s\nwait it was not sent; send a shorter one\ntype short\nwait tokens/s]\nend\n' "$(printf 'word %.0s' {1..200})" >script
    converse -n 4 -c 128 <script
    [ "$status" -eq 0 ] || fail "$(cat transcript)"
    grep -Eq 'the message has 2[0-9]* tokens.*; send a shorter one, or begin with a larger -c' <(tr -d '\n' <transcript)
    # beyond the model's own context -c is no help
    printf 'wait > \ntype %s\nwait it was not sent; send a shorter one\nend\n' "$(printf 'a %.0s' {1..1500})" >script
    converse -n 4 -c 128 <script
    refute grep -q 'larger -c' transcript
}

@test "a full context: a sentence, or the oldest turns are left out" {
    script one two three four five six seven eight nine ten >all
    { grep -v '^wait ]' all; echo end; } >script
    converse -n 12 -c 128 -q <script
    grep -q 'the context holds 128: the message was not sent; /undo or /reset makes room, or begin with a larger -c' transcript
    # The message that finds no room is not part of the conversation.
    { grep -v '^wait ]' all; printf 'type /save full.json\nwait saved\nend\n'; } >script
    converse -n 12 -c 128 -q <script
    assert_equal "$(jq -c '[.messages[].role] | [length % 2, last]' full.json)" '[0,"assistant"]'
    assert_equal "$(jq -c '[.messages[] | select(.role == "user").content] | . == ["one", "two", "three", "four", "five", "six", "seven", "eight"][:length]' full.json)" true
    { script one two three four five six | sed 's/^type \(.*\)/type \1 and much more of it/'; printf 'type /stats\nwait left out\nwait KV cache\nend\n'; } >script
    converse -n 12 -c 128 --kv shift --context-shift recompute --stats stats.json <script
    [ "$status" -eq 0 ] || fail "$(cat transcript)"
    assert_equal "$(jq '[.turns[] | .prompt_tokens < 128] | all' stats.json)" true
    assert_equal "$(jq '.turns | length' stats.json)" 6
    # The use of the context where the conversation is longer, sliding and not.
    { script one two three four five six; printf 'type /stats\nwait of which the last 128 are seen\nwait KV cache\nend\n'; } >script
    converse -n 12 -c 128 --kv shift <script
    { script one; printf 'type %s\nwait was not sent\nwait > \ntype /stats\nwait more than the 128 that fit\nwait KV cache\nend\n' "$(printf '%0200d' 0)"; } >script
    converse -n 90 --ignore-eos -c 128 <script
}

@test "with line editing: history, UTF-8, pastes, a small window" {
    "$BMC_BIN/bmc-gen" --version | grep -q libedit || skip "built without libedit"
    echo abc >notes.txt
    cat >script <<'END'
wait > 
type Grüße 你好
wait tokens/s]
wait > 
size 20 5
keys a rather long line that goes on behind the small window\x01\x0b
keys \e[5~!\r
wait tokens/s]
wait > 
keys \e[200~one\rtwo\e[201~\r
wait tokens/s]
wait > 
keys two words\x00\e[2~\e[1;5Dmore \r
wait tokens/s]
wait > 
keys \e[200~a\tb\r\n\tc\e[201~\td\r
wait tokens/s]
wait > 
keys /fi\tno\t\r
wait notes.txt: 4 bytes
wait > 
keys /set dynatemp-e\t2\r
wait dynatemp-exp is 2
wait > 
type of these
wait tokens/s]
wait > 
type /save a.json
wait saved
wait > 
end
END
    TERMINAL=xterm converse -n 4 <script
    [ "$status" -eq 0 ] || fail "$(cat transcript)"
    # A terminal that is not yet in raw mode when the keys come gives LF for CR.
    assert_equal "$(jq -c '[.messages[] | select(.role == "user").content | sub("\n\n"; "\r\n")]' a.json)" '["Grüße 你好","Grüße 你好!","one\ntwo","two more words","a\tb\r\n\tc\td","abc\nof these"]'
}

@test "/set: sampling parameters as options take them, for the next answers" {
    { script 'The king'; printf 'type /set %s\nwait %s\nwait > \n' 'temp 0.9' 'temp is 0.9 from the next answer on' \
        'top_k=5' 'top-k is 5' '--min-p 0' 'min-p is 0' temperature 'temp is 0.9' 'seed 7' 'seed is 7' 'n 6' 'predict is 6' \
        'repeat-last-n -1' 'repeat-last-n is -1' 'dry_multiplier 0.8' 'dry-multiplier is 0.8' 'samplers top_k;temperature' 'samplers is top_k;temperature' \
        'temp hot' '--temp: needs a number from 0 to 100; found "hot"' 'top-p 2' '--top-p: needs a number from 0 to 1; found "2"' 'top-k 1.5' '--top-k: needs a whole number, 0 or more; found "1.5"' \
        'mirostat 1' '--mirostat: "1" is none of 0, 2' 'samplers x' '--samplers: "x" is none of the samplers' 'kv paged' '/set knows no "kv"; there are ' '' 'typical-p            1'
        script 'The king' | sed 1d; printf 'type /save a.json\nwait saved\nend\n'; } >script
    converse -n 9 --ignore-eos <script
    [ "$status" -eq 0 ] || fail "$(cat transcript)"
    # the random numbers of a second request
    assert_equal "$({ echo '{"ids":[5],"n":1}'; jq -c '{messages: .messages[:-1]}' a.json; } | bmc-gen -q --jsonl -m "$(model grimm)" --chat-template chatml -n 6 --ignore-eos \
        --temp 0.9 --top-k 5 --min-p 0 --seed 7 --repeat-last-n -1 --dry-multiplier 0.8 --samplers 'top_k;temperature' | tail -n 1 | jq -r .text)" "$(jq -r '.messages[-1].content' a.json)"
}

@test "exit, quit and bye alone are asked about" {
    printf 'wait > \ntype exit\nwait end the conversation? y ends it, else this is a message: \ntype no\nwait ]\nwait > \ntype bye now\nwait ]\nwait > \ntype /save a.json\nwait saved\nwait > \ntype  Bye \nwait message: \ntype y\n' >script
    converse -n 3 <script
    [ "$status" -eq 0 ] || fail "$(cat transcript)"
    assert_equal "$(jq -c '[.messages[] | select(.role == "user").content]' a.json)" '["exit","bye now"]'
}

@test "-i is refused without a terminal, and with other jobs" {
    expect_error 1 '-i is a conversation at a terminal, but standard input is not one' bmc-gen --chat --chat-template chatml -i </dev/null
    # Before the model is opened, which may be large, or have no chat format.
    expect_error 1 '-i is a conversation at a terminal, but standard input is not one' bmc-gen --chat -i -m "$(model grimm)" </dev/null
    expect_error 1 '-i is a conversation at a terminal, but standard input is not one' bmc-spec --lookup --chat -i -m "$(model grimm)" </dev/null
    expect_error 2 '-i .* goes with --chat' bmc-gen -i
    expect_error 2 'it excludes --jsonl' bmc-gen --chat -i --jsonl
    expect_error 2 'it excludes --jsonl.* -f' bmc-gen --chat -i -f x
    expect_error 2 '--samples excludes -i,' bmc-spec --chat -i --samples 2
}

@test "control characters do not reach a terminal, from any program; a pipe gets the text as it is" {
    m=$(model grimm)
    printf 'a\x1b[31mred\x07\tb\r\xc2\x9b2J\n' >text
    shown=$'a\xef\xbf\xbd[31mred\xef\xbf\xbd\tb\xef\xbf\xbd\xef\xbf\xbd2J'
    ids=$(bmc-gen -m "$m" --tokenize --format jsonl -f text | jq -r '.ids[]' | xargs)
    echo "$ids" >ids
    at_terminal() { TERM=dumb "$BMC_BUILD/tests/pty" "$@" </dev/null | tr -d '\r' | tr '\n' '|'; }
    assert_equal "$(bmc-gen -m "$m" --detokenize -f ids | head -n 1)" "$(head -n 1 text)"
    assert_equal "$(at_terminal "$BMC_BIN/bmc-gen" -m "$m" --detokenize -f ids)" "$shown|"
    for program in bmc-gen 'bmc-spec --lookup'; do
        # shellcheck disable=SC2086
        assert_equal "$(at_terminal "$BMC_BIN"/$program -q -m "$m" -f text --echo -n 1 --regex ';')" "$shown;|"
        # shellcheck disable=SC2086
        assert_equal "$("$BMC_BIN"/$program -q -m "$m" -f text --echo -n 1 --regex ';')" "$(head -n 1 text);"
    done
    # generated text: the choice begins with a character that clears the screen
    assert_equal "$(at_terminal "$BMC_BIN/bmc-gen" -q -m "$m" -p a --choice $'\x1b[2Jb' -n 20)" $'\xef\xbf\xbd[2Jb|'
    [[ $(at_terminal "$BMC_BIN/bmc-gen" -m "$m" --chat --chat-template chatml --render-chat -p $'\x1b[2Jb') == *$'user|\xef\xbf\xbd[2Jb<|im_end|>'* ]]
    [[ $(at_terminal "$BMC_BIN/bmc-gen" -m "$m" --tokenize -f text) != *$'\x1b'* ]]
}
