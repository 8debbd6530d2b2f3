# Messages and profiles of bmc-tune for given figures, and that programs use only the profile entry of their model.
#
# tests/unit/tune/test_tune_report.c supplies the figures; profiles are made by hand.
load ../helper

setup_file() {
    for name in grimm grimm-draft; do model $name >/dev/null; done
    cd "$BATS_FILE_TMPDIR" || return 1
    tiny_shape tiny.shape
    ok bmc-tune --shape ./tiny.shape -N 64 --no-sweep --no-batch-knee --state cold --profile real -q -t 1 --megabytes 1 --evict 1 --seconds 0.1
}

# bmc-tune with figures in which bmc, possibly reserve, or clearly reserve is the fastest, or fit and measurement disagree.
says() { # bmc|perhaps|reserve|doubtful PROFILE summary|FORMAT [force|quiet|dry-run]
    run --separate-stderr "$BMC_BUILD/tests/test_tune_report" "$@"
}

model_id() { bmc-convert --info "$(model "$1")" | sed -n 's/^model_id[^0-9a-f]*//p'; }

# A profile of this machine for -t 1, with these lines.
hand_made() { # FILE [LINE]...
    local file=$1
    shift
    {
        grep -vE '^(model|policy|step_ms|batch_knee|k_for) ' "$BATS_FILE_TMPDIR/real"
        printf '%s\n' "$@"
    } >"$file"
}

policy_of() { # MODEL OPTION..: "policy policy_from"
    ok bmc-gen -m "$(model "$1")" -p Once -n 1 -c 64 -t 1 -q --stats stats.json "${@:2}"
    jq -r '"\(.kv_policy) \(.kv_policy_from)"' stats.json
}

batch_knee_of() { # OPTION..: "batch_knee batch_knee_from"
    ok bmc-spec -m "$(model grimm)" -d "$(model grimm-draft)" -p Once -n 4 -c 64 -t 1 -q --stats stats.json "$@"
    jq -r '"\(.batch_knee) \(.batch_knee_from)"' stats.json
}

@test "policies and warnings of given points" {
    run "$BMC_BUILD/tests/test_tune_report"
    assert_success
    assert_line --regexp '^[0-9]{2,} checks, 0 failed$'
}

@test "profiles as text: read, written, merged, refused" {
    run "$BMC_BUILD/tests/test_profile"
    assert_success
    assert_line --regexp '^[0-9]{2,} checks, 0 failed$'
}

# ---- the summary, sentences and fields ----

@test "the summary says what was measured and chosen, how sure that is, and where it is" {
    says reserve ./p summary
    assert_success
    assert_output "Test CPU, 1 core, 1 thread, isa ref, alloc pool; shape models/given.bmc
T for batch 1: 2 at N = 64.
Measured: 1 of 1 configurations. The T used takes 1.010 (90 %: 1.000 to 1.020) times as long as the best one.
Policy for given.bmc: reserve, clearly faster than bmc in every cold measurement, at worst 0.800 (0.700 to 0.900) times as long.
policy reserve, T 2: written to ./p; nothing else to do"
    says bmc ./p summary dry-run
    assert_line --index 3 'Policy for given.bmc: bmc; no other one was clearly faster in every cold measurement.'
    assert_line --index 4 'policy bmc, T 2: not written (--dry-run)'
    says bmc ./p summary quiet
    assert_output ''
    says bmc ./p table
    assert_equal "${lines[-1]}" 'policy bmc, T 2: written to ./p; nothing else to do'
    says doubtful ./q summary
    assert_failure 1
    assert_equal "${stderr_lines[1]}" 'bmc-tune: the profile was not written, because fit and measurement disagree, in each of 3 measurements: measure again with more --rounds on an idle machine, or write it with --force'
    [ ! -e q ]
}

@test "the sentence names the fastest policy with its interval" {
    says bmc ./p table
    assert_success
    assert_output --partial '; fastest policy: bmc.'
    assert_output --partial 'Policy for given.bmc: bmc; no other one was clearly faster in every cold measurement.'
    says reserve ./p table
    assert_output --partial '; fastest policy: reserve, 0.800 (0.700 to 0.900) times as long as bmc.'
    assert_output --partial 'Policy for given.bmc: reserve, clearly faster than bmc in every cold measurement, at worst 0.800 (0.700 to 0.900) times as long.'
    # The smallest figure is named even if it may be noise, but not used then.
    says perhaps ./p table
    assert_output --partial '; fastest policy: reserve, 0.950 (0.900 to 1.020) times as long as bmc, which is not significant.'
    assert_output --partial 'Policy for given.bmc: bmc; '
    assert_equal "$stderr" ""
}

