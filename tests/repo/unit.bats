# The C tests that need no more than a model: each prints its failed checks and how many it made.
load ../helper

setup_file() {
    for name in grimm llama-2-like; do model "$name" >/dev/null; done
    [ "$BMC_FULL" != 1 ] || export BMC_SEED=${BMC_SEED:-$RANDOM} # printed by each test
}

unit() { # NAME ARGUMENT..
    run "$BMC_BUILD/tests/test_$1" "${@:2}"
    [ "$status" -eq 0 ] || fail "test_$* -> $output"
    [[ $output =~ ([0-9]+)' checks, 0 failed'$ ]]
}

@test "kernels of every set, and the packed layout" { unit kernel; }
@test "kernels of every set have the bits of plain C" { unit same_bits; }
@test "int8 products of quantised weights in every kernel set, bit for bit" { unit int8; }
@test "a gate matrix of another type than the up projection" { unit gate; }
@test "quantised weights: every kernel set against plain C, bit for bit" { BMC_SEED=${BMC_SEED:-$RANDOM} unit quant_sets; }
@test "types with a grid: plain C against the values of rows, bit for bit" { unit grid_types; }
@test "the default kernel set, by measured instruction rates" {
    [ -z "$BMC_EMULATED" ] || skip "the rates are those of x86's instructions"
    unit rates
}
@test "conversions to and from f16" { unit f16; }
@test "quantised types: rows and blocks" { unit quant "$FIXTURES/quant_types.txt"; }
@test "blocks that share huge pages" { unit pool; }
@test "hashes of large blocks" { unit hash; }
@test "thread teams" { unit threads; }
@test "control groups: quotas, memory limits, malformed files" { unit cgroup "$BATS_TEST_TMPDIR/root"; }
@test "cores of masks and of hybrid processors" { unit cores "$BATS_TEST_TMPDIR/sys"; }
@test "NUMA nodes: teams are bound, and weights placed where they are read" { unit numa "$BATS_TEST_TMPDIR/sys" "$(model grimm)"; }
@test "mapped files and their names" { unit mapped; }
@test "a replica refuses invalid commands" { unit replica; }
@test "cache policies" { unit kv; }
@test "KV entries of quantised caches" { unit quant_rows; }
@test "quantised caches: entries are quantised once, attention reads them in place" { unit kv_quant; }
@test "memory footprint of caches, by arithmetic and as caches count it" { unit footprint; }
@test "a cache of 32k tokens that is truncated to 1k has the memory that 1k needs, every policy" { unit shrink; }
@test "growth in advance" { unit prepare; }
@test "attention over a shared prefix, and over heads of which some are in memory" { unit kv_parts; }
@test "a cache larger than memory: its entries, its memory, its file" { unit headwise; }
@test "an I/O ring that fails: requests in flight are awaited, errors that persist are reported" { unit uring; }
@test "sequences truncated, forked and reordered at random, under every policy" { unit cuts; }
@test "sequences of models with recurrent state, windows, experts: the logits of one pass, whatever happens to them" {
    unit state "$([ "$BMC_FULL" = 1 ] && echo 280 || echo 6)" # 280: 10,000 steps of models with recurrent state
}
@test "random numbers, sampler, stop strings" { unit decode; }
@test "products of groups of rows, in every kernel set: the bits of each group alone" { unit groups; }
@test "kernels of layers with recurrent state, in every set: their formulas" { unit recur; }
@test "keys of few bits that are fit to queries, costs of cache types, scales of keys" {
    for name in key_fit kv_sensitivity key_scales; do unit $name; done
}
@test "configurations whose layers differ" { unit config_layers; }
@test "a store of experts returns the weights of each, whatever the memory and order" { unit expert_store; }
@test "samplers in any order" { unit samplers "$FIXTURES/samplers.jsonl"; }
@test "the generation loop with test strategies" { unit loop; }

@test "random batches with shared prefixes, under rolling policies: the ids of each request alone" { unit batches; }

@test "model.bmc by a second reader: whole blocks, and matrices that need padding; hostile safetensors" {
    for name in grimm llama-2-like; do unit format "$(model $name)" "$(folder $name)/model.safetensors"; done
}

@test "the public library" {
    unit api "$(model grimm)" "$(reference_text grimm 0 prompt)" "$(reference_text grimm 0 greedy_text)"
}

