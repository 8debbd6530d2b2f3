# Conversations that --session keeps. tests/unit/pty.c plays the user.
load ../helper

setup() {
    mkdir "$BATS_TEST_TMPDIR/here" && cd "$BATS_TEST_TMPDIR/here" || return 1
    export XDG_STATE_HOME=$PWD/state
    kept=state/bmc/sessions/tale
}

# Says each line in a run of its own program.
converse() { # ARG.. -- LINE..
    local args=()
    while [ "$1" != -- ]; do
        args+=("$1")
        shift
    done
    shift
    printf 'wait > \n' >script
    for line in "$@"; do printf 'type %s\nwait ]\nwait > \n' "$line"; done >>script
    echo end >>script
    status=0
    TERM=dumb "$BMC_BUILD/tests/pty" "$BMC_BIN/bmc-gen" -m "$(model grimm)" --chat --chat-template chatml -n 12 -i "${args[@]}" <script >raw 2>pty.err || status=$?
    tr -d '\r' <raw >transcript
    [ ! -s pty.err ] || fail "$(cat pty.err transcript)"
}

# A run that ends at once, with this sentence, and with 2 if a name is wrong.
refused() { # SENTENCE ARG..
    local sentence=$1
    shift
    echo end >script
    status=0
    TERM=dumb "$BMC_BUILD/tests/pty" "$BMC_BIN/bmc-gen" -m "$(model grimm)" --chat --chat-template chatml -i "$@" <script >raw 2>pty.err || status=$?
    [ "$status" -eq $((1 + $(grep -c "cannot name" raw))) ] && grep -q "$sentence" raw || fail "status $status: $(cat raw pty.err)"
}

answers() { jq -c '[.messages[] | select(.role == "assistant").content]' "$1"; }

@test "a conversation goes on where it ended, with the answers of one that was not interrupted" {
    converse --temp 0.9 --seed 3 --session whole -- 'The king' 'And the daughter?' 'And then?'
    converse --temp 0.9 --seed 3 --session tale --stats before -- 'The king'
    converse --temp 0.9 --session tale --stats stats -- 'And the daughter?'
    grep -q '^session tale: goes on after 2 messages' transcript
    assert_equal "$(jq '.turns[0].reused_tokens' stats)" $(($(jq '.turns[0] | .prompt_tokens + .generated_tokens' before) - 1))
    # Without the KV cache it is computed again.
    rm $kept/cache.kv
    converse --temp 0.9 --session tale -- 'And then?'
    assert_equal "$(answers $kept/conversation.json)" "$(answers state/bmc/sessions/whole/conversation.json)"
    assert_equal "$(stat -c %a state/bmc/sessions $kept $kept/conversation.json)" $'700\n700\n600'
    ok bmc-gen --list-sessions
    [[ ${lines[*]} =~ tale.*\ 6\ .*whole.*\ 6\  ]] || fail "$output"
    ok bmc-gen --remove-session tale
    [ ! -e $kept ]
    expect_error 1 'there is no conversation "tale"' bmc-gen --remove-session tale
}

@test "a session of another model, another template, another process or a bad name is refused" {
    converse --temp 0 --session tale -- 'The king'
    sed -i 's/"model_id": "[0-9a-f]*"/"model_id": "00"/' $kept/conversation.json
    refused 'the conversation "tale" is with another model, .*grimm.bmc: give that with -m' --session tale
    for bad in ../x .x '' a/b "$(printf %065d 0)"; do
        refused 'cannot name a session: at most 64 letters' --session "$bad"
    done
    rm -r state
    converse --temp 0 --session tale -- 'The king'
    refused 'has another chat template: give that with --chat-template' --session tale --chat-template zephyr
    exec 5<$kept
    flock -x 5
    refused 'is open in another process' --session tale
    expect_error 1 'is open in another process' bmc-gen --remove-session tale
    exec 5<&-
    chmod 755 $kept
    refused 'others can use the folder' --session tale
    chmod 700 $kept
    for bad in '{' '[]' '{"messages":[1]}'; do
        echo "$bad" >$kept/conversation.json
        refused 'conversation.json: ' --session tale
    done
    expect_error 2 '--session goes with --interactive' bmc-gen --session x -p x
    XDG_STATE_HOME='' HOME='' expect_error 1 'neither XDG_STATE_HOME nor HOME' bmc-gen --list-sessions
    ok bmc-gen --list-sessions
}

@test "a conversation file with wrong ids or ends is refused" {
    converse --temp 0 --session tale -- 'The king'
    cp $kept/conversation.json good
    for change in '.ids[0] = 99999999' '.ids[0] = -1' '.ids[0] = "x"' '.ends = [1, 100000]' '.ends = [100000, 1]' '.ends = [8, 8, 4, 4]'; do
        jq -c "$change" good >$kept/conversation.json
        refused 'conversation.json: ' --session tale
    done
}
