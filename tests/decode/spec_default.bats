# Speculative decoding of bmc-gen: the output of --no-spec, statistics, and where nothing is drafted.
load ../helper

setup_file() { model grimm >/dev/null; }

# The text of two runs is the same, of which the first drafts.
same() { # OPTION ..
    bmc-gen -m "$(model grimm)" "$@" --stats spec.json >text 2>spec.err || fail "$(cat spec.err)"
    bmc-gen -m "$(model grimm)" "$@" --no-spec --stats plain.json >plain 2>plain.err || fail "$(cat plain.err)"
    cmp text plain || fail "another text: $*"
    jq -se '(.[0].logits_hash == .[1].logits_hash) and .[0].accepted > 0 and .[0].steps < .[1].decode_tokens and
        [.[0].drafter, .[0].speculation, .[1].drafter, .[1].speculation, .[1].drafted] == ["suffix", "chain", null, "off", 0]' spec.json plain.json ||
        fail "$*: $(cat spec.json plain.json)"
}

@test "text, log-probabilities and logits are those of --no-spec, which says so" {
    same -p "Once upon a time" -n 250 --ids
    grep -q '^speculation      = suffix, chain of at most 32: [1-9]' spec.err
    grep -qx 'speculation      = off: --no-spec' plain.err
    same -p "the king and the king and the king and" -n 60 --temp 0.5 --seed 3
    jq -nc 'range(4) | {prompt: "The king said, the king said, the king", n: (60 + 9 * .), temperature: (0.3 * .), seed: .}' >in
    same --jsonl -f in -np 3 --logprobs 2
    same -p "yes no yes no yes no" -n 60 --regex "( (yes|no))*"
}

@test "where nothing repeats, nothing is verified; beams, OpenBLAS and draft lengths of one token draft nothing" {
    ok bmc-gen -q -m "$(model grimm)" -p x -n 200 --temp 50 --top-k 0 --top-p 1 --min-p 0 --ignore-eos --stats stats.json
    jq -e '.drafted <= 4' stats.json || fail "$(cat stats.json)"
    bmc-gen -m "$(model grimm)" -p "Once upon a time" -n 8 --beams 2 2>err >text
    grep -qx 'speculation      = off: beam search' err
    for option in --isa --attn; do
        bmc-gen -m "$(model grimm)" -p "Once upon a time" -n 8 $option blas 2>err >text
        grep -qx "speculation      = off: $option blas" err || fail "$(cat err)"
    done
    ok bmc-gen -q -m "$(model grimm)" -p "a b a b a b" -n 1 --stats stats.json
    jq -e '.drafted == 0 and .speculation == "chain"' stats.json
}
