# Every model against the results of an independent implementation: tokens, logits, greedy ids, scores.
load ../helper

setup_file() {
    for name in $(all_models); do model "$name" >/dev/null; done
    export BMC_SEED=${BMC_SEED:-$((($(date +%s%N) / 1000) % 32768))}
}

context() { bmc-convert --info --format json "$(model "$1")" | jq .context; }

# All values of one dimension of the product; N stands for the model's context.
kv_values() {
    for policy in $(kv_policies); do
        case $policy in
        bmc) echo bmc:T={1,2,4,8,16,N} ;;
        *) echo "$policy" ;;
        esac
    done
}
batches='1 2 3 5'
threads='1 2'
chunks='1 7 512'
types='f32 bf16'
precisions='f32 bf16x2 bf16'

check() { # MODEL KV THREADS CHUNK BATCH TYPE [PRECISION [ISA]]
    BMC_ISA=$8 run "$BMC_BUILD/tests/reference" "$(model "$1")" "$(reference "$1")" "${2/T=N/T=$(context "$1")}" "$3" "$4" "$5" "$6" "$7"
    [ "$status" -eq 0 ] || fail "reference $* -> $output"
    [[ $output =~ ([0-9]+)' checks, 0 failed'$ ]]
    [ "${BASH_REMATCH[1]}" -ge 50 ]
    # A tie that decided is shown.
    grep '^#' <<<"$output" | sed "s/^#/# $1:/" >&3 || true
}

# deal SALT COUNT VALUE..: COUNT values in random order, each as often as the others.
deal() {
    local salt=$1 count=$2 list i j swap
    shift 2
    RANDOM=$((BMC_SEED + salt))
    while [ "${#list[@]}" -lt "$count" ]; do list+=("$@"); done
    list=("${list[@]:0:count}")
    for ((i = count - 1; i > 0; i--)); do
        j=$((RANDOM % (i + 1)))
        swap=${list[i]} list[i]=${list[j]} list[j]=$swap
    done
    echo "${list[@]}"
}

@test "every reference has its model, every model its reference" {
    # References of models that only draft are in drafts/.
    assert_equal "$( (all_models && basename -s .json "$FIXTURES"/drafts/*.json) | sort)" "$(for config in "$FIXTURES"/models/*/config.json "$ROOT"/models.d/*/config.json; do
        basename "$(dirname "$config")"
    done | sort)"
    [ "$(all_models | wc -l)" -ge 10 ]
}

@test "the reference's results, model by model" {
    for name in $(all_models); do check "$name" bmc 2 512 1 f32; done
}

@test "a wrong result is noticed" {
    # The checker itself: one id, one logit, one log-probability and one prompt id, each off by little.
    for edit in '.cases[1].greedy_ids[17] += 1' '.cases[0].first_step_logits[7] += 0.001' '.cases[2].first_step_top10[3][1] += 0.01' \
        '.scores[0].logprobs_of_ids_from_second[5] -= 0.01' '.cases[0].prompt_ids[1] += 1' '.scores[0].perplexity *= 1.01' '.cases[0].greedy_ids |= .[:-1] + [1]'; do
        jq "$edit" "$(reference qwen2-like)" >wrong.json
        refute cmp -s wrong.json "$(reference qwen2-like)"
        run "$BMC_BUILD/tests/reference" "$(model qwen2-like)" wrong.json bmc 1
        [ "$status" -eq 1 ] || fail "$edit -> $status $output"
        assert_output --partial 'not ok'
    done
}

# The tolerances are those of reference.c: 1e-3 and 0.1 % of perplexity at f32 and bf16x2; 1 % with bf16 for both.
@test "every instruction set of the machine at every precision" {
    [[ " $(isas) " == *" ref "* ]]
    models='grimm qwen2-like opt-350m-like'
    [ "$BMC_FULL" != 1 ] || models=$(all_models)
    # Every set has every precision and every model; all of both only in the full product.
    turn=$BMC_SEED
    for isa in $(isas); do
        turn=$((turn + 1))
        for name in $models; do
            turn=$((turn + 1))
            for types in 'f32 f32' 'f32 bf16x2' 'bf16 bf16'; do
                turn=$((turn + 1))
                [ "$BMC_FULL" = 1 ] || [ $((turn % 3)) -eq 0 ] || continue
                # shellcheck disable=SC2086 # words
                check "$name" bmc 2 512 3 $types "$isa"
            done
        done
    done
}

# Every value of every dimension, and every model twice, in random company.
@test "policies, T, batches, threads, chunks, cache types, precisions and instruction sets: a covering subset" {
    echo "# BMC_SEED=$BMC_SEED" >&3
    count=20
    read -ra name < <(deal 1 $count $(all_models))
    read -ra kv < <(deal 2 $count $(kv_values))
    read -ra batch < <(deal 3 $count $batches)
    read -ra thread < <(deal 4 $count $threads)
    read -ra chunk < <(deal 5 $count $chunks)
    read -ra type < <(deal 6 $count $types)
    read -ra precision < <(deal 7 $count $precisions)
    read -ra isa < <(deal 8 $count $(isas))
    for ((step = 0; step < count; step++)); do
        check "${name[step]}" "${kv[step]}" "${thread[step]}" "${chunk[step]}" "${batch[step]}" "${type[step]}" "${precision[step]}" "${isa[step]}"
    done
}

@test "policies, T, batches, threads, chunks and cache types: the full product" {
    [ "$BMC_FULL" = 1 ] || skip "BMC_FULL=1 runs it"
    for name in $(all_models); do
        for kv in $(kv_values); do
            for batch in $batches; do for thread in $threads; do for chunk in $chunks; do for type in $types; do
                check "$name" "$kv" "$thread" "$chunk" "$batch" "$type"
            done; done; done; done
        done
    done
}
