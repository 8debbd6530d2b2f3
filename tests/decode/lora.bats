# LoRA adapters: --lora.
load ../helper

setup() { cd "$BATS_TEST_TMPDIR" || return 1; }

LORA=$FIXTURES/lora

# A converted fixture, cached for the tests of this file.
converted() { # FOLDER
    local file=$BATS_FILE_TMPDIR/${1//\//-}.bmc
    [ -e "$file" ] || bmc-convert "$FIXTURES/$1" -o "$file" >/dev/null 2>&1
    echo "$file"
}

model_of() { jq -r ".\"$1\".model" "$LORA/reference.json"; }

# Greedy ids, and log-probabilities of prompts, of a case of reference.json. The greedy ids of a case with other adapters differ.
# The adapters are as large as the weights, so that rounding is amplified: log-probabilities of the merged weights, without an adapter, are as far
# from those in f64 (1.6e-5 in avx512, 5e-6 in ref and blas, whose sums have another order).
compare() { # CASE ARGUMENT..
    local name=$1
    shift
    jq -c ".\"$name\".cases[] | {prompt_ids: .ids, n: (.greedy | length), prompt_logprobs: 1, ignore_eos: true}" "$LORA/reference.json" >requests
    [ "$(wc -l <requests)" -eq 2 ]
    bmc-gen -q -m "$(converted "$(model_of "$name")")" --jsonl --precision f32 "$@" <requests >results || fail "$name $*"
    for i in 0 1; do
        assert_equal "$(sed -n $((i + 1))p results | jq -c .ids)" "$(jq -c ".\"$name\".cases[$i].greedy" "$LORA/reference.json")"
    done
    jq -s -e --slurpfile want "$LORA/reference.json" --arg name "$name" '
        [range(2) as $i | ([.[$i].prompt_logprobs[1:][] | .logprob], $want[0][$name].cases[$i].logprobs)]
        | [range(0; 4; 2) as $i | [.[$i], .[$i + 1]] | transpose[] | (.[0] - .[1]) | if . < 0 then -. else . end]
        | length >= 40 and max < 2e-5' results >verdict || fail "$name $*: $(cat verdict)"
}

@test "ids and log-probabilities with adapters match PEFT, in every family's layout" {
    names='llama qwen3 gemma2 phi3 gpt2 gpt-neox falcon deepseek qwen35 mixtral'
    for name in $names; do compare "$name" --lora "$LORA/$name"; done
}

@test "adapters add up, and factors scale them" {
    compare both --lora "$LORA/llama" --lora "$LORA/second/adapter_model.safetensors:-0.75"
}

@test "a GGUF adapter, whose rows of Q and K are interleaved, and the same as PEFT wrote it" {
    compare plain --lora "$LORA/plain.gguf"
    compare plain --lora "$LORA/plain"
}

@test "policies, threads, chunks, batches and speculation do not change a bit" {
    model=$(converted "$(model_of llama)")
    jq -c '.llama.cases[] | {prompt_ids: .ids, n: 30, ignore_eos: true, prompt_logprobs: 1, logprobs: 3}' "$LORA/reference.json" >requests
    cat requests requests >more
    bmc-gen -q -m "$model" --lora "$LORA/llama" --jsonl -np 1 <more >want
    [ "$(wc -l <want)" -eq 4 ]
    bmc-gen -q -m "$model" --jsonl -np 1 <more >without
    if cmp -s want without; then fail "the adapter changes nothing"; fi
    for args in '-np 4' '-np 3 --chunk 5 -t 2' '--kv paged -np 2' '--kv segment -np 4 -t 3' '--kv reserve --chunk 1'; do
        bmc-gen -q -m "$model" --lora "$LORA/llama" --jsonl $args <more >got
        cmp want got || fail "$args"
    done
    jq -c 'del(.prompt_logprobs, .logprobs)' more >plain
    bmc-gen -q -m "$model" --lora "$LORA/llama" --jsonl <plain >want
    bmc-spec -q -m "$model" --lora "$LORA/llama" --lookup --jsonl <plain >got
    assert_equal "$(jq -c .ids got)" "$(jq -c .ids want)"
}

# tests/unit/poisoned_spec.c
@test "on a backend whose memory only its functions can use, adapters, snapshots and drafts of a text give what they give on the CPU" {
    model=$(converted "$(model_of llama)")
    jq -c '.llama.cases[] | {prompt_ids: .ids, n: 9, ignore_eos: true}' "$LORA/reference.json" >requests
    for program in bmc-spec "$BMC_BUILD/tests/poisoned_spec"; do
        for options in '--kv bmc' '--kv paged -np 2 --chunk 5'; do
            # shellcheck disable=SC2086 # words
            "$program" -q -m "$model" --lora "$LORA/llama" --lora "$LORA/second:0.5" --lookup -k 3 --always --jsonl $options --stats stats.json <requests | jq -c .ids || fail "$program"
            jq -c '[.drafted, .accepted, .logits_hash]' stats.json
        done
        "$program" -q -m "$model" --lora "$LORA/llama" --recycle --prompt-ids '7 40 3' -n 5 --ids --save-kv s.kv || fail "$program"
        "$program" -q -m "$model" --lora "$LORA/llama" --recycle --load-kv s.kv -n 5 --ids || fail "$program"
        rm s.kv
    done >both
    [ "$(wc -l <both)" -eq 16 ]
    cmp -s <(head -n 8 both) <(tail -n 8 both) || fail "$(cat both)"
}

