# Samplers beyond top-k, top-p and min-p: options, members of requests, order, speculation.
load ../helper

setup_file() { for name in grimm grimm-draft; do model "$name" >/dev/null; done; }
setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    m=$(model grimm)
}

sampled() { bmc-gen -q -m "$m" -p "The king" -n 30 --temp 1.2 --seed 4 "$@"; }

@test "settings that leave one candidate are greedy, those that are off change nothing" {
    ok bmc-gen -q -m "$m" -p "The king" -n 30
    greedy=$output
    for option in "--top-n-sigma 0.0001" "--samplers top_k;temperature --top-k 1" "--samplers temperature;top_p --top-p 0"; do
        # shellcheck disable=SC2086
        assert_equal "$option: $(sampled $option)" "$option: $greedy"
    done
    plain=$(sampled)
    [ "$plain" != "$greedy" ]
    assert_equal "$(sampled --top-n-sigma 0 --typical-p 1 --xtc-probability 0 --dynatemp-range 0)" "$plain"
    assert_equal "$(sampled --xtc-probability 1 --xtc-threshold 0.6)" "$plain"
    assert_equal "$(sampled --samplers 'dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature')" "$plain"
    for option in "--top-n-sigma 0.5" "--typical-p 0.2" "--xtc-probability 1" "--dynatemp-range 1.1" "--samplers temperature;top_k"; do
        # shellcheck disable=SC2086
        refute [ "$(sampled $option)" = "$plain" ]
    done
}

@test "DRY ends repetitions, Mirostat adapts to its target: options and members of requests" {
    # greedy decoding repeats itself; with DRY no four tokens occur twice
    repeats() { jq '[range(0; length - 3) as $i | .[$i:$i + 4]] | length - (unique | length)' <<<"$1"; }
    jq -nc '{prompt: "The king", n: 120, temperature: 0}, {prompt: "The king", n: 120, temperature: 0, dry_multiplier: 1000, dry_allowed_length: 1, dry_penalty_last_n: -1, dry_sequence_breakers: []}' >in
    ok bmc-gen -q -m "$m" --jsonl --ignore-eos -f in
    [ "$(repeats "$(sed -n 1p <<<"$output" | jq -c .ids)")" -gt 0 ]
    assert_equal "$(repeats "$(sed -n 2p <<<"$output" | jq -c .ids)")" 0
    want=$(sed -n 2p <<<"$output" | jq -r .text)
    ok bmc-gen -q -m "$m" -p "The king" -n 120 --ignore-eos --dry-multiplier 1000 --dry-allowed-length 1 --dry-sequence-breaker none
    assert_equal "$output" "$want"
    ok bmc-spec -q -m "$m" -d "$(model grimm-draft)" -p "The king" -n 120 --ignore-eos --dry-multiplier 1000 --dry-allowed-length 1 --dry-sequence-breaker none --always -k 4
    assert_equal "$output" "$want"
    # Long lists of sequence breakers cost little: those that begin with another one, and those of no token.
    jq -nc '{prompt: "The king", n: 40, dry_multiplier: 2} | ., (. + {dry_sequence_breakers: ([range(16000) | "no\(.)"] + [("x" * 9000000), ",", ", and", ",,"])}),
        (. + {dry_sequence_breakers: [","]}), (. + {dry_sequence_breakers: [range(16385) | "a"]})' >many
    some_fail 1 4 bmc-gen -q -m "$m" --jsonl -f many
    assert_equal "$(jq -c .ids <<<"$output" | sed -n 2p)" "$(jq -c .ids <<<"$output" | sed -n 3p)"
    [ "$(jq -c .ids <<<"$output" | sed -n 1p)" != "$(jq -c .ids <<<"$output" | sed -n 2p)" ]
    assert_equal "$(jq -r '.error // empty' <<<"$output")" 'line 4: "dry_sequence_breakers" has 16385 strings: at most 16384 are possible'
    # sequence breakers: the default ones, of the run, of a request
    for how in '--dry-sequence-breaker ,' ''; do
        # shellcheck disable=SC2086
        refute [ "$(bmc-gen -q -m "$m" -p "The king" -n 120 --ignore-eos --dry-multiplier 1000 --dry-allowed-length 1 $how)" = "$want" ]
    done
    jq -nc '{prompt: "The king", n: 40, dry_multiplier: 2, dry_sequence_breakers: [","]}, {prompt: "The king", n: 40, dry_multiplier: 2}' >in
    bmc-gen -q -m "$m" --jsonl -f in | jq -r .text >members
    assert_equal "$(sed -n 1p members)" "$(bmc-gen -q -m "$m" -p "The king" -n 40 --dry-multiplier 2 --dry-sequence-breaker ,)"
    assert_equal "$(sed -n 2p members)" "$(bmc-gen -q -m "$m" -p "The king" -n 40 --dry-multiplier 2)"
    # a low target is greedy, the state of a sequence does not depend on others in the batch
    assert_equal "$(sampled --mirostat 2 --mirostat-ent 0 --mirostat-lr 1)" "$(bmc-gen -q -m "$m" -p "The king" -n 30)"
    jq -nc 'range(6) | {prompt: "The king", n: 30, temperature: 1.2, mirostat: 2, mirostat_tau: 2, mirostat_eta: 0.3, seed: (4 + .)}' >in
    for np in 1 5; do bmc-gen -q -m "$m" --jsonl -np $np -f in >out-$np; done
    equal_files out-1 out-5
    bmc-spec -q -m "$m" -d "$(model grimm-draft)" --jsonl -np 3 --always -k 3 -f in >out-spec
    equal_files out-1 out-spec
    expect_error 1 'Mirostat adapts to each token' bmc-spec -q -m "$m" -d "$(model grimm-draft)" -p a --temp 1 --mirostat 2 --spec-sampling rejection
    echo '{"prompt": "a", "mirostat": 1}' >bad
    run --separate-stderr bmc-gen -q -m "$m" --jsonl -f bad
    assert_output --partial 'version 2 is implemented'
}

