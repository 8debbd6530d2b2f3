# Each family of models.d/families against transformers: a tiny random model, its ids and log-probabilities. And what family
# files can say about values.
load helper

setup_file() {
    for name in $(all_families); do converted "$name" >/dev/null; done
    export BMC_SEED=${BMC_SEED:-$((($(date +%s%N) / 1000) % 32768))}
}

all_families() { for config in "$FIXTURES"/families/*/config.json; do basename "$(dirname "$config")"; done | sort; }

results() { echo "$FIXTURES/families/$1/reference.json"; }

# A converted model. It is made once.
converted() {
    local file=$BMC_BUILD/models/family-$1.bmc
    if [ ! "$file" -nt "$BMC_BIN/bmc-convert" ] || [ -n "$(find "$ROOT/models.d/families" "$FIXTURES/families/$1" -newer "$file")" ]; then
        mkdir -p "$BMC_BUILD/models" && bmc-convert "$FIXTURES/families/$1" -o "$file" || return 1
    fi
    echo "$file"
}

kv_values() { # FAMILY
    local policy context
    context=$(bmc-convert --info --format json "$(converted "$1")" | jq .context)
    for policy in $(kv_policies); do
        case $policy in
        bmc) echo bmc:T=1 bmc:T=4 bmc:T=16 "bmc:T=$context" ;;
        *) echo "$policy" ;;
        esac
    done
}

# Ids equal, logits and log-probabilities within 1e-5.
check() { # FAMILY KV THREADS CHUNK BATCH [ISA]
    BMC_ISA=$6 run "$BMC_BUILD/tests/reference" "$(converted "$1")" "$(results "$1")" "$2" "$3" "$4" "$5" f32 f32 1e-5
    [ "$status" -eq 0 ] || fail "reference $* -> $output"
    [[ $output =~ ([0-9]+)' checks, 0 failed'$ ]] || fail "reference $* -> $output"
    [ "${BASH_REMATCH[1]}" -ge 150 ]
    if [[ $output == *'a tie'* ]]; then fail "$*: $output"; fi
}

@test "every family has a model here or among the fixtures" {
    [ "$(all_families | wc -l)" -ge 17 ]
    assert_equal "$(sed -n 's/^family  *//p' "$ROOT"/models.d/families/*.family | sort)" "$(for file in "$ROOT"/models.d/families/*.family; do basename -s .family "$file"; done | sort)"
    for file in "$FIXTURES"/families/*/config.json "$FIXTURES"/models/*/config.json; do jq -r '.architectures[0]' "$file"; done | sort -u >have
    for family in "$ROOT"/models.d/families/*.family; do
        sed -n 's/^architecture  *//p' "$family" | grep -qxFf have || fail "no model for $family"
    done
}

@test "ids, logits and log-probabilities of every family are those of transformers" {
    for name in $(all_families); do check "$name" bmc 1 512 1; done
}

@test "every instruction set of the machine" {
    [[ " $(isas) " == *" ref "* ]]
    names=$(all_families)
    # Norms of heads, windows and caps, distances, and rotation in part.
    [ "$BMC_FULL" = 1 ] || names='qwen3 gemma2 bloom gptj'
    for isa in $(isas); do for name in $names; do check "$name" bmc 2 512 3 "$isa"; done; done
}

@test "a window gives the same under every policy" {
    for name in mistral gemma2 phi3; do for kv in $(kv_values "$name"); do check "$name" "$kv" 1 7 3; done; done
}

@test "policies, threads, chunks, batches and instruction sets: a covering subset" {
    echo "# BMC_SEED=$BMC_SEED" >&3
    RANDOM=$BMC_SEED
    read -ra isa <<<"$(isas)"
    for name in $(all_families); do
        read -ra kv <<<"$(kv_values "$name" | tr '\n' ' ')"
        batches=(1 2 3) chunks=(1 7 512)
        check "$name" "${kv[RANDOM % ${#kv[@]}]}" $((RANDOM % 2 + 1)) "${chunks[RANDOM % 3]}" "${batches[RANDOM % 3]}" "${isa[RANDOM % ${#isa[@]}]}"
    done
}

@test "policies, threads, chunks and batches: the full product" {
    [ "$BMC_FULL" = 1 ] || skip "BMC_FULL=1 runs it"
    for name in $(all_families); do for kv in $(kv_values "$name"); do
        for threads in 1 2; do for chunk in 1 7 512; do for batch in 1 2 3; do
            check "$name" "$kv" $threads $chunk $batch
        done; done; done
    done; done
}

@test "speculation gives every family's ids, in a batch" {
    for name in $(all_families); do
        jq -c '.cases | to_entries[] | {id: .key, prompt: .value.prompt, n: (.value.greedy_ids | length)}' "$(results "$name")" >in
        jq -c '.cases | to_entries[] | [.key, .value.greedy_ids]' "$(results "$name")" >want
        bmc-spec -q -m "$(converted "$name")" --lookup --jsonl --ignore-eos -b 3 --stats stats.json <in >out || fail "$name"
        jq -c '[.id, .ids]' out >got
        cmp -s got want || fail "$name: $(diff got want)"
    done
}