@test "every type of weights: an adapter of zero factor keeps the bits, another one changes them" {
    for type in q8_0 q4_k bf16; do
        bmc-convert --pure --type $type "$FIXTURES/models/llama" -o model.bmc >/dev/null 2>&1 || bmc-convert --pure --type $type "$FIXTURES/families/llama-yarn" -o model.bmc >/dev/null 2>&1
        bmc-gen -q -m model.bmc -p "Once there was a cat" -n 8 --stats a.json >a
        bmc-gen -q -m model.bmc -p "Once there was a cat" -n 8 --stats b.json --lora "$LORA/llama:0" >b
        bmc-gen -q -m model.bmc -p "Once there was a cat" -n 8 --stats c.json --lora "$LORA/llama" >c
        assert_equal "$(jq .logits_hash b.json)" "$(jq .logits_hash a.json)"
        [ "$(jq .logits_hash c.json)" != "$(jq .logits_hash a.json)" ]
    done
}

@test "scores and embeddings use the adapter" {
    model=$(converted "$(model_of llama)")
    for job in --score --embed; do
        echo "Once there was a cat" | bmc-gen -q -m "$model" $job >without
        echo "Once there was a cat" | bmc-gen -q -m "$model" $job --lora "$LORA/llama" >with
        if cmp -s with without; then fail "$job"; fi
    done
}

@test "KV entries of other adapters are never used" {
    model=$(converted "$(model_of llama)")
    text="In a castle by the river lived a king who had three daughters, and a cat that knew more than he did."
    bmc-gen -q -m "$model" -p "$text" -n 4 --lora "$LORA/llama" --save-kv with.kv >/dev/null
    bmc-gen -q -m "$model" -p "$text" -n 4 --save-kv without.kv >/dev/null
    bmc-gen -q -m "$model" --lora "$LORA/llama" --load-kv with.kv -n 4 >got
    bmc-gen -q -m "$model" -p "$text" -n 8 --lora "$LORA/llama" >want
    assert_equal "$(tail -c "$(wc -c <got)" want)" "$(cat got)"
    wrong='was made with another model .*--lora'
    expect_error 1 "$wrong" bmc-gen -q -m "$model" --load-kv with.kv -n 4
    expect_error 1 "$wrong" bmc-gen -q -m "$model" --load-kv without.kv -n 4 --lora "$LORA/llama"
    expect_error 1 "$wrong" bmc-gen -q -m "$model" --load-kv with.kv -n 4 --lora "$LORA/llama:0.5"
    expect_error 1 "$wrong" bmc-gen -q -m "$model" --load-kv with.kv -n 4 --lora "$LORA/second"
    for args in "" "--lora $LORA/llama" "--lora $LORA/llama:0.5"; do
        bmc-gen -q -m "$model" -p "$text" -n 8 $args >want
        for _ in 1 2; do
            bmc-gen -q -m "$model" -p "$text" -n 8 --prefix-cache cache $args >got
            cmp want got || fail "prefix cache, $args"
        done
    done
}

