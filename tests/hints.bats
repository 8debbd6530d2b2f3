# What people expect who come from other programs: hints on standard error, special tokens in prompts, progress at a
# terminal, and the README's list of what is missing.
load helper

setup_file() {
    for name in grimm grimm-draft; do model "$name" >/dev/null; done
}

once='Once upon a time'
hint='-b counts sequences, not tokens'

# Standard error of a run with statistics, without the statistics.
said() { "$@" --stats stats.json 2>&1 >/dev/null </dev/null | sed '/^$/,$d'; }

@test "-b in tokens, as llama.cpp has it, gets a hint: for one sequence any above 1, for requests above 256; -q hides it" {
    m=$(model grimm)
    for option in '-b 2048' '--batch 2' '-np 4' '--parallel=512'; do
        # shellcheck disable=SC2086
        text=$(said bmc-gen -m "$m" -p "$once" -n 1 $option)
        value=${option##*[ =]}
        assert_equal "$text" "bmc-gen: -b $value: $hint, and this run has 1; for tokens of a prompt at a time use --chunk"
    done
    assert_equal "$(said bmc-gen -m "$m" -p "$once" --score -b 512 | head -n 1 | cut -d ';' -f 1)" "bmc-gen: -b 512: $hint, and this run has 1"
    [[ $(said bmc-spec -m "$m" --lookup -p "$once" -n 2 --temp 1 --samples 2 -b 3) == "bmc-spec: -b 3: $hint, and this run has 2; "* ]]
    for job in '-b 1' '' '-q -b 2048'; do
        # shellcheck disable=SC2086
        assert_equal "$(said bmc-gen -m "$m" -p "$once" -n 1 $job)" ""
    done
    echo '{"ids": [5]}' >requests
    for job in '--jsonl -n 1' '--jsonl --score'; do
        # shellcheck disable=SC2086
        [[ $(said bmc-gen -m "$m" -f requests $job -b 257) == "bmc-gen: -b 257: $hint, and it allows that many at a time; "* ]]
        # shellcheck disable=SC2086
        assert_equal "$(said bmc-gen -m "$m" -f requests $job -b 256)" ""
    done
}

@test "-np and --parallel are --batch" {
    jq -nc 'range(3) | {ids: [5, 6, .]}' >requests
    for option in '-b 2' '-np 2' '--parallel 2'; do
        # shellcheck disable=SC2086
        ok bmc-gen -q -m "$(model grimm)" -f requests --jsonl -n 2 $option --stats stats.json
        assert_equal "$(jq .batch stats.json)" 2
    done
    expect_error 2 '^bmc-gen: -np: needs a whole number from 1 to 65536; found "0"' bmc-gen -np 0
}