@test "intervals in tables, fields in CSV and JSON" {
    says perhaps ./p table
    assert_output --partial '1.010 (90 %: 1.000 to 1.020) times as long as the best T of the fit'
    assert_output --partial 'the best T of the fit, 3.0 (2.0 to 4.0)'
    assert_output --regexp 'T_fit_lo  T_fit_hi .* regret_lo  regret_hi .* regret_raw_lo  regret_raw_hi'
    assert_output --regexp 'policy  .*ms_q1  ms_q3  over_bmc  over_bmc_lo  over_bmc_hi'
    assert_line --regexp '^64 .* paged:16 .* 0\.98  +0\.9  +1\.1$'
    says perhaps ./p json
    printf '%s' "$output" >out
    jq -e '.rows[0] | .fastest == "reserve" and .reserve_over_bmc == 0.95 and .reserve_over_bmc_lo == 0.9 and .reserve_over_bmc_hi == 1.02 and
        .paged_over_bmc_hi == 1.1 and .iterative_over_bmc_lo == 1.9 and .upfront_over_bmc_hi == 1.6 and .doubtful == false' out
    jq -e '.model == "given" and .policy == "bmc"' out
    says perhaps ./p csv
    assert_equal "$(head -n 1 <<<"$output")" "$(command jq -r '.rows[0] | keys_unsorted | join(",")' out)"
    for field in T_fit_lo regret_hi regret_raw_lo reserve_over_bmc_lo; do assert_line --index 0 --partial ",$field,"; done
}

# ---- fit and measurement ----

@test "fit and measurement disagree: a warning, and nothing is written without --force" {
    says doubtful ./p table
    assert_failure 1
    [[ $stderr == "bmc-tune: warning: N = 64, batch 1, cold: fit and measurement disagree: T = 2 takes 1.010 "* ]] || fail "$stderr"
    [[ $stderr == *$'\n'"bmc-tune: the profile was not written, because fit and measurement disagree, in each of 3 measurements: "*--force ]] || fail "$stderr"
    assert_output --partial 'use T = 2'
    refute_output --partial 'profile written'
    assert_folder
    says doubtful ./p json
    assert_failure 1
    assert_equal "$(jq '.rows[0].doubtful' <<<"$output")" true
    assert_folder
}

@test "--force writes anyway, --dry-run only warns, the existing profile stays" {
    says bmc ./p table
    cp p before
    says doubtful ./p table
    assert_failure 1
    equal_files before p
    says doubtful ./p table dry-run
    assert_success
    [[ $stderr == "bmc-tune: warning: "* ]] || fail "$stderr"
    [[ $stderr != *"not written"* ]] || fail "$stderr"
    equal_files before p
    rm p
    says doubtful ./p table force
    assert_success
    [[ $stderr == "bmc-tune: warning: "* ]] || fail "$stderr"
    grep -q '^policy given bmc ' p
}

@test "the program agrees with its fields: a doubtful point is not written" {
    run --separate-stderr bmc-tune --shape "$BATS_FILE_TMPDIR/tiny.shape" -N 64 --state cold --no-batch-knee -t 1 --megabytes 1 --evict 1 --seconds 1 \
        --rounds 3 --profile ./p --format json
    if [ "$(jq '.rows[0].doubtful' <<<"$output")" = true ]; then
        assert_failure 1
        [ ! -e p ]
    else
        assert_success
        assert_equal "$stderr" ""
        grep -q '^policy tiny ' p
    fi
}

# ---- quiet ----

@test "-q prints nothing but errors" {
    says bmc ./p table quiet
    assert_success
    assert_equal "$output$stderr" ""
    grep -q '^policy given ' p
    says doubtful ./q json quiet
    assert_failure 1
    assert_equal "$output" ""
    assert_equal "$(wc -l <<<"$stderr")" 1
    assert_regex "$stderr" '^bmc-tune: the profile was not written'
    cp "$BATS_FILE_TMPDIR/real" p
    run --separate-stderr bmc-tune -q --shape "$BATS_FILE_TMPDIR/tiny.shape" --state cold -t 1 --megabytes 1 --evict 1 --seconds 0.1 --check --profile ./p
    [ "$status" -le 1 ]
    assert_equal "$output$stderr" ""
}