@test "adapters that are not supported or do not fit are refused by a sentence" {
    model=$(converted "$(model_of llama)")
    refused() { # REGEX ADAPTER
        expect_error 1 "bmc-gen: --lora: .*$1" bmc-gen -q -m "$model" -p x -n 1 --lora "$2"
    }
    altered() { # JQ-PROGRAM
        rm -rf bad
        cp -r "$LORA/llama" bad
        chmod -R u+w bad
        jq "$1" "$LORA/llama/adapter_config.json" >bad/adapter_config.json
    }
    count=0
    while IFS='|' read -r edit sentence; do
        count=$((count + 1))
        altered "$edit"
        refused "$sentence" bad
    done <<'END'
.use_dora = true|"use_dora" asks for weight decomposition \(DoRA\)
.modules_to_save = ["lm_head"]|"modules_to_save" asks for whole modules
.bias = "all"|"bias" is not "none"
.lora_bias = true|"lora_bias"
.trainable_token_indices = [1]|retrained embeddings
.peft_type = "IA3"|peft_type is IA3, only LORA
. + {r: 4, rank_pattern: {}}|has rank [35], adapter_config.json says 4
.r = 0|"r" must be a rank
.lora_alpha = null|"lora_alpha" is null
.alpha_pattern = {"q_.*": 3}|regular expression
.init_lora_weights = "pissa_niter_4"|init_lora_weights "pissa_niter_4" changes the model.s weights
.auto_mapping = {base_model_class: "Qwen2ForCausalLM"}|was made for a Qwen2ForCausalLM, but the model is of family llama
.auto_mapping = {base_model_class: "MistralModel"}|was made for a MistralModel, but the model is of family llama
END
    [ "$count" -eq 13 ]
    # The model's own class, that of its part without LM head, and an unknown one are no reason; nor is what only matters for training.
    bmc-gen -q -m "$model" --prompt-ids "7 40 3" -n 4 --ids --lora "$LORA/llama" >want
    for edit in '.auto_mapping = {base_model_class: "LlamaForCausalLM"}' '.auto_mapping = {base_model_class: "LlamaModel"}' \
        '.auto_mapping = {base_model_class: "MyLM"} | .fan_in_fan_out = true | .init_lora_weights = "gaussian"'; do
        altered "$edit"
        ok bmc-gen -q -m "$model" --prompt-ids "7 40 3" -n 4 --ids --lora bad
        assert_output "$(cat want)"
    done
    # In GGUF the order of rows depends on the architecture.
    model=$(converted "$(model_of plain)")
    LC_ALL=C sed 's/llama/qwen2/' "$LORA/plain.gguf" >other.gguf
    refused 'other.gguf: was made for models of general.architecture "qwen2", but this one is of family llama' other.gguf
    ok bmc-gen -q -m "$(converted families/mistral)" -n 2 --ids --prompt-ids 7 --lora "$LORA/plain.gguf"
    model=$(converted "$(model_of llama)")
    refused 'has no layer "gpt_neox' "$LORA/gpt-neox"
    expect_error 1 'bmc-gen: --lora: .*is for 40 inputs and .*made for another model' bmc-gen -q -m "$(model grimm)" -p x --lora "$LORA/llama"
    expect_error 1 "bmc-gen: --lora: .*inputs of 8 bits: merge it into the model" bmc-gen -q -m "$(converted families/bitnet-int8)" -p x --lora "$LORA/llama"
    refused 'adapter_config.json is missing' "$FIXTURES/families/qwen3"
    refused 'is a model, an adapter is expected' "$(find "$FIXTURES/gguf" -name '*.gguf' | sort | head -n 1)"
    refused 'no such' nothing
    cp -r "$LORA/llama" cut
    chmod -R u+w cut
    truncate -s 900 cut/adapter_model.safetensors
    refused 'truncated|claims' cut
    expect_error 1 'a LoRA adapter.*--lora' bmc-convert "$LORA/plain.gguf" -o x.bmc
}

# Ids and log-probabilities of each request of a file.
values() { jq -c '[.id, .ids, .logprobs, .error]'; }

@test "requests name their adapters: all, some, scaled ones or none, in one batch" {
    model=$(converted "$(model_of llama)")
    cp -r "$LORA/llama" tales
    both=(--lora tales/ --lora "$LORA/second:-0.75")
    printf '%s\n' '{"id": "all"}' '{"id": "first", "lora": "tales"}' '{"id": "second", "lora": [1]}' '{"id": "none", "lora": []}' \
        '{"id": "both", "lora": ["tales/", {"id": "second"}]}' '{"id": "twice", "lora": [1, {"id": 0, "scale": 0.5}, {"id": 0, "scale": 0.5}]}' \
        '{"id": "zero", "lora": [{"id": "tales", "scale": 0}]}' '{"id": "half", "lora": [{"id": "tales", "scale": 0.5}]}' |
        jq -c '. + {prompt_ids: [7, 40, 3, 90, 17, 200, 11], n: 8, ignore_eos: true, logprobs: 2}' >in
    bmc-gen -q -m "$model" --jsonl -np 8 "${both[@]}" <in | values >got
    same() { # ID OPTION..
        jq -c "select(.id == \"$1\") | del(.lora)" in | bmc-gen -q -m "$model" --jsonl "${@:2}" | values >want
        [ "$(grep -c logprob want)" -eq 1 ]
        grep -Fx -f want got >/dev/null || fail "$1: $(cat want got)"
    }
    same all "${both[@]}"
    same first --lora tales
    same second --lora "$LORA/second:-0.75"
    same none
    same both "${both[@]}"
    same twice "${both[@]}"
    same zero
    assert_equal "$(jq -c '.[1]' got | sort -u | wc -l)" 5
    # A scale is applied to A x, the option's factor to B.
    jq -c 'select(.id == "half") | del(.lora)' in | bmc-gen -q -m "$model" --jsonl --lora tales:0.5 | jq -c .ids >want
    assert_equal "$(jq -c 'select(.[0] == "half")[1]' got)" "$(cat want)"
}

