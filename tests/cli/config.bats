# The configuration file, bmc-config(5), and prompts as operands.
load ../helper

setup_file() { model grimm >/dev/null; }

setup() {
    mkdir "$BATS_TEST_TMPDIR/here" && cd "$BATS_TEST_TMPDIR/here" || return 1
    m=$(model grimm)
    export BMC_CONFIG=$PWD/config
}

# The member of --stats after a run.
of_stats() { # MEMBER ARG..
    bmc-gen -q --stats stats -p x -n 1 -t 1 "${@:2}" >/dev/null || return 1
    jq -r ".$1" stats
}

@test "options come from the command line, the environment, the model's section and the program's" {
    cat >config <<END
# defaults
[bmc-gen grimm]
temp 0.25
isa ref

[bmc-gen]
model $m
temp   0.5
top-k	7
ctx-size 1K
  stop  a b
stop c
isa nonsense

[bmc-prof]
threads nonsense
END
    assert_equal "$(of_stats temp)" 0.25
    assert_equal "$(of_stats temp --temp 1)" 1
    assert_equal "$(of_stats temp -m "$m" --top-k 3)" 0.25
    assert_equal "$(jq -c '[.top_k, .N, .isa, .config]' stats)" "[3,1024,\"ref\",\"$PWD/config\"]"
    assert_equal "$(jq -r .config_options stats)" 'temp 0.25, isa ref, ctx-size 1K, stop a b, stop c'
    ln -s "$m" other.bmc
    BMC_ISA=ref BMC_MODEL=other.bmc assert_equal "$(BMC_ISA=ref BMC_MODEL=other.bmc of_stats temp)" 0.5
    assert_equal "$(of_stats config --no-config)" null
    assert_equal "$(BMC_CONFIG=none of_stats temp)" 0
    mkdir -p home/bmc
    mv config home/bmc/
    assert_equal "$(BMC_CONFIG='' XDG_CONFIG_HOME=$PWD/home of_stats temp)" 0.25
    assert_equal "$(BMC_CONFIG='' of_stats temp)" 0
    BMC_CONFIG=none bmc-gen -m "$m" -p x -n 1 2>err >out
    run grep -c ^configuration err
    assert_output 0
    BMC_CONFIG=home/bmc/config bmc-gen -m "$m" -p x -n 1 2>err >out
    grep -q '^configuration    = home/bmc/config: temp 0.25' err
}

@test "a configuration file with errors is refused with file and line" {
    while IFS='|' read -r text error; do
        printf '%b' "$text" >config
        expect_error 2 "$PWD/config: line $error" bmc-gen -m "$m" -p x -n 1
    done <<'END'
temp 1\n|1: "temp" is in no section: a heading as \[bmc-gen\] comes first
\n[bmc-gen]\ntemperatur 1\n|3: "temperatur" is no long option, without its dashes, of this program
[bmc-gen]\ntemp\n|2: "temp" needs a value
[bmc-gen]\nquiet yes\n|2: "quiet" takes no value
[bmc-gen]\ntemp high\n|2: temp: needs a number from 0 to 100; found "high"
[bmc-gen]\nearly-stopping soon\n|2: early-stopping: "soon" is none of yes, no, never
[bmc-gen|1: "\[bmc-gen" is no heading: \[PROGRAM\] or \[PROGRAM MODEL\] is expected
[\n|1: "\[" is no heading
[]\n|1: "\[" names no program
[gen]\n|1: "\[gen" names no program
[bmc-gen grimm]\nno-such 1\n|2: "no-such" is no long option
END
    printf '[bmc-gen]\nbeams 2\n' >config
    expect_error 2 "--beams goes with generation only .*config sets beams 2, unless --no-config is given" bmc-gen -m "$m" --embed -p x
    printf '[bmc-gen]\ntemp 1\nseed 3\n' >config
    ok bmc-gen -m "$m" --tokenize -p x
    expect_error 2 '^bmc-gen: --tokenize has no use for --seed: leave it out .see bmc-gen --help' bmc-gen -m "$m" --tokenize -p x --seed 4
    head -c 2000000 /dev/zero | tr '\0' '#' >config
    expect_error 2 "BMC_CONFIG: .*has 2000000 bytes; a text file of at most 1048576 bytes is expected; --no-config runs without it" bmc-gen -p x
    printf '[bmc-gen]\0' >config
    expect_error 2 'has a zero byte' bmc-gen -p x
    BMC_CONFIG=/dev/zero expect_error 2 'regular file' bmc-gen -p x
    BMC_CONFIG=nowhere expect_error 2 'BMC_CONFIG: nowhere: cannot open' bmc-gen -p x
    mkfifo fifo
    BMC_CONFIG=fifo expect_error 2 'regular file' bmc-gen -p x
    BMC_CONFIG=fifo ok bmc-gen --no-config -q -m "$m" -p x -n 1
}

@test "other programs and subcommands take what is theirs" {
    printf '[bmc-prof]\nthreads 1\nmodel %s\nbatch 2\n[bmc-convert]\nquiet\n[bmc-tune]\n[bmc-spec]\nlookup\n' "$m" >config
    ok "$BMC_BIN/bmc-prof" memory -N 256 --format json
    run_plain bmc-convert "$(folder grimm)" -o x.bmc
    assert_equal "$status $written$stderr" '0 '
    ok bmc-spec -q -m "$m" -p x -n 2
}

@test "the only operand is the prompt" {
    export BMC_CONFIG=none
    expected=$(bmc-gen -q -m "$m" -p 'The king' -n 4)
    for words in "The king" "-- The king"; do
        ok bmc-gen -q -m "$m" -n 4 ${words%"The king"} 'The king'
        assert_equal "$output" "$expected"
    done
    ok bmc-gen -q 'The king' -m "$m" -n 4
    assert_equal "$output" "$expected"
    ok bmc-gen -q -m "$m" -n 1 --echo -- -dash
    [[ $output == -dash* ]]
    expect_error 2 'unexpected "more": a prompt is given with -p' bmc-gen -m "$m" -p x more
    expect_error 2 'unexpected "The": a prompt of several words is quoted' bmc-gen -m "$m" The king
    expect_error 2 "unexpected \"$m\": a model is given with -m" bmc-gen "$m"
    expect_error 2 "unexpected \"$m\": a model is given with -m" bmc-gen "$m" "The king"
    expect_error 2 'exclude each other' bmc-gen -m "$m" --prompt-ids 1 x
    expect_error 2 'reads its prompts from -f' bmc-gen -m "$m" --jsonl x
}