@test "generation, sampling, scoring and snapshots through the public library" {
    unit api_generate "$(model grimm)" "$(reference_text grimm 0 prompt)" "$(reference_text grimm 0 greedy_text)" "$BATS_TEST_TMPDIR/snapshot.kv"
}

@test "beam search through the public library" {
    unit api_beam "$(model grimm)" "$(reference_text grimm 0 prompt)"
}

@test "speculation, prefix cache, progress and log through the public library" {
    for name in draft pard eagle eagle3 mtp; do drafts+=("$ROOT/models.d/grimm-$name.bmc"); done
    unit api_draft "$(model grimm)" "$(reference_text grimm 0 prompt)" "$(reference_text grimm 0 greedy_text)" "$BATS_TEST_TMPDIR/prefixes" "${drafts[@]}"
}

@test "threads on one model, one context and closed ones, through the public library" {
    local chat=$ROOT/models.d/chat/chatml.jinja
    cd "$BATS_TEST_TMPDIR" || return 1
    unit api_threads "$(model grimm)" "$chat" snapshot.kv
    bmc-convert "$FIXTURES/families/mixtral" -o experts.bmc
    unit api_threads experts.bmc "$chat" snapshot.kv ram=300K
}

@test "LoRA adapters through the public library: logits and ids of PEFT" {
    local lora=$FIXTURES/lora
    cd "$BATS_TEST_TMPDIR" || return 1
    for name in llama both; do jq -r ".$name.cases[0] | .ids, .greedy, .last_logits | map(tostring) | join(\" \")" "$lora/reference.json" >$name; done
    assert_equal "$(head -n 1 llama)" "$(head -n 1 both)"
    bmc-convert "$FIXTURES/families/llama-yarn" -o model.bmc >/dev/null 2>&1
    unit api_lora model.bmc "$ROOT/models.d" snapshot.kv "$lora/llama" "$lora/second/adapter_model.safetensors" llama both
}

@test "fault injection over the public library: state after errors, results when repeated, memory" {
    if sanitized; then skip "the sanitizers have their own allocator"; fi
    local step=4 gemma=$FIXTURES/families/gemma4-heads
    [ -z "$BMC_FULL" ] || step=100000
    [ -z "$BMC_EMULATED" ] || step=2
    cd "$BATS_TEST_TMPDIR" || return 1
    bmc-convert "$FIXTURES/families/llama-yarn" -o adapted.bmc >/dev/null 2>&1
    faults() {
        BMC_SEED=${BMC_SEED:-$RANDOM} GLIBC_TUNABLES=glibc.malloc.tcache_count=0:glibc.malloc.mxfast=0 unit api_faults "$1" "$PWD" "$ROOT/models.d/chat/chatml.jinja" \
            adapted.bmc "$FIXTURES/lora/llama" "$ROOT/models.d" "$step" "$2"
    }
    faults "$(model llama-2-like)" iterative
    [ -z "$BMC_EMULATED" ] || return 0
    # KV heads of two sizes: one cache has grown when the other fails
    mkdir sizes
    ln -s "$gemma"/[!c]* sizes/
    jq '.max_position_embeddings = 256' "$gemma/config.json" >sizes/config.json
    bmc-convert sizes -o sizes.bmc
    for policy in bmc:r=8 ${BMC_FULL:+iterative paged:16 segment}; do faults sizes.bmc $policy; done
}

@test "a program built against an older header runs with today's shared library" { unit abi "$(model grimm)"; }

@test "templates: what of their text is content, limits" { unit jinja; }
@test "functions of templates: the steps that they count bound their time" {
    [ -z "$BMC_EMULATED" ] || skip "an emulator's time is its own"
    unit jinja_work
}
@test "chat formats: conversations as transformers writes them" { unit chat "$ROOT/models.d" "$FIXTURES/chats.json"; }

@test "a Bats file runs every driver in C" {
    for file in "$ROOT"/tests/unit/*/test_*.c; do
        name=$(basename "$file" .c) name=${name#test_}
        grep -qE "(unit|tests/\"?|test_|for name in .*|for test in .*)[ \"]*$name\\b" "$ROOT"/tests/*/*.bats || fail "nothing runs $file"
    done
}