@test "names of shapes may contain any bytes" {
    cp "$BATS_FILE_TMPDIR/tiny.shape" $'b \xff\nc.shape'
    ok bmc-tune --shape $'./b \xff\nc.shape' -N 64 --state cold --no-sweep --no-batch-knee -t 1 --megabytes 1 --evict 1 --seconds 0.1 --profile ./p --format json
    assert_equal "$(jq -r .model <<<"$output")" $'b_\xef\xbf\xbd_c'
    ok bmc-tune --shape $'./b \xff\nc.shape' -N 64 --state cold --no-sweep --no-batch-knee -t 1 --constants p --profile ./p --format csv
}

# ---- per model ----

@test "the tuned policy applies to its model only, and without --kv" {
    hand_made p "model $(model_id grimm) grimm.bmc" "policy $(model_id grimm) reserve 0.9 0.8 0.95" \
        "model llama-2-7b" "policy llama-2-7b paged:16 0.5 0.5 0.5"
    assert_equal "$(policy_of grimm --profile ./p)" "reserve profile"
    assert_equal "$(policy_of grimm-draft --profile ./p)" "bmc default"
    assert_equal "$(policy_of grimm --profile ./p --kv bmc)" "bmc option"
    assert_equal "$(policy_of grimm --profile ./p -t 2)" "bmc default"
    assert_equal "$(policy_of grimm --profile none)" "bmc default"
    assert_equal "$(policy_of grimm)" "bmc default"
    ok bmc-spec -m "$(model grimm)" -d "$(model grimm-draft)" -p Once -n 4 -c 64 -t 1 -q --stats stats.json --profile ./p
    assert_equal "$(jq -r .kv_policy stats.json)" reserve
}

@test "a moved and renamed model is recognised by its model_id" {
    cp "$(model grimm)" other.bmc
    hand_made p "model $(model_id grimm) grimm.bmc" "policy $(model_id grimm) upfront 0.9 0.8 0.95"
    ok bmc-gen -m other.bmc -p Once -n 1 -c 64 -t 1 -q --stats stats.json --profile ./p
    assert_equal "$(jq -r .kv_policy stats.json)" upfront
}

@test "the batch knee applies to its model only" {
    plain=$(batch_knee_of --profile none)
    [[ $plain == *" default" ]] || fail "$plain"
    hand_made p "model $(model_id grimm) grimm.bmc" "step_ms $(model_id grimm) 1 10" "step_ms $(model_id grimm) 2 10" \
        "step_ms $(model_id grimm) 4 10" "step_ms $(model_id grimm) 8 20"
    assert_equal "$(batch_knee_of --profile ./p)" "4 profile"
    hand_made p "model $(model_id grimm-draft)" "step_ms $(model_id grimm-draft) 1 10" "batch_knee $(model_id grimm-draft) 4"
    assert_equal "$(batch_knee_of --profile ./p)" "$plain"
}