@test "requests have them as members" {
    jq -nc '{prompt: "The king", n: 30, temp: 1.2, seed: 4, typical_p: 0.2, xtc_probability: 0.5, xtc_threshold: 0.2, dynatemp_range: 0.4, dynatemp_exponent: 2, top_n_sigma: 3,
        samplers: ["typ_p", "xtc", "top_n_sigma", "temperature"]}' >in
    ok bmc-gen -q -m "$m" --jsonl -f in
    assert_equal "$(jq -r .text <<<"$output")" "$(sampled --typical-p 0.2 --xtc-probability 0.5 --xtc-threshold 0.2 --dynatemp-range 0.4 --dynatemp-exp 2 --top-n-sigma 3 --samplers 'typ_p;xtc;top_n_sigma;temperature')"
    jq -nc '{prompt: "a", samplers: ["top_k", "tfs"]}' >bad
    run --separate-stderr bmc-gen -q -m "$m" --jsonl -f bad
    [ "$status" -eq 1 ]
    assert_output --partial 'is none of the samplers'
    expect_error 2 'is none of the samplers' bmc-gen --samplers tfs -p a
}

@test "rejection sampling has the distribution of plain sampling" {
    # the first two tokens of many samples; XTC leaves out the most likely ones half of the time
    jq -nc 'range(1000) | {id: ., prompt: "The king", n: 3, temp: 0.9, top_k: 6, top_p: 1, min_p: 0, xtc_probability: 0.5, xtc_threshold: 0.1, seed: 11}' >in
    bmc-gen -q -m "$m" --jsonl -np 32 -f in | jq -r '.ids[1]' | sort | uniq -c | awk '{ print $2, $1 }' >plain
    bmc-spec -q -m "$m" -d "$(model grimm-draft)" --jsonl -np 32 --always -k 2 --spec-sampling rejection -f in | jq -r '.ids[1]' | sort | uniq -c | awk '{ print $2, $1 }' >drafted
    # total variation distance of two samples of 1000 of the same distribution over a few dozen tokens: about 0.06
    awk 'NR == FNR { a[$1] = $2; next } { b[$1] = $2 } END { for (t in a) d += a[t] > b[t] ? a[t] - b[t] : b[t] - a[t]; for (t in b) if (!(t in a)) d += b[t]; print d / 2000; exit !(d / 2000 < 0.12) }' plain drafted || fail "$(paste plain drafted)"
}
