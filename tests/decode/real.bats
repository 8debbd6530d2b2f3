# Real models: tokens, rendered chats, greedy continuations and log-probabilities are those of transformers, and answers under --chat
# do not end in loops.
#
# BMC_REAL is the folder of the GGUF files that tests/fixtures/make_real.py lists (default models.d/real); `make real-model` fetches the
# smallest one. Tests use those that are there; make check says at the end how many ran.
load ../helper

REAL=${BMC_REAL:-$ROOT/models.d/real}
WANTED=$FIXTURES/real.json

# The file of a real model, converted again when bmc-convert has changed.
real() { echo "$BMC_BUILD/models/real-$1.bmc"; } # NAME

setup_file() {
    local name
    for name in $(jq -r keys[] "$WANTED"); do
        [ -e "$REAL/$name.gguf" ] || continue
        echo "$name" >>"$BATS_FILE_TMPDIR/there"
        [ "$(real "$name")" -nt "$BMC_BIN/bmc-convert" ] && [ "$(real "$name")" -nt "$REAL/$name.gguf" ] && continue
        mkdir -p "$BMC_BUILD/models"
        bmc-convert -q "$REAL/$name.gguf" -o "$(real "$name")"
    done
}

teardown_file() {
    local there=$BATS_FILE_TMPDIR/there ran=$BATS_FILE_TMPDIR/ran
    if [ -s "$ran" ]; then
        echo "real models: $(wc -l <"$ran") tests ran with $(paste -sd, "$there" | sed 's/,/ and /g')"
    else
        echo "real models: no tests ran, since $REAL has none of the GGUF files in tests/fixtures/real.json (make real-model fetches one)"
    fi >"$BMC_BUILD/real-tests"
}

# Sets `models`, the names of the models that are there.
with_real_models() {
    [ -e "$BATS_FILE_TMPDIR/there" ] || skip "$REAL has no real model: make real-model fetches one"
    mapfile -t models <"$BATS_FILE_TMPDIR/there"
    echo "$BATS_TEST_NUMBER" >>"$BATS_FILE_TMPDIR/ran"
}

wanted() { command jq -c --arg name "$1" ".[\$name] | $2" "$WANTED"; } # NAME FILTER

@test "tokens of texts, and chats as their templates render them" {
    with_real_models
    for name in "${models[@]}"; do
        wanted "$name" '.texts[].text' >in
        [ "$(wc -l <in)" -ge 3 ]
        while read -r one; do
            bmc-gen -q -m "$(real "$name")" -f <(jq -r . <<<"$one") -n 0 --echo --ids
        done <in | tr -s ' ' >got
        wanted "$name" '.texts[].ids | map(tostring) | join(" ")' | jq -r . | diff - got || fail "$name"
        wanted "$name" '.chats[] | {messages}' >in
        bmc-gen -q -m "$(real "$name")" --jsonl --render-chat <in | jq -c .prompt >got
        wanted "$name" '.chats[].text' | jq -c . | diff - got || fail "$name"
    done
}

@test "greedy continuations and their log-probabilities in f32, as a batch" {
    with_real_models
    for name in "${models[@]}"; do
        wanted "$name" '.greedy[] | {ids, n: (.greedy | length), logprobs: 1}' >in
        [ "$(wc -l <in)" -ge 4 ]
        bmc-gen -q -m "$(real "$name")" --precision f32 --jsonl -np 4 <in >out
        jq -c .ids out | diff <(wanted "$name" '.greedy[].greedy') - || fail "$name"
        jq -s --argjson wanted "$(wanted "$name" '[.greedy[].logprobs]')" \
            '[[map(.logprobs | map(.logprob)), $wanted] | transpose[] | transpose[] | (.[0] - .[1]) | fabs] | max' out >far
        jq -e '. < 0.002' far || fail "$name: log-probabilities differ by $(cat far)"
    done
}

@test "the mean log-probability of a text, in f32 and by default" {
    with_real_models
    for name in "${models[@]}"; do
        wanted "$name" '.scored | {ids}' >in
        want=$(wanted "$name" .scored.mean_logprob)
        for way in '--precision f32' ''; do
            # shellcheck disable=SC2086 # words
            got=$(bmc-gen -q -m "$(real "$name")" $way --score --jsonl --summary <in | jq .mean_logprob)
            jq -ne "($got - $want) | fabs < (if \"$way\" == \"\" then 0.02 else 0.0005 end)" >/dev/null || fail "$name, $way: $got, $want"
        done
    done
}

# Prints the first phrase of 20 ids that a line has three times.
thrice() { # <LINES OF IDS
    awk '{
        delete seen
        for (i = 1; i + 19 <= NF; i++) {
            phrase = $i
            for (j = i + 1; j < i + 20; j++)
                phrase = phrase " " $j
            if (++seen[phrase] == 3) { print NR ": " phrase; next }
        }
    }'
}

@test "answers under the defaults of --chat do not repeat phrases of 20 tokens three times" {
    with_real_models
    printf '%s ' $(seq 1 20) 0 $(seq 1 20) 0 $(seq 1 20) | thrice | grep -q '^1: 1 2 3 .* 20$' # the check finds one
    name=SmolLM2-135M-Instruct.Q4_1
    [[ " ${models[*]} " == *" $name "* ]] || skip "no $name"
    questions=$([ -n "$BMC_FULL" ] && echo 30 || echo 3)
    head -n "$questions" "$FIXTURES/questions.txt" | jq -cR '{messages: [{role: "user", content: .}], max_tokens: 300}' >in
    assert_equal "$(wc -l <in)" "$questions"
    bmc-gen -m "$(real "$name")" --chat --jsonl -np 15 --stats stats.json <in 2>said >out
    assert_equal "$(jq -c '[.sampling_from, .temp, .repeat_penalty]' stats.json)" '["chat",0.7,1.1]'
    run thrice < <(jq -r '.ids | map(tostring) | join(" ")' out)
    assert_output ""
}
