# What hostile files, full profiles and broken inputs met only later, and what they get.
load helper

# ---- outputs ----

@test "links of others are not followed in the middle of a name either" {
    [ "$(id -u)" = 0 ] || skip "only the superuser can make links of others"
    mkdir public target
    chmod 1777 public
    ln -s "$PWD/target" public/trap
    ln -s public/trap ours
    ln -s ../public/trap/deeper/s target/through
    mkdir target/deeper
    chown -h 1234 public/trap
    for name in public/trap/s ours/s ./public//trap/s "$PWD/public/trap/s" target/through; do
        expect_error 1 'public/+trap: is a link of another user' bmc-gen -q -p x -n 1 --stats "$name"
    done
    assert_equal "$(find target -type f)" ''
    chown 1234 public # the folder's owner may
    ok bmc-gen -q -p x -n 1 --stats target/through
    ok bmc-gen -q -p x -n 1 --stats ours/../public/trap/s
    assert_equal "$(find target -type f | sort | paste -sd ' ')" 'target/deeper/s target/s'
}

# ---- tables ----

@test "columns are the members of all rows, not of the first alone" {
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

# ---- advice ----

@test "what ran out of memory to check a model does not say that the model is to be converted again" {
    [[ $BMC_BUILD != *sanitize* ]] || skip "the sanitizers have their own allocator"
    m=$(model llama-2-like)
    export BMC_FAIL_CALL=memory
    calls=$(BMC_FAIL_COUNT=9 LD_PRELOAD=$BMC_BUILD/inject.so "$BMC_BIN/bmc-convert" --verify "$m" 9>&1 >/dev/null)
    [ "$calls" -gt 10 ]
    met=0
    for ((at = calls; at > 0; at--)); do
        BMC_FAIL_AT=$at LD_PRELOAD=$BMC_BUILD/inject.so run_plain "$BMC_BIN/bmc-convert" --verify "$m"
        [ "$status" -ne 0 ] || continue
        assert_regex "$stderr" 'memory'
        refute_regex "$stderr" 'convert the model'
        [[ $stderr != *'tensor "'*'" cannot be checked'*'try again' ]] || met=$((met + 1))
    done
    [ "$met" -gt 0 ]
}

# ---- what --info shows ----

@test "--info shows whole numbers of any size to the last digit" {
    cp "$(model llama-2-like)" big.bmc
    old=$'norm_eps 9.9999999999999995e-07\nposition rope\nrope_original 256'
    at=$(grep -abo 'norm_eps 9.9999999999999995e-07' big.bmc | cut -d : -f 1)
    for number in 9223372036854775807 9223372036854775808 18446744073709551615 99999999999999999999 -9223372036854775808 -9223372036854775809; do
        printf '%-*s' ${#old} $'norm_eps 1\nposition rope\nbig '"$number"$'\n#' | patch big.bmc "$at"
        reseal big.bmc
        ok bmc-convert --info big.bmc
        assert_regex "$output" $'\n'"big +$number"$'\n'
        ok bmc-convert --info big.bmc --format json
        assert_regex "$output" '"big": "?'$number'"?,'
    done
    jq -e '.big | type == "string"' <<<"$output" # beyond 64 bits
}

# ---- inputs ----

@test "each of many inputs is kept from the outputs" {
    run "$BMC_BUILD/tests/test_files"
    assert_output --regexp ' checks, 0 failed$'
    assert_success
}

@test "of a shape's name the file that it stands for is kept, not one of that name in the folder" {
    mkdir bin models.d
    cp "$BMC_BIN/bmc-tune" bin
    cp -r "$ROOT/models.d/shapes" "$ROOT/models.d/families" models.d
    few=(-N 8 -t 1 --no-sweep --no-rows --state hot --megabytes 1 --evict 1 --seconds 1 -q)
    touch opt-125m
    ok bin/bmc-tune --shape opt-125m "${few[@]}" --profile opt-125m
    assert_regex "$(head -n 2 opt-125m)" 'bmc_profile'
    cp models.d/shapes/opt-125m.shape before
    expect_error 2 'opt-125m.shape is read \(--shape\)' bin/bmc-tune --shape opt-125m "${few[@]}" --profile models.d/shapes/opt-125m.shape
    equal_files before models.d/shapes/opt-125m.shape
}

@test "a line without an end costs its own result, and the rest of it is skipped" {
    { # a line of more than 64 MiB between two others, and one at the end
        printf '{"id":1,"ids":[5]}\n{"id":2,"prompt":"'
        head -c $(((64 << 20) + 200000)) /dev/zero
        printf '"}\n{"id":3,"ids":[5,6]}\n{"id":4,"ids":[5'
        head -c $((65 << 20)) /dev/zero
    } >in
    for job in '-n 1' --score; do
        # shellcheck disable=SC2086
        run_plain bmc-gen -q -m "$(model llama-2-like)" --jsonl $job -f in
        assert_equal "$status" 1
        assert_regex "$stderr" '^bmc-gen: 2 of 4 (requests|lines) failed'
        assert_equal "$(jq -c .id <<<"$output" | paste -sd ' ')" '1 null 3 null'
        assert_equal "$(jq -c .error <<<"$output" | sed -n 's/.*line \([24]\): is longer than 64 MiB.*/\1/p' | paste -sd ' ')" '2 4'
    done
}

@test "a line that never ends is answered, and takes no memory" {
    ! sanitized || skip "the sanitizers need address space of their own"
    mkfifo in
    (ulimit -v 600000 && exec "$BMC_BIN/bmc-gen" -q --jsonl -n 1 -f in >out) &
    pid=$!
    head -c $((200 << 20)) /dev/zero >in &
    answered() { grep -q 'is longer than 64 MiB' out; }
    wait_until answered
    wait $! || true
    code=0
    wait $pid 2>err || code=$?
    assert_equal "$code $(wc -l <out)" '1 1'
}

@test "a text of more than 1 GiB is refused, a file before it is read" {
    truncate -s 2G big
    for job in --tokenize --score '-n 1'; do
        # shellcheck disable=SC2086
        expect_error 1 'big: is longer than 1024 MiB' timeout 5 "$BMC_BIN/bmc-gen" -q $job -f big
    done
    expect_error 1 'big: is longer than 1024 MiB' timeout 5 "$BMC_BIN/bmc-prof" compare big big
}

# ---- the end of a run ----

@test "--score --jsonl: where the run ends by an error, lines under way say so" {
    [[ $BMC_BUILD != *sanitize* ]] || skip "the sanitizers have their own allocator"
    jq -nc 'range(4) | {id: ., ids: [range(if . == 0 then 2 else 90 end)]}' >in
    score=("$BMC_BIN/bmc-gen" -q -m "$(model llama-2-like)" -t 1 --score --jsonl -b 4 -f in)
    export BMC_FAIL_CALL=memory
    calls=$(BMC_FAIL_COUNT=9 LD_PRELOAD=$BMC_BUILD/inject.so "${score[@]}" 9>&1 >whole)
    ended=0
    for part in 5 7 9; do
        for options in '' --unordered; do
            # shellcheck disable=SC2086
            BMC_FAIL_AT=$((calls * part / 10)) LD_PRELOAD=$BMC_BUILD/inject.so run_plain "${score[@]}" $options
            [ "$status" -eq 1 ] && [[ $stderr != *' lines failed'* ]] || continue
            ended=$((ended + 1))
            assert_equal "$(jq -c .id <<<"$output" | sort | paste -sd ' ')" '0 1 2 3'
            jq -se --arg why "the run ended: ${stderr#bmc-gen: }" 'all(.error == null or (.error | endswith($why))) and any(.error != null)' <<<"$output"
        done
    done
    [ "$ended" -gt 1 ]
}

# ---- profiles ----

# A profile of this machine with so many models, each with all that a model may have if its names are LONG.
profile_of() { # MODELS [LONG]
    [ -s made ] || bmc-tune --shape ./tiny.shape "${few[@]}" --profile made
    cp made p
    awk -v n="$1" -v long="$2" 'BEGIN {
        for (i = 0; i < n; i++) {
            key = long ? sprintf("m%065d", i) : "m" i
            print "model " key " x\npolicy " key " bmc 1 1 1"
            n_rows = split("1 2 4 8 12 16 24 32 48 64", rows)
            for (j = 1; long && j <= n_rows; j++) print "step_ms", key, rows[j], "1.5"
            if (long) print "free_rows", key, 1
        }
    }' >>p
    cp p before
}
few=(-N 8 -t 1 --no-sweep --no-rows --state hot --megabytes 1 --evict 1 --seconds 1 -q)
long=(-N 8192 -t 1 --rounds 60 --seconds 3600 --megabytes 4000 --force)

@test "bmc-tune notices before it measures that the profile is full" {
    tiny_shape tiny.shape
    profile_of 1024
    expect_error 1 'p: has 1024 models of at most 1024' timeout 10 "$BMC_BIN/bmc-tune" --shape ./tiny.shape "${long[@]}" --profile p
    equal_files p before
    # One that is there, or nothing of a new model: there is room.
    sed 's/m1023/tiny/' before >p
    ok bmc-tune --shape ./tiny.shape "${few[@]}" --constants made --profile p
    cp tiny.shape other.shape
    ok bmc-tune --shape ./other.shape "${few[@]}" --constants made --profile p
    assert_equal "$(grep -c '^model ' p)" 1024
    profile_of 900 long
    expect_error 1 'p: has 1[0-9]* bytes of at most 1048576' timeout 10 "$BMC_BIN/bmc-tune" --shape ./tiny.shape "${long[@]}" --profile p
    equal_files p before
}

@test "bmc-tune says what is wrong with the profile that is there, and keeps it" {
    tiny_shape tiny.shape
    profile_of 1
    while read -r edit pattern; do
        sed "${edit//\~/ }" before >p
        cp p edited
        expect_error 1 "cannot be added to, remove it or give another name: p: .*$pattern" timeout 10 "$BMC_BIN/bmc-tune" --shape ./tiny.shape "${long[@]}" --profile p
        equal_files p edited
    done <<'END'
s/^bmc_profile~.*/bmc_profile~7/ version 7
$apolicy~m0~bmc~x~1~1 line
END
    yes '# more' | head -c $((1 << 20)) >>p
    expect_error 1 'longer than 1048576 bytes' timeout 10 "$BMC_BIN/bmc-tune" --shape ./tiny.shape "${long[@]}" --profile p
    run_plain bmc-tune --shape ./tiny.shape "${few[@]}" --constants made --profile /dev/stdout
    assert_regex "$output" 'bmc_profile 2'
}
