# The C tests that need no more than a model: each prints its failed checks and how many it made.
load ../helper

setup_file() {
    for name in grimm llama-2-like; do model "$name" >/dev/null; done
}

unit() { # NAME ARGUMENT..
    run "$BMC_BUILD/tests/test_$1" "${@:2}"
    [ "$status" -eq 0 ] || fail "test_$* -> $output"
    [[ $output =~ ([0-9]+)' checks, 0 failed'$ ]]
}

@test "kernels of every set, and the packed layout" { unit kernel; }
@test "products of few bits in every set, bit for bit" { unit int8; }
@test "a gate of another type than the matrix beside it" { unit gate; }
@test "weights of few bits: every set against plain C, bit for bit" { unit quant_sets; }
@test "the default kernel set, by rates of instructions" { unit rates; }
@test "half precision" { unit f16; }
@test "types of few bits: rows and blocks" { unit quant "$FIXTURES/quant_types.txt"; }
@test "hashes of long stretches" { unit hash; }
@test "teams of threads" { unit threads; }
@test "mapped files and their names" { unit mapped; }
@test "a rank that follows refuses what cannot be" { unit replica; }
@test "cache policies" { unit kv; }
@test "rows of caches of few bits" { unit quant_rows; }
@test "caches of few bits: rounded once, attention over rows as they lie" { unit kv_quant; }
@test "what caches need, by arithmetic and as opened ones count it" { unit footprint; }
@test "growth in advance" { unit prepare; }
@test "attention over shared rows, and over heads of which some are in memory" { unit kv_parts; }
@test "a cache larger than memory: its rows, its memory, its file" { unit headwise; }
@test "a ring that fails: what passes is waited for, what stays is said" { unit uring; }
@test "sequences that are cut, forked and reordered at random, under every policy" { unit cuts; }
@test "random numbers, sampler, stop strings" { unit decode; }
@test "the generation loop under strategies of its own" { unit loop; }

@test "random batches with common prefixes, under policies that drop rows: the ids of each request alone" { unit batches; }

@test "model.bmc by a second reader: whole blocks, and matrices that need padding; hostile safetensors" {
    for name in grimm llama-2-like; do unit format "$(model $name)" "$(folder $name)/model.safetensors"; done
}

@test "the library as its users have it" {
    unit api "$(model grimm)" "$(reference_text grimm 0 prompt)" "$(reference_text grimm 0 greedy_text)"
}

@test "chat formats: conversations as transformers writes them" { unit chat "$ROOT/models.d" "$FIXTURES/chats.json"; }
