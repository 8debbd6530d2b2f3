# bmc-prof compare: hand-made files with known ratios and verdicts, and hostile files.
load ../helper

bmc-prof() { $BMC_WRAP "$BMC_BIN/bmc-prof" "$@"; }

# rows FILE ROW..: a file with these rows, each as a jq object.
rows() {
    local file=$1
    shift
    jq -n "{rows: [$(
        IFS=,
        echo "$*"
    )]}" >"$file"
}

# row BATCH MEMBERS: a row of bench with more members.
row() { echo "{test: \"decode\", policy: \"bmc\", batch: $1, isa: \"ref\", model_id: \"m\", cpu: \"c\", version: \"1\", repeat: 4, samples: {}} * {$2}"; }

# The comparison as "figure ratio lo hi verdict" lines.
verdicts() { jq -r '.rows[] | "\(.figure) \(.ratio) \(.ratio_lo) \(.ratio_hi) \(.verdict)"' <<<"$output"; }

# compares STATUS REGEX ARGUMENT..: that status and standard error; "": nothing.
compares() {
    run --separate-stderr bmc-prof compare "${@:3}"
    assert_equal "$* -> $status $output" "$* -> $1 $output"
    if [ -z "$2" ]; then assert_equal "$stderr" ""; else assert_regex "$stderr" "^bmc-prof: .*$2"; fi
}

@test "ratios, intervals and verdicts against values computed by hand" {
    # Four rounds on each side: the interval is the range of all 16 ratios.
    rows a "$(row 1 'samples: {tok_s: [10, 11, 12, 13], x_ms: [10, 11, 12, 13]}')"
    rows b "$(row 1 'samples: {tok_s: [20, 22, 24, 26], x_ms: [20, 22, 24, 26]}')"
    compares 1 '1 of 2 figures are worse in b than in a, by more than 5 %' a b --format json
    assert_equal "$(verdicts)" $'tok_s 2 1.53846154 2.6 better\nx_ms 2 1.53846154 2.6 worse'
    jq -e '.rows | all(.a == 11.5 and .b == 23 and .rounds_a == 4 and .test == "decode" and .batch == 1)' <<<"$output"
    compares 1 '1 of 2 figures are worse' b a --format json
    assert_equal "$(verdicts)" $'tok_s 0.5 0.384615385 0.65 worse\nx_ms 0.5 0.384615385 0.65 better'
    compares 0 '' a a --format json
    assert_equal "$(verdicts)" $'tok_s 1 0.769230769 1.3 unclear\nx_ms 1 0.769230769 1.3 unclear'
}

@test "--tolerance: the whole interval must exceed it" {
    rows a "$(row 1 'samples: {x_ms: [100, 100, 100, 100]}')"
    rows b "$(row 1 'samples: {x_ms: [104, 106, 106, 107]}')"
    rows c "$(row 1 'samples: {x_ms: [106, 106, 106, 107]}')"
    compares 0 '' a b --format json
    assert_equal "$(verdicts)" "x_ms 1.06 1.04 1.07 unclear"
    compares 1 'by more than 5 %' a c
    compares 1 'by more than 3.5 %' a b --tolerance 3.5
    compares 0 '' a c --tolerance 7 --format json
    assert_equal "$(verdicts)" "x_ms 1.06 1.06 1.07 same"
    compares 1 'by more than 0 %' a b --tolerance 0
    for wrong in -1 x 1001 nan; do
        run --separate-stderr bmc-prof compare a b --tolerance=$wrong
        assert_equal "$wrong $status" "$wrong 2"
    done
}

@test "rows are matched by configuration in any order; unmatched ones are only listed" {
    rows a "$(row 1 'samples: {x_ms: [1, 1, 1, 1]}')" "$(row 2 'samples: {x_ms: [2, 2, 2, 2], y_ms: [1]}')" "$(row 3 'samples: {x_ms: [9]}')"
    rows b "$(row 4 'samples: {x_ms: [9]}')" "$(row 2 'T: 9, repeat: 9, timestamp: "t", samples: {x_ms: [2, 2, 2, 2], z_ms: [1]}')" \
        "$(row 1 'roof_share: 0.5, samples: {x_ms: [1, 1, 1, 1]}')"
    compares 0 '' a b --format json
    assert_equal "$(jq -r '.rows[] | "\(.batch) \(.figure) \(.verdict)"' <<<"$output")" "1 x_ms same
2 x_ms same
2 y_ms only in A
2 z_ms only in B
3 null only in A
4 null only in B"
    command jq -e '.rows | map(keys_unsorted) | unique | length == 1' <<<"$output"
}