@test "bmc-spec takes T and the shape of drafts from the profile" {
    target=$(model_id grimm) draft=$(model_id grimm-draft)
    hand_made p "spec $target $draft fused f32 1 64 2 chain 3 0 2.5" "spec $target $draft fused f32 2 64 4 tree 6 3 2.5" "spec $target - fused f32 1 64 8 chain 9 0 2"
    spec() { # OPTION..: "T T_from k speculation first-draft"
        ok bmc-spec -m "$(model grimm)" --prompt-ids '70 109 115' -n 20 --ignore-eos -c 64 -t 1 -q --always --stats stats.json --profile ./p "$@"
        jq -r '"\(.T) \(.T_from) \(.k) \(.speculation) \(.draft_length_history[0])"' stats.json
    }
    assert_equal "$(spec -d "$(model grimm-draft)")" "2 profile 32 chain 3"
    assert_equal "$(spec -d "$(model grimm-draft)" -np 2)" "4 profile 6 tree 6"
    # T grows as the square root of the context.
    assert_equal "$(spec -d "$(model grimm-draft)" -c 256)" "4 formula 32 chain 3"
    # A drafter without a model; options go before the profile.
    assert_equal "$(spec --lookup | cut -d ' ' -f 1-3)" "8 profile 32"
    [[ $(spec -d "$(model grimm-draft)" -k 2) == *" 2 chain 2" ]]
    assert_equal "$(spec -d "$(model grimm-draft)" --kv bmc:T=16 | cut -d ' ' -f 1-2)" "16 option"
    # Another cache type, attention; without --always plain steps keep the length; limits of options.
    [[ $(spec -d "$(model grimm-draft)" --cache-type bf16) != "2 profile"* ]]
    [[ $(spec -d "$(model grimm-draft)" --attn blas) != "2 profile"* ]]
    [[ $(spec -d "$(model grimm-draft)" --length-limit 2) == "2 profile 2 chain 2" ]]
    [[ $(spec -d "$(model grimm-draft)" -np 2 --batch-knee 8) == *" chain "* ]]
    # In a context too short for the tree the profile's shape is not used.
    [[ $(spec -d "$(model grimm-draft)" -np 2 -c 8 -n 4) == *" chain "* ]]
    for line in "$target" "$target $draft fused f32 1 64 65 chain 3 0 2" "$target $draft fused f32 1 64 2 star 3 0 2" "$target $draft fused f32 1 64 2 tree 3 0 2" \
        "$target $draft fused f32 1 64 2 chain 257 0 2" "$target $draft fused f32 1 64 2 tree 3 9 2" "$target $draft fused f32 0 64 2 chain 3 0 2" "$target $draft fused f32 1 64 2 chain 3 0 0.5"; do
        hand_made bad "spec $line"
        expect_error 1 'line [0-9]+: a line of speculation' bmc-gen -m "$(model grimm)" -p x -n 1 -t 1 -q --profile ./bad
    done
}

@test "a profile of version 1 still gives T; entries without a model are ignored" {
    hand_made new 'T fused f32 256 4 8 1 64 2'
    sed 's/^bmc_profile .*/bmc_profile 1/; $a policy reserve\npolicy_ratio 0.5\nstep_model x\nstep_ms.1 10\nfree_rows 7' new >p
    assert_equal "$(policy_of grimm --profile ./p)" "bmc default"
    assert_equal "$(jq -r '"\(.T) \(.T_from)"' stats.json)" "2 profile"
    [[ $(batch_knee_of --profile ./p) == *" default" ]]
}

@test "a profile of a later version is refused with what to do" {
    hand_made new
    sed 's/^bmc_profile .*/bmc_profile 4/' new >p
    expect_error 1 'version 4, this program reads versions 1 to 3; run bmc-tune again' bmc-gen -m "$(model grimm)" -p x -n 1 -t 1 -q --profile ./p
    mkdir -p config/bmc
    mv p config/bmc/profile
    XDG_CONFIG_HOME=$PWD/config run --separate-stderr bmc-gen -m "$(model grimm)" -p x -n 1 -t 1 -q
    assert_success
    assert_regex "$stderr" '^bmc-gen: ignoring the tuned profile: .* run bmc-tune again$'
}

@test "a run for one model keeps the entries of others" {
    hand_made p "model $(model_id grimm) grimm.bmc" "policy $(model_id grimm) reserve 0.9 0.8 0.95" "batch_knee $(model_id grimm) 4" \
        "model given old name" "policy given paged:16 0.5 0.5 0.5" "step_ms given 1 10"
    # The given figures are of another machine: the profile is changed to match this one.
    sed -i 's/^cpu .*/cpu Test CPU/; s/^isa .*/isa ref/; s/^cores .*/cores 1/; s/^threads .*/threads 1/; s/^page_size .*/page_size 4096/' p
    says bmc ./p table
    assert_success
    grep -q "^policy $(model_id grimm) reserve 0.9 0.8 0.95$" p
    grep -q '^policy given bmc 1 1 1$' p
    grep -q '^step_ms given 1 10$' p
    assert_equal "$(grep -c '^policy ' p)" 2
}

@test "a comparison names the fastest T, not less than the shortest time" {
    ok "$BMC_BUILD/tests/test_tune_report" bmc ./p table dry-run
    assert_output --partial ', and about as long as T = 4, the fastest measured;'
    run --separate-stderr "$BMC_BUILD/tests/test_tune_report" doubtful ./p table dry-run
    assert_output --partial ', and 1.300 (1.200 to 1.400) times as long as T = 4, the fastest measured;'
}
