# Every cache policy, T, batch size and number of threads gives the reference ids.
load ../helper

setup_file() {
    for name in grimm andersen llama-3-like; do model "$name" >/dev/null; done
    export BMC_SEED=${BMC_SEED:-$((($(date +%s%N) / 1000) % 32768))}
}

# Requests of different lengths, nine of them, under an emulator four: the model's reference cases with 8, 19, 30 .. tokens.
requests() { # MODEL
    local n=9
    [ -z "$BMC_EMULATED" ] || n=4
    jq -c --argjson n $n '.cases as $c | range($n) as $i | {id: $i, prompt: $c[$i % 4].prompt, n: (8 + $i * 11 % 33)}' "$(reference "$1")" >"$1.in"
    jq -c --argjson n $n '.cases as $c | range($n) as $i | [$i, $c[$i % 4].greedy_ids[:8 + $i * 11 % 33]]' "$(reference "$1")" >"$1.want"
}

# check MODEL CONTEXT KV BATCH THREADS ROWS OPTION..: where T is N, it is the context.
check() {
    local kv=${3/T=N/T=$2}
    bmc-gen -q -m "$(model "$1")" --jsonl --ignore-eos -c "$2" --kv "$kv" -b "$4" -t "$5" --attend "$6" --stats stats.json "${@:7}" <"$1.in" >out 2>err ||
        fail "$*: $(cat err)"
    [ ! -s err ] || fail "$*: $(cat err)"
    jq -c '[.id, .ids]' out >got
    cmp -s got "$1.want" || fail "$*: $(diff got "$1.want")"
    # The run used these settings.
    jq -e --arg p "${kv%:*}" --argjson b "$4" --argjson t "$5" '.kv_policy == $p and .batch == $b and .threads == $t' stats.json >/dev/null || fail "$*: $(cat stats.json)"
}

kv_values() {
    for policy in $(kv_policies); do
        case $policy in
        bmc) echo bmc:T={1,2,4,8,16,N} bmc:r=5 ;;
        *) echo "$policy" ;;
        esac
    done
}

# The context is the longest request, so that T = N is a growth event per token.
contexts='grimm:64 andersen:80 llama-3-like:240'

@test "--jsonl: every policy, T, batch and number of threads" {
    for pair in $contexts; do requests "${pair%:*}"; done
    if [ "$BMC_FULL" = 1 ]; then
        for pair in $contexts; do for kv in $(kv_values); do for batch in 1 2 3 5 8; do for threads in 1 2; do for rows in policy valid; do
            check "${pair%:*}" "${pair#*:}" "$kv" $batch $threads $rows
        done; done; done; done; done
        return
    fi
    echo "# BMC_SEED=$BMC_SEED" >&3
    RANDOM=$BMC_SEED
    batches=(1 2 3 5 8) step=$((RANDOM % 30))
    for kv in $(kv_values); do
        # Each policy with one of the models, batches and numbers of threads.
        set -- $contexts
        shift $((step % 3))
        pick rows valid policy policy
        check "${1%:*}" "${1#*:}" "$kv" "${batches[step % 5]}" $((step / 3 % 2 + 1)) "$rows"
        step=$((step + 1))
    done
}

# Padding is multiplied, too, and masked (BMC paper, V-B). The best two logits of the reference differ by more than 0.002.
@test "eager attention: every policy gives the reference ids" {
    for pair in $contexts; do requests "${pair%:*}"; done
    for attn in $(attns); do
        [ "$attn" != fused ] || continue
        for kv in $(kv_values); do for pair in $contexts; do
            ! sampled 12 || check "${pair%:*}" "${pair#*:}" "$kv" 3 2 policy --attn "$attn" --cache-type f32 --precision f32
        done; done
    done
}

@test "--ids: one prompt at a time, over prefill chunks" {
    echo "# BMC_SEED=$BMC_SEED" >&3
    RANDOM=$BMC_SEED
    for kv in $(kv_values); do
        chunk=$((RANDOM % 9 + 1))
        ok bmc-gen -q -m "$(model llama-3-like)" -p "$(reference_text llama-3-like 3 prompt)" -n 40 --ignore-eos --ids -c 218 --kv "${kv/T=N/T=218}" --chunk $chunk --precision f32
        assert_output "$(greedy_ids llama-3-like 3 40)"
    done
}

@test "a reused slot has no effect on the next request" {
    # One slot: each request follows another.
    requests grimm
    for kv in $(kv_values); do ! sampled 2 || check grimm 64 "$kv" 1 1 policy; done
    # The same request many times in a batch: the same ids, whatever is in the other slots.
    jq -nc --arg p "$(reference_text grimm 2 prompt)" 'range(12) | {id: ., prompt: $p, n: 20}' >in
    ok bmc-gen -q -m "$(model grimm)" --jsonl --ignore-eos -b 5 -f in
    assert_equal "$(jq -c .ids <<<"$output" | sort -u)" "$(jq -c '.cases[2].greedy_ids[:20]' "$(reference grimm)")"
}
