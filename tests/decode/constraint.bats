# Constrained output: schemas, grammars, regular expressions and choices, under every way of decoding.
load ../helper

setup_file() { model grimm >/dev/null; }
setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    m=$(model grimm)
    cat >person.json <<'END'
{"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
 "tags": {"type": "array", "items": {"enum": ["a", "b\"c"]}, "maxItems": 3}}, "required": ["name", "age"]}
END
    printf 'root ::= ("the " who " said " [a-z ]{4,12} "." "\\n"?)+\nwho ::= "king" | "queen" | who2\nwho2 ::= "fox"\n' >story.gbnf
}

# Fails unless each line is an object as person.json describes it.
assert_persons() { # LINE..
    for line in "$@"; do
        jq -e '(.name | type == "string" and length <= 20) and (.age | type == "number" and . == floor and . >= 0 and . <= 120)
            and ((.tags // []) | length <= 3 and all(. == "a" or . == "b\"c")) and (keys - ["name", "age", "tags"] == [])' <<<"$line" >verdict || fail "$line"
    done
}

@test "what constraints accept and reject, and masks, against other implementations" {
    run "$BMC_BUILD/tests/test_constraint" "$FIXTURES/constraints.jsonl"
    [ "$status" -eq 0 ] || fail "$output"
    [[ $output =~ ([0-9]+)' checks, 0 failed'$ ]]
    [ "${BASH_REMATCH[1]}" -ge 4000 ]
}

@test "options: a schema as a file and as text, a grammar, a regular expression, choices" {
    for seed in 1 2 3; do
        ok bmc-gen -q -m "$m" -p "The king" --json-schema person.json --temp 1.5 --top-k 0 --top-p 1 --min-p 0 --seed $seed -n 200
        assert_persons "$(tr -d '\n' <<<"$output")"
        ok bmc-gen -q -m "$m" -p "The king" -j "$(cat person.json)" --temp 1.5 --top-k 0 --top-p 1 --min-p 0 --seed $seed -n 200
        assert_persons "$(tr -d '\n' <<<"$output")"
    done
    ok bmc-gen -q -m "$m" -p "Then" --grammar story.gbnf -n 30
    grep -Exq 'the (king|queen|fox) said [a-z ]{4,12}\.' <<<"$(head -1 <<<"$output")"
    ok bmc-gen -q -m "$m" -p "Call" --regex '\d{3}-\d{4}' --temp 2
    [[ $output =~ ^[0-9]{3}-[0-9]{4}$ ]]
    ok bmc-gen -q -m "$m" -p "Yes?" --choice 'yes|no|a\|b'
    [[ $output = yes || $output = no || $output = 'a|b' ]]
    ok bmc-gen -q -m "$m" -p "Yes?" --choice 'a\|b' --temp 1
    assert_output 'a|b'
}

@test "requests have constraints of their own, and OpenAI's response_format" {
    jq -nc '{id: "s", prompt: "A", json_schema: {type: "integer", minimum: 7, maximum: 9}},
        {id: "g", prompt: "A", grammar: "root ::= \"x\" root | \"y\"", n: 50, temp: 1},
        {id: "r", prompt: "A", regex: "[ab]{3}"},
        {id: "c", prompt: "A", choice: ["one", "two"]},
        {id: "o", prompt: "A", response_format: {type: "json_object"}, n: 60},
        {id: "f", prompt: "A", response_format: {type: "json_schema", json_schema: {name: "n", strict: true, schema: {const: "k"}}}},
        {id: "t", prompt: "A", response_format: {type: "text"}, n: 2},
        {id: "d", prompt: "A", json_schema: null}' >in
    ok bmc-gen -q -m "$m" --jsonl -f in --regex 'default'
    jq -rc '[.id, .text, .finish]' <<<"$output" >results
    text() { jq -r --arg id "$1" 'select(.[0] == $id) | .[1]' results; }
    [[ $(text s) =~ ^[789]$ ]]
    [[ $(text g) =~ ^x*y$ ]] || [ "$(jq -r 'select(.[0] == "g") | .[2]' results)" = length ]
    [[ $(text r) =~ ^[ab]{3}$ ]]
    [[ $(text c) = one || $(text c) = two ]]
    [[ $(text o) = '{'* ]]
    assert_equal "$(text f)" '"k"'
    assert_equal "$(text d)" default
    assert_equal "$(jq -r 'select(.[0] == "d" or .[0] == "f" or .[0] == "s") | .[2]' results | sort -u)" eos
    jq -nc '{id: 1, prompt: "A", regex: "a", choice: ["b"]}, {id: 2, prompt: "A", json_schema: {type: "array", items: {not: {}}}},
        {id: 3, prompt: "A", response_format: {type: "xml"}}, {id: 4, prompt: "A", choice: [1]}, {id: 5, prompt: "A", grammar: "root ::= root"}, {id: 6, prompt: "A", regex: "ok"}' >bad
    run --separate-stderr bmc-gen -q -m "$m" --jsonl -f bad
    [ "$status" -eq 1 ]
    assert_equal "$(jq -r 'select(.id == 6) | .text' <<<"$output")" ok
    for expected in 'exclude each other' 'at #/items: the keyword "not" is not supported' 'the type "xml" is none of' 'strings are expected' 'matches no text'; do
        [[ $output = *"${expected//\"/\\\"}"* ]] || fail "$expected"
    done
}

@test "masks come before truncation: the distribution is the model's, renormalised" {
    # With --top-k 1, sampling takes the best allowed token, as greedy decoding does.
    ok bmc-gen -q -m "$m" -p "The king" --json-schema person.json -n 200
    want=$output
    ok bmc-gen -q -m "$m" -p "The king" --json-schema person.json -n 200 --temp 3 --top-k 1 --seed 5
    assert_output "$want"
    # Frequencies of two first tokens, in the ratio of their probabilities without a constraint.
    jq -nc 'range(3000) | {id: ., prompt: "The king", choice: [" had", " was"], temp: 1, top_k: 0, top_p: 1, min_p: 0}' >in
    bmc-gen -q -m "$m" --jsonl -np 32 -f in | jq -r .text | sort | uniq -c | awk '{ n[$2] = $1 } END { print n["had"] / (n["had"] + n["was"]) }' >share
    jq -nc '{prompt: "The king", n: 1, logprobs: 200}' | bmc-gen -q -m "$m" --jsonl |
        jq '.logprobs[0].top | map(select(.piece == " had" or .piece == " was") | {(.piece): (.logprob | exp)}) | add | .[" had"] / (.[" had"] + .[" was"])' >probability
    awk -v share="$(cat share)" -v p="$(cat probability)" 'BEGIN { d = share - p; exit !(d * d < 0.0016) }' || fail "$(cat share probability)"
}

@test "speculation gives the same ids: chains, trees, heads, lookup, batches" {
    draft=$ROOT/models.d/grimm-draft.bmc
    for constraint in "--json-schema person.json" "--grammar story.gbnf" "--regex [A-Z][a-z]+(,?\x20[a-z]{1,7}){5,9}\."; do
        # shellcheck disable=SC2086
        ok bmc-gen -q -m "$m" -p "Once upon a time" $constraint -n 60 --ids
        want=$output
        for how in "-d $draft -k 5" "-d $draft --tree 12" "--lookup -k 4" "--recycle --tree 8" "-d $ROOT/models.d/grimm-eagle.bmc --tree 12 --dynamic" "-d $ROOT/models.d/grimm-pard.bmc -k 4"; do
            # shellcheck disable=SC2086
            ok bmc-spec -q -m "$m" -p "Once upon a time" $constraint -n 60 --ids --always $how
            assert_equal "$how: $output" "$how: $want"
        done
    done
    # masked drafts: a draft model that is the model itself has nearly all of its tokens accepted
    bmc-spec -q -m "$m" -d "$m" -p "Once upon a time" --json-schema person.json -n 60 -k 4 --always --stats stats.json >out
    jq -e '.accepted >= 0.9 * .drafted and .drafted > 10' stats.json >verdict || fail "$(cat stats.json)"
}

@test "sampled speculation keeps the constraint" {
    jq -nc --slurpfile s person.json 'range(24) | {id: ., prompt: "The king", json_schema: $s[0], temp: 1.5, top_k: 0, top_p: 1, min_p: 0, n: 300}' >in
    ok bmc-spec -q -m "$m" -d "$ROOT/models.d/grimm-draft.bmc" --jsonl -np 6 --always -k 4 -f in
    assert_equal "$(jq -r .finish <<<"$output" | sort | uniq -c | xargs)" "24 eos"
    mapfile -t lines < <(jq -r '.text | gsub("\n"; " ")' <<<"$output")
    [ ${#lines[@]} -eq 24 ]
    assert_persons "${lines[@]}"
}

@test "constraints behind markers, and thoughts of limited length: with drafts and in batches" {
    run "$BMC_BUILD/tests/test_phases"
    assert_success
    [[ ${lines[-1]} =~ ^([0-9]+)' checks, 0 failed'$ ]]
    [ "${BASH_REMATCH[1]}" -ge 100 ]
}

@test "beams obey the constraint" {
    ok bmc-gen -q -m "$m" -p "Once upon" --choice ' a time| the king| midnight' --beams 3 --n-best 3
    assert_equal "$(wc -l <<<"$output") $(grep -vxE ' a time| the king| midnight' <<<"$output")" '3 ' # several ways to spell one
    assert_equal "$(head -1 <<<"$output")" ' a time'
    jq -nc --slurpfile s person.json '{prompt: "The king", json_schema: $s[0], n: 120}' >in
    ok bmc-gen -q -m "$m" --jsonl -f in --beams 3
    assert_persons "$(jq -r '.text | gsub("\n"; " ")' <<<"$output")"
    expect_error 1 'leave ignore_eos out' bmc-gen -q -m "$m" -p "The king" --choice 'a|b' --beams 2 --ignore-eos
}

@test "a constraint starts anew after a snapshot; ignore_eos leaves the end to the grammar" {
    ok bmc-gen -q -m "$m" -p "Once" --choice ' upon' --save-kv one.kv
    assert_output ' upon'
    ok bmc-gen -q -m "$m" --load-kv one.kv --choice ' a time'
    assert_output ' a time'
    ok bmc-gen -q -m "$m" -p "Once" --regex '(ab)*c' --ignore-eos --logit-bias "$(bmc-gen -q -m "$m" --tokenize --format jsonl <<<c | jq '.ids[0]')=-30" -n 20
    [[ $output =~ ^(ab)*c?$ ]] || [[ $output =~ ^(ab)*a$ ]]
    ok bmc-gen -q -m "$m" -p "Once" --regex 'ab' --ignore-eos
    assert_output ab
}

@test "large constraints take time in proportion to their size, or are refused before any text" {
    perl -MJSON::PP -e '
        my $a = {type => "string"};
        my @consts = map {{type => "object", properties => {k => {const => "k$_"}}, required => ["k"]}} 1 .. 3000;
        my @free = map {{type => "object", properties => {"p$_" => $a}, required => ["p$_"]}} 1 .. 3000;
        my %case = (
            enum => {enum => [map {"value $_"} 1 .. 20000]},
            enums => {allOf => [map {{enum => [1 .. 20000]}} 1 .. 2]},
            oneof => {oneOf => \@consts},
            length => {type => "string", maxLength => 100000000},
            free => {oneOf => \@free},
            product => {allOf => [map {{anyOf => [map {{minLength => $_}} 1 .. 60]}} 1 .. 4]},
            recursive => {oneOf => [map {{"\$ref" => "#/\$defs/$_"}} "a", "b"], "\$defs" => {map {
                my $name = $_;
                ($name => {type => "object", required => ["x", "y", "z"], properties => {map {($_ => {"\$ref" => "#/\$defs/$name"})} "x", "y", "z"}})
            } "a", "b"}},
            strings => {type => "object", properties => {map {("p$_" => {type => "string", maxLength => 900, pattern => "^(a|b)*a(a|b){8}\$"})} 1 .. 900}},
        );
        print encode_json({id => $_, prompt => "A", n => 2, temp => 0, json_schema => $case{$_}}), "\n" for sort keys %case;
        print encode_json({id => "choice", prompt => "A", n => 2, temp => 0, choice => [map {"x$_"} 1 .. 20000]}), "\n";
        print encode_json({id => "nested", prompt => "A", n => 1, temp => 0, grammar => q{root ::= "There was a cat " ((("a"? "b"?){56}){56}){56} "c"}}), "\n";
        print encode_json({id => "rules", prompt => "A", n => 2, temp => 0, grammar => join("", "root ::= r1\n", map {"r$_ ::= \"a\" r" . ($_ + 1) . " | \"b\"\n"} 1 .. 9999) . "r10000 ::= \"c\"\n"}), "\n"' >in
    (ulimit -t 20 && bmc-gen -q -m "$m" --jsonl -f in >out) || [ $? -eq 1 ]
    assert_equal "$(jq -r 'select(.error | not) | .id' out | sort | paste -sd' ')" "choice enum enums length oneof rules"
    assert_equal "$(jq -r 'select(.error) | .id' out | sort | paste -sd' ')" "free nested product recursive strings"
    assert_equal "$(jq -r 'select(.error) | .error' out | grep -Ec 'too (many|complex|large)')" 5
    assert_equal "$(jq -r 'select(.error) | .text // ""' out | tr -d '\n')" ""
}

@test "unsupported and hostile constraints end with one sentence" {
    expect_error 2 'at #/properties/a: the keyword "not" is not supported' bmc-gen -q -m "$m" -p a --json-schema '{"properties": {"a": {"not": {}}}}'
    expect_error 1 'No such file' bmc-gen -q -m "$m" -p a --json-schema none.json
    expect_error 1 'No such file' bmc-gen -q -m "$m" -p a --grammar none.gbnf
    expect_error 2 '^bmc-gen: --choice: alternative 2 of the choice is empty' bmc-gen -q -m "$m" -p a --choice 'a||b'
    expect_error 2 'exclude each other' bmc-gen -q -m "$m" -p a --choice a --regex b
    expect_error 2 'go with generation only' bmc-gen -q -m "$m" --score --regex b
    head -c 60000 /dev/zero | tr '\0' '(' >deep
    expect_error 2 'nested too deeply' bmc-gen -q -m "$m" -p a --regex "$(cat deep)"
    { printf 'root ::= '; cat deep; } >deep.gbnf
    expect_error 1 'nested too deeply' bmc-gen -q -m "$m" -p a --grammar deep.gbnf
    tr '(' '[' <deep >deep.json
    expect_error 1 'bmc-gen: deep.json: JSON Schema: .*maximum parsing depth' bmc-gen -q -m "$m" -p a --json-schema deep.json
    echo 'root ::= root "a" | "b"' >left.gbnf
    expect_error 1 'left recursion' bmc-gen -q -m "$m" -p a --grammar left.gbnf
    expect_error 2 'too large' bmc-gen -q -m "$m" -p a --regex '((a{1000}){1000}){1000}'
    expect_error 1 'the empty text only' bmc-gen -q -m "$m" -p a --regex '(){5}'
    ok bmc-gen -q -m "$m" -p a --regex '(a*)*' -n 3 # endless, but not wrong
    [[ $output =~ ^a*$ ]]
}