@test "different models, kernel sets and machines are reported" {
    rows a "$(row 1 'shape: "/x/m.bmc", samples: {x_ms: [1, 1, 1, 1]}')"
    rows b "$(row 1 'shape: "/y/n.bmc", model_id: "n", cpu: "d\u001b[31m", version: "2", commit: "89ab-dirty", samples: {x_ms: [1, 1, 1, 1]}')"
    compares 0 '' a a
    compares 0 'model_id differs: \["m"\] in A, \["n"\] in B' a b --format csv
    assert_equal "$(wc -l <<<"$stderr")" 4
    assert_regex "$stderr" 'commit differs: \[\] in A, \["89ab-dirty"\] in B'
    assert_regex "$stderr" 'cpu differs: \["c"\] in A'
    assert_regex "$stderr" 'version differs: \["1"\] in A, \["2"\] in B'
    [[ $stderr != *$'\e'* ]]
    rows c "$(row 1 'isa: "avx2", samples: {x_ms: [1, 1, 1, 1]}')"
    compares 1 'isa differs: \["ref"\] in A, \["avx2"\] in B' a c --format json
    assert_regex "$stderr" 'a and c have no measurement in common'
    assert_equal "$(jq -r '.rows[] | "\(.isa) \(.verdict)"' <<<"$output")" $'ref only in A\navx2 only in B'
    rows d "$(row 1 'model_id: "", shape: "s", samples: {x_ms: [1, 1, 1, 1]}')"
    rows e "$(row 1 'model_id: "", shape: "t", samples: {x_ms: [1, 1, 1, 1]}')"
    compares 1 'no measurement in common' d e
}

@test "too few rounds and rounds of 0: no interval, never worse, reported" {
    rows a "$(row 1 'samples: {x_ms: [1, 1, 1], y_ms: [0, 1, 1, 1], z_ms: [1, 1, 1, 1]}')"
    rows b "$(row 1 'samples: {x_ms: [9, 9, 9], y_ms: [9, 9, 9, 9], z_ms: [1, 1, 1, 1]}')"
    compares 0 '2 of 3 figures have no interval: it takes 4 rounds' a b --format json
    assert_equal "$(verdicts)" $'x_ms 9 null null no interval\ny_ms null null null no interval\nz_ms 1 1 1 same'
}

@test "results of bmc-prof are compared in every format" {
    tiny_shape tiny.shape
    bmc-prof bench --shape ./tiny.shape -p 4 -n 2 -b 1,2 -r 4 --warmup 0 -t 1 --megabytes 1 --format json >bench
    bmc-prof latency --shape ./tiny.shape -N 8 --every 4 -r 4 -t 1 --format json >latency
    bmc-prof policies --shape ./tiny.shape -N 8 -r 4 -t 1 --format json >policies 2>stderr
    for job in bench:8 latency:4 policies:8; do
        for format in table md csv json jsonl; do
            compares 0 '' "${job%:*}" "${job%:*}" --format $format
            echo "$output" >"out.$format"
        done
        assert_equal "$job $(wc -l <out.jsonl)" "$job ${job#*:}"
        assert_equal "$(wc -l <out.csv)" $((${job#*:} + 1))
        assert_equal "$(jq -c '.rows[]' out.json)" "$(jq -c . out.jsonl)"
        assert_equal "$(jq -r '.ratio' out.jsonl | sort -u)" 1
        assert_equal "$(sed '1,/^$/d' out.table | wc -l)" $((${job#*:} + 1))
        assert_equal "$(sed '1,/^$/d' out.md | wc -l)" $((${job#*:} + 2))
    done
    compares 0 '' - bench <bench
}

# Old files: "rows" in place of "attended", in latency the first policy's.
@test "files with the former member \"rows\" match new ones" {
    rows old "$(row 1 'rows: "valid", samples: {x_ms: [1, 1, 1, 1]}')"
    rows new "$(row 1 'attended: "valid", samples: {x_ms: [1, 1, 1, 1]}')"
    rows other "$(row 1 'attended: "policy", samples: {x_ms: [1, 1, 1, 1]}')"
    compares 0 '' old new --format json
    assert_equal "$(jq -c '[.rows[] | [.attended, .verdict, has("rows")]]' <<<"$output")" '[["valid","same",false]]'
    compares 0 '' new old
    compares 1 'no measurement in common' old other
    # "split" in place of "parallelism", with other values.
    for pair in layers:pipeline requests:data tensor:tensor; do
        rows old "$(row 1 "split: \"${pair%:*}\", samples: {x_ms: [1, 1, 1, 1]}")"
        rows new "$(row 1 "parallelism: \"${pair#*:}\", samples: {x_ms: [1, 1, 1, 1]}")"
        compares 0 '' old new
    done
    for case in iterative:policy bmc:T=4:valid paged:16:policy; do
        rows old "{n: 5, batch: 1, rows: \"valid\", samples: {\"${case%:*}_ms\": [1, 1, 1, 1]}}"
        rows new "{n: 5, batch: 1, attended: \"${case##*:}\", samples: {\"${case%:*}_ms\": [1, 1, 1, 1]}}"
        compares 0 '' old new --format json
        assert_equal "$case $(jq -c '[.rows[].verdict]' <<<"$output")" "$case [\"same\"]"
    done
}

@test "failed rows are skipped and reported" {
    rows a "$(row 1 'samples: {x_ms: [1, 1, 1, 1]}')" '{policy: "bmc", batch: 2, error: "no\u001b memory"}'
    rows b "$(row 1 'samples: {x_ms: [1, 1, 1, 1]}')"
    run --separate-stderr bmc-prof compare a b --format json
    assert_equal "$status $(jq -c '[.rows[].verdict]' <<<"$output")" '0 ["same"]'
    assert_equal "$stderr" 'bmc-prof: a: bmc was not measured: no? memory'
    rows c '{policy: "bmc", error: "no memory"}'
    run --separate-stderr bmc-prof compare b c
    assert_equal "$status $output $stderr" '1  bmc-prof: c: no row was measured: all have an error'
}

@test "latency: the order of policies does not matter" {
    tiny_shape tiny.shape
    bmc-prof latency --shape ./tiny.shape -N 8 --every 4 -r 4 -t 1 --kv iterative,bmc --format json >a
    bmc-prof latency --shape ./tiny.shape -N 8 --every 4 -r 4 -t 1 --kv bmc,iterative --format json >b
    run --separate-stderr bmc-prof compare a b --tolerance 1000 --format json
    assert_equal "$status $stderr" "0 "
    assert_equal "$(jq -c '[.rows[] | select(.verdict | startswith("only")) | .figure]' <<<"$output")" '[]'
    assert_equal "$(jq -c '[.rows[].attended] | unique' <<<"$output")" '["padded"]'
    bmc-prof latency --shape ./tiny.shape -N 8 --every 4 -r 4 -t 1 --kv bmc,iterative --attend valid --format json >c
    compares 1 'no measurement in common' b c
}

# ---- two builds in turns ----

# builds: folders a and b with a bmc-prof each, of which that of b is a real one when it starts. Both then are scripts that
# note their name; times in b are 2, 4, 8 .. of those in a, or the same if there is a file "steady".
builds() {
    mkdir -p a b
    cp "$BMC_BIN/bmc-prof" b/new
    mv b/new b/bmc-prof
    cat >a/bmc-prof <<END
#!/bin/sh
[ "\$1" != --version ] || { cp "\$0" b/new && mv b/new b/bmc-prof && exec echo 'bmc-prof 1'; }
name=\$(basename "\$(dirname "\$0")")
echo \$name >>'$PWD/order'
n=\$(grep -c \$name '$PWD/order')
[ \$name = a ] || [ -e '$PWD/steady' ] && ms=10 || ms=\$((10 << n))
echo "{\"rows\": [{\"policy\": \"bmc\", \"samples\": {\"tok_s_end_to_end\": [\$(awk "BEGIN { print 1000 / \$ms }")], \"step_ms\": [\$ms]}}]}"
END
    chmod +x a/bmc-prof
    rm -f order
}

@test "--against: pairs in alternating order, the interval of pairs, verdicts for this build" {
    builds
    run --separate-stderr b/bmc-prof compare --against a/bmc-prof --repeat 6 --format json -- bench
    assert_equal "$(paste -sd ' ' order)" 'a b b a a b b a a b b a'
    # Ratios 2 to 64: see tests/unit/base/test_compare.c. Rates by their inverse.
    assert_equal "$(verdicts)" $'tok_s_end_to_end 0.0883883476 0.015625 0.5 worse\nstep_ms 11.3137085 2 64 worse'
    assert_equal "$(jq -c '[.rows[] | [.a, .rounds_a, .rounds_b]]' <<<"$output")" '[[100,6,6],[10,6,6]]'
    assert_equal "$status $stderr" "1 bmc-prof: 2 of 2 figures are worse in this build than in a/bmc-prof, by more than 5 %"
    builds
    run --separate-stderr b/bmc-prof compare --against=a/bmc-prof --repeat 2 -- bench
    assert_equal "$status $(wc -l <order)" "1 4"
    assert_regex "$stderr" 'it takes 6 pairs, none of their values 0: give --repeat 6 or more$'
    builds
    touch steady
    b/bmc-prof compare --against ./a/bmc-prof -- bench >table
    assert_equal "$(wc -l <order) $(grep -c same table)" "16 2"
}

@test "--against: real runs of the same build differ by noise" {
    tiny_shape tiny.shape
    ok bmc-prof compare --against "$BMC_BIN/bmc-prof" --repeat 6 --tolerance 1000 --format json -- \
        bench --shape ./tiny.shape -p 4 -n 2 -r 1 --warmup 0 -t 1 --megabytes 1
    jq -e '.rows | length == 4 and all(.ratio_lo <= .ratio and .ratio <= .ratio_hi and .rounds_a == 6)' <<<"$output"
}

@test "--against: results that cannot be compared are refused" {
    local bench=(bench -p 0 -n 1 -r 1 --megabytes 1)
    tiny_shape tiny.shape
    expect_error 1 'no-such: cannot be started: No such file' bmc-prof compare --against ./no-such -- "${bench[@]}"
    expect_error 1 '/bin/true: is not a bmc-prof' bmc-prof compare --against /bin/true -- "${bench[@]}"
    expect_error 2 'measure follows "--"' bmc-prof compare --against "$BMC_BIN/bmc-prof"
    expect_error 2 '--prompt goes with .*; options of what --against runs follow "--"' bmc-prof compare --against x bench -p 0
    expect_error 2 '"roof" is none of policies' bmc-prof compare --against x -- roof
    expect_error 2 '--format cannot follow' bmc-prof compare --against x -- bench --format=csv
    expect_error 2 '--repeat goes with compare --against only' bmc-prof compare a b --repeat 3
    # The build that refuses an option names it: the other one, if that is older.
    expect_error 1 'run 1 of 16: .*/bmc-prof: unknown option --frob' bmc-prof compare --against "$BMC_BIN/bmc-prof" -- bench --frob
    printf '#!/bin/sh\n[ "$1" = --version ] && exec "%s" "$@"\necho "bmc-prof: unknown option --new" >&2\nexit 2\n' "$BMC_BIN/bmc-prof" >old
    chmod +x old
    expect_error 1 'run 1 of 16: ./old: unknown option --new$' bmc-prof compare --against ./old -- "${bench[@]}" --shape ./tiny.shape
    # Another model, as each build's own default may be; another set.
    printf '#!/bin/sh\n[ "$1" = --version ] && exec "%s" "$@"\nexec "%s" "$@" -m "%s"\n' "$BMC_BIN/bmc-prof" "$BMC_BIN/bmc-prof" "$(model grimm-draft)" >other
    chmod +x other
    expect_error 1 './other uses another model than this build: give both the same with -m$' bmc-prof compare --against ./other -- "${bench[@]}" -m "$(model grimm)"
    sed 's/ -m .*/ --isa ref/' other >set
    chmod +x set
    expect_error 1 './set and this build have no measurement in common: .*--isa' bmc-prof compare --against ./set -- "${bench[@]}" --shape ./tiny.shape --isa avx2
}

@test "a build that is twice as slow is detected" {
    tiny_shape tiny.shape
    bmc-prof bench --shape ./tiny.shape -p 0 -n 2 -r 5 --warmup 0 -t 1 --megabytes 1 --format json >before
    jq '.rows[].samples |= map_values(map(. / 1000))' before >after
    compares 1 '2 of 2 figures are worse in after than in before, by more than 10 %' before after --tolerance 10 --format csv
    compares 0 '' after before --tolerance 10 --format csv
}

@test "the man page lists every field of compare, and no other" {
    rows a "$(row 1 'samples: {x_ms: [1]}')"
    bmc-prof compare a a --format json 2>stderr |
        command jq -r '.rows[0] | del(.test, .policy, .batch, .isa) | keys_unsorted[]' | sort >written
    awk '/^\.S[SH] / { inside = $2 == "compare" } inside && names { if (sub(/^\.B /, "")) print; names = 0 }
        inside && /^\.TP$/ { names = 1 }' "$ROOT/man/bmc-prof.1" | sort | diff written -
}

@test "hostile files: one message, exit 1, nothing on standard output" {
    local good text i=0
    rows good "$(row 1 'samples: {x_ms: [1, 1, 1, 1]}')"
    for text in '' '[' 'null' '[]' '{"rows": 3}' '{"rows": []}' '{"rows": [null]}' '{"rows": [{"samples": null}]}' \
        '{"rows": [{"samples": {"x_ms": "1"}}]}' '{"rows": [{"samples": {"x_ms": [[1]]}}]}' \
        '{"rows": [{"samples": {"x_ms": [-1]}}]}' '{"rows": [{"samples": {"x_ms": [1e16]}}]}' \
        '{"rows": [{"samples": {"x_ms": [1e999]}}]}' '{"rows": [{"samples": {"x_ms": [NaN]}}]}' \
        '{"rows": [{"samples": {"\u001b[2J": [1]}}]}' '{"rows": [{"samples": {"x_ms": [1]}}, {"samples": {"x_ms": [2]}}]}' \
        "{\"rows\": [{\"samples\": {\"x_ms\": [$(printf '1,%.0s' {1..64})1]}}]}" $'{"rows": [{"a": "\xff"}]}' \
        "$(printf '[%.0s' {1..5000})"; do
        i=$((i + 1))
        printf '%s' "$text" >bad
        run --separate-stderr bmc-prof compare good bad
        assert_equal "$i $status $output" "$i 1 "
        assert_regex "$stderr" '^bmc-prof: bad: '
        [[ $stderr != *[[:cntrl:]]* ]]
    done
    run --separate-stderr bmc-prof compare none good
    assert_equal "$status $output" "1 "
    assert_regex "$stderr" 'none: cannot open'
}

@test "unit test of the arithmetic and the reader" {
    run "$BMC_BUILD/tests/test_compare"
    assert_success
    assert_line --regexp '^[0-9]{3,} checks, 0 failed$'
}

@test "control characters in member names are not printed" {
    rows a "$(row 1 '"\u001b[31m\u009b,": "v", samples: {x_ms: [1, 1, 1, 1]}')"
    for format in csv table md; do
        compares 0 '' a a --format $format
        refute_regex "$output" $'[\x01-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]'
    done
    bmc-prof compare a a --format csv | grep -qF '"?[31m??,"'
}

@test "columns are the union of the members of all rows" {
    result='isa: "ref", model_id: "m", cpu: "c", version: "1", repeat: 4, samples: {tok_s: [1, 2, 3, 4]}'
    command jq -n "{rows: [{test: \"decode\", policy: \"bmc\", $result}, {test: \"prefill\", policy: \"bmc\", n_prompt: 77, $result}]}" >a
    ok "$BMC_BIN/bmc-prof" compare a a --format csv
    assert_regex "${lines[0]}" '^test,.*,verdict,n_prompt$'
    assert_regex "${lines[1]}" '^decode,.*,unclear,$'
    assert_regex "${lines[2]}" '^prefill,.*,unclear,77$'
    for format in table md; do
        ok "$BMC_BIN/bmc-prof" compare a a --format $format
        assert_equal "$(grep -c n_prompt <<<"$output") $(grep -c 77 <<<"$output")" '1 1'
    done
}

# A file with the samples of one figure.
samples() { # FILE ROUND..
    jq -n '{rows: [{test: "decode", policy: "bmc", batch: 1, model_id: "m", isa: "i", cpu: "c", version: "1",
                    samples: {x_ms: $ARGS.positional | map(tonumber)}}]}' --args "${@:2}" >"$1"
}

@test "a comparison without a single verdict fails" {
    samples a 1 2
    samples b 1 2
    run --separate-stderr "$BMC_BIN/bmc-prof" compare a b
    assert_equal "$status" 1
    assert_equal "${#stderr_lines[@]}" 1
    [[ $stderr =~ ^bmc-prof:\ none\ of\ 1\ figures\ .*--repeat\ 4 ]]
    [[ $output == *"no interval"* ]]
    samples a 1 2 1 2
    samples b 1 2 1 2
    ok "$BMC_BIN/bmc-prof" compare a b
}