@test "a member lora that cannot be served is refused by a sentence" {
    model=$(converted "$(model_of llama)")
    count=0
    while IFS='|' read -r value sentence; do
        count=$((count + 1))
        some_fail 1 1 bmc-gen -q -m "$model" --jsonl --lora "$LORA/llama" --lora "$LORA/plain" --lora "$LORA/plain" <<<"{\"prompt\": \"x\", \"n\": 1, \"lora\": $value}"
        [[ $(jq -r .error <<<"$output") == "line 1: \"lora\"$sentence"* ]] || fail "$value: $output"
    done <<'END'
"other"|: no --lora option has "other"
["plain"]|: several --lora options have "plain": give the number of one, from 0
[3]|: there is no adapter 3: --lora is given 3 times, from 0
7| is a number: give a list, as [1] for adapter 1 or [{"id": 1, "scale": 0.5}], or [] for none
{"id": 0}| is an object, a list of adapters is expected
[-1]|: entry 0 is no adapter
[0, 1.5]|: entry 1 is no adapter
[{"scale": 1}]|: entry 0 is no adapter
[{"id": 0, "scale": "1"}]|: entry 0 is no adapter
[{"id": 0, "scale": 1e7}]|: entry 0 is no adapter
[{"id": 0, "weight": 1}]|: entry 0 is no adapter
[[0]]|: entry 0 is no adapter
END
    [ "$count" -eq 12 ]
    some_fail 1 1 bmc-gen -q -m "$model" --jsonl <<<'{"prompt": "x", "n": 1, "lora": "llama"}'
    assert_equal "$(jq -r .error <<<"$output")" 'line 1: "lora" names adapters, but the model was opened without any: give them with --lora, or to bmc_model_open_with()'
    some_fail 1 2 bmc-gen -q -m "$model" --jsonl --lora "$LORA/llama" --save-kv x.kv <<<$'{"prompt": "x", "n": 1, "lora": []}\n{"prompt": "x", "n": 1}'
    [[ $(jq -r .error <<<"${lines[0]}") == *"goes neither with --load-kv nor with --save-kv"* ]]
}

random_requests() { # COUNT
    local scale list i
    for ((i = 0; i < $1; i++)); do
        pick scale 0.5 -1 1 2
        pick list null '[]' '[0]' '[1]' '[2,0]' '"second"' "[{\"id\":0,\"scale\":$scale}]" "[1,{\"id\":2,\"scale\":$scale}]"
        jq -nc --argjson i "$i" --argjson cut $((RANDOM % 60 + 1)) --argjson lora "$list" --argjson n $((RANDOM % 12 + 1)) '
            {id: $i, prompt_ids: [range($cut) | (11 * . + 4) % 250], $n, ignore_eos: true, logprobs: 1, $lora}'
    done
}

@test "random batches of adapters: policies, slots, chunks, threads, prefix caches and drafts do not change a bit" {
    seed=${BMC_SEED:-$RANDOM}
    RANDOM=$seed
    adapters=(--lora "$LORA/llama" --lora "$LORA/second" --lora "$LORA/plain.gguf:0.7")
    rounds=3
    [ -z "${BMC_FULL-}" ] || rounds=60
    for ((round = 0; round < rounds; round++)); do
        pick type f32 f32 q8_0 q4_k
        [ -e "$type.bmc" ] || bmc-convert --pure --type $type "$FIXTURES/$(model_of llama)" -o $type.bmc >/dev/null 2>&1
        random_requests 8 >in
        while read -r request; do # alone
            bmc-gen -q -m $type.bmc --jsonl -np 1 "${adapters[@]}" <<<"$request"
        done <in | values >want
        [ "$(grep -c '"logprob"' want)" -eq 8 ]
        for _ in 1 2 3; do
            pick kv bmc iterative upfront paged reserve segment
            pick slots 1 2 4 9
            pick chunk 1 5 16 512
            pick cache "" "" "--prefix-cache cache-$type"
            options="--kv $kv -np $slots --chunk $chunk -t $((RANDOM % 2 + 1)) $cache"
            # shellcheck disable=SC2086
            bmc-gen -q -m $type.bmc --jsonl "${adapters[@]}" $options <in | values >got
            cmp want got || fail "seed $seed, round $round, $type: $options"
        done
        for draft in --lookup "-d $type.bmc"; do
            pick slots 1 3
            # shellcheck disable=SC2086
            jq -c 'del(.logprobs)' in | bmc-spec -q -m $type.bmc $draft --jsonl -np "$slots" "${adapters[@]}" | jq -c '[.id, .ids]' >got
            cmp <(jq -c '.[:2]' want) got || fail "seed $seed, round $round, $type: $draft"
        done
    done
}
