# Each family of models.d/families against transformers: ids and log-probabilities of a tiny random model. And expressions
# in family files.
load ../helper

setup_file() {
    for name in $(all_families); do convert_family "$name" || return 1; done
    export BMC_SEED=${BMC_SEED:-$((($(date +%s%N) / 1000) % 32768))}
}

all_families() { find "$FIXTURES/families" -mindepth 2 -maxdepth 2 -name config.json -printf '%P\n' | sed 's|/.*||' | sort; }

results() { echo "$FIXTURES/families/$1/reference.json"; }

# Its model, converted by setup_file().
converted() { echo "$BMC_BUILD/models/family-$1.bmc"; }

convert_family() {
    local file=$BMC_BUILD/models/family-$1.bmc
    if [ ! "$file" -nt "$BMC_BIN/bmc-convert" ] || [ -n "$(find "$ROOT/models.d/families" "$FIXTURES/families/$1" -newer "$file")" ]; then
        mkdir -p "$BMC_BUILD/models" || return 1
        bmc-convert "$FIXTURES/families/$1" -o "$file"
    fi
}

# The policies that a family runs with. Sparse attention refuses those that drop positions.
kv_values() { # FAMILY
    local policy context sparse
    read -r context sparse < <(bmc-convert --info --format json "$(converted "$1")" | jq -r '"\(.context) \(.index_heads // 0)"')
    for policy in $(kv_policies); do
        case $policy in
        shift) [ "$sparse" -gt 0 ] || echo shift ;;
        bmc) echo bmc:T=1 bmc:T=4 bmc:T=16 "bmc:T=$context" ;;
        headwise) echo headwise ;;
        *) echo "$policy" ;;
        esac
    done
}

# Ids equal, logits and log-probabilities within 1e-5, with BLAS within 1e-4. Inputs that are rounded to 8 bits may become another integer by BLAS's
# sums: no BLAS for these.
check() { # FAMILY KV THREADS CHUNK BATCH [ISA]
    local tolerance=1e-5 isa=$6
    [ "$1 $isa" != 'bitnet-int8 blas' ] || isa=ref
    [ "$isa" != blas ] || tolerance=1e-4
    BMC_ISA=$isa run "$BMC_BUILD/tests/reference" "$(converted "$1")" "$(results "$1")" "$2" "$3" "$4" "$5" f32 f32 $tolerance
    [ "$status" -eq 0 ] || fail "reference $* -> $output"
    [[ $output =~ ([0-9]+)' checks, 0 failed'$ ]] || fail "reference $* -> $output"
    [ "${BASH_REMATCH[1]}" -ge 150 ]
    if [[ $output == *'a tie'* ]]; then fail "$*: $output"; fi
}

# True for files without an architecture that other families name: MTP layers, and lines that several inherit.
is_part() {
    local name=${1##*/}
    name=${name%.family}
    if grep -q ^architecture "$1"; then return 1; fi
    grep -qE "^(mtp +$name |like +$name$)" "$ROOT"/models.d/families/*.family
}

@test "every family has a fixture" {
    [ "$(all_families | wc -l)" -ge 17 ]
    assert_equal "$(sed -n 's/^family  *//p' "$ROOT"/models.d/families/*.family | sort)" "$(for file in "$ROOT"/models.d/families/*.family; do basename -s .family "$file"; done | sort)"
    for file in "$FIXTURES"/{families,models,heads,encoders}/*/config.json; do jq -r '.architectures[0]' "$file"; done | sort -u >have
    for family in "$ROOT"/models.d/families/*.family; do
        if is_part "$family"; then continue; fi
        sed -n 's/^architecture  *\([^ ]*\).*/\1/p' "$family" | grep -qxFf have || fail "no model for $family"
    done
}

@test "the table of families and their fixtures is complete" {
    sed -n '/^| models | `families/,/^$/p' "$FIXTURES/README.md" | tail -n +3 | cut -d '|' -f 3,4 >rows
    [ "$(wc -l <rows)" -ge 32 ]
    while IFS='|' read -r folders files; do
        for name in $(tr -d '`,' <<<"$folders"); do [ -e "$FIXTURES/families/$name/reference.json" ] || fail "families/$name"; done
        for name in $(tr -d '`,' <<<"$files"); do [ -e "$FIXTURES/gguf/families/$name/model.gguf" ] || fail "gguf/families/$name"; done
    done <rows
    for folder in "$FIXTURES"/gguf/families/*; do
        case $(basename "$folder") in
        bloom | falcon-40b | gemma2 | gpt2 | gptj) ;; # of before
        *) grep -q "\`$(basename "$folder")\`" <(cut -d '|' -f 2 rows) || fail "$folder is not in the table" ;;
        esac
    done
}

@test "ids, logits and log-probabilities of every family match transformers" {
    for name in $(all_families); do check "$name" bmc 1 512 1; done
}

# Hashes of the set ref: see make_hashes.sh.
@test "logits of every family have the hash of plain C, on the kernel set of this machine" {
    local gen=(bmc-gen -q --prompt-ids "$(seq -s ' ' 3 2 119)" -n 6 --temp 0 --ignore-eos --ids)
    while read -r name precision cache hash; do
        "${gen[@]}" -m "$(converted "$name")" --precision "$precision" --cache-type "$cache" --check-hash "$hash" >/dev/null || fail "$name $precision $cache"
    done <"$FIXTURES/logits_hashes.txt"
    assert_equal "$(cut -d ' ' -f 1 "$FIXTURES/logits_hashes.txt")" "$(all_families)"
    run "${gen[@]}" -m "$(converted gpt2)" --check-hash 0123456789abcdef
    assert_equal "$status" 1
    [[ $output =~ 'bmc-gen: logits_hash is '[0-9a-f]{16}', expected 0123456789abcdef: the model, ' ]] || fail "$output"
}

@test "every instruction set of the machine" {
    [[ " $(isas) " == *" ref "* ]]
    names=$(all_families)
    # QK norm, sliding windows, soft caps, ALiBi, partial RoPE, norms without bias, factors, limits of Q and K.
    [ "$BMC_FULL" = 1 ] || names='qwen3 gemma2 bloom gptj gemma3 cohere granite mpt'
    for isa in $(isas); do for name in $names; do
        ! sampled 2 || check "$name" bmc 2 512 3 "$isa"
    done; done
}

@test "sliding windows give the same results under every policy" {
    for name in mistral gemma2 phi3 gemma3 cohere2; do for kv in $(kv_values "$name"); do
        ! sampled 2 || check "$name" "$kv" 1 7 3
    done; done
}

@test "sliding windows, soft caps and ALiBi: every attention backend, and draft trees" {
    for name in mistral gemma2 bloom; do
        jq -c '.cases | to_entries[] | {id: .key, prompt: .value.prompt, n: (.value.greedy_ids | length)}' "$(results $name)" >in
        jq -c '.cases | to_entries[] | [.key, .value.greedy_ids]' "$(results $name)" >want
        for attn in $(attns); do for kv in bmc:T=4 iterative paged; do
            sampled 3 || continue
            bmc-gen -q -m "$(converted $name)" --jsonl --ignore-eos -b 2 --attn $attn --kv $kv <in >out || fail "$name $attn $kv"
            jq -c '[.id, .ids]' out | sort >got
            cmp -s got want || fail "$name $attn $kv: $(diff got want)"
        done; done
        bmc-spec -q -m "$(converted $name)" --recycle --jsonl --ignore-eos -b 2 <in >out || fail "$name"
        jq -c '[.id, .ids]' out | sort >got
        cmp -s got want || fail "$name: $(diff got want)"
    done
}

@test "policies, threads, chunks, batches and instruction sets: a covering subset" {
    echo "# BMC_SEED=$BMC_SEED" >&3
    RANDOM=$BMC_SEED
    read -ra isa <<<"$(isas)"
    for name in $(all_families); do
        sampled 3 || continue
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

@test "speculative decoding gives the same ids for every family, in a batch" {
    for name in $(all_families); do
        sampled 3 || continue
        jq -c '.cases | to_entries[] | {id: .key, prompt: .value.prompt, n: (.value.greedy_ids | length)}' "$(results "$name")" >in
        jq -c '.cases | to_entries[] | [.key, .value.greedy_ids]' "$(results "$name")" >want
        bmc-spec -q --precision f32 -m "$(converted "$name")" --lookup --jsonl --ignore-eos -b 3 --stats stats.json <in >out || fail "$name"
        jq -c '[.id, .ids]' out >got
        cmp -s got want || fail "$name: $(diff got want)"
    done
}

@test "a CodeGen model verifies the drafts of another" {
    for draft in codegen gptj; do
        ok bmc-spec -q -m "$(converted codegen)" -d "$(converted $draft)" -p "$(jq -r '.cases[1].prompt' "$(results codegen)")" -n 24 --ignore-eos --ids --stats stats.json
        assert_equal "$output" "$(jq -r '.cases[1].greedy_ids | map(tostring) | join(" ")' "$(results codegen)")"
        # Its own drafts are all accepted.
        [ "$draft" = gptj ] || jq -e '.drafted > 0 and .accepted == .drafted' stats.json
    done
}

# ---- traits take effect ----

# Removing or changing one line of config.json changes the results: every trait is covered.
@test "each trait of a configuration changes the results" {
    n=0
    while IFS='|' read -r name edit; do
        n=$((n + 1))
        sampled 4 || continue
        mkdir folder
        cp "$FIXTURES/families/$name"/* folder
        jq "$edit" "$FIXTURES/families/$name/config.json" >folder/config.json
        bmc-convert folder -o a.bmc || fail "$name: $edit"
        run "$BMC_BUILD/tests/reference" a.bmc "$(results "$name")" bmc 1 512 1 f32 f32 1e-5
        [ "$status" -eq 1 ] || fail "$name: $edit changes nothing: $output"
        rm -r folder a.bmc
    done <<'END'
mistral|.sliding_window = null
mistral|.sliding_window = 18
mistral|.rope_theta = 10000
gpt-neox|.rotary_pct = 0.3
gpt-neox|.use_parallel_residual = false
gpt-neox|.hidden_act = "gelu_new"
gpt2|.scale_attn_weights = false
qwen3|.rope_parameters.rope_theta = 10000
gemma2|.sliding_window = 18
gemma2|.query_pre_attn_scalar = 40
gemma2|.attn_logit_softcapping = null
gemma2|.final_logit_softcapping = null
phi3|.sliding_window = null
phi3-long|.original_max_position_embeddings = 81
phi3-long|.rope_scaling.short_factor[19] = 1.4
phi3-long|.rope_scaling.long_factor[0] = 1.3
olmo2|.rope_theta = 10000
gptj|.rotary_dim = 16
codegen|.rotary_dim = 10
llama-yarn|.rope_scaling.factor = 5
llama-yarn|.rope_scaling.beta_fast = 4
llama-yarn|.rope_scaling.beta_slow = 2
llama-yarn|.rope_scaling.truncate = false
llama-yarn|.rope_scaling.attention_factor = 1
llama-dynamic|.rope_scaling.factor = 3
llama-dynamic|.rope_scaling.type = "linear"
llama-dynamic|del(.rope_scaling)
llama-longrope|.rope_parameters.factor = 5
llama-longrope|.rope_parameters.long_factor[3] = 1
smollm3|.no_rope_layers = null
smollm3|.no_rope_layers = null | .no_rope_layer_interval = 3
smollm3|.rope_theta = null
granite|.embedding_multiplier = 1
granite|.residual_multiplier = null
granite|.attention_multiplier = 0.4
granite|.logits_scaling = 2
glm|.partial_rotary_factor = 0.4
glm4|.partial_rotary_factor = 0.5
olmo|.clip_qkv = null
olmo|.clip_qkv = 1.4
olmo3|.sliding_window = 18
olmo3|.layer_types = null
olmo3|.rope_scaling = null
olmo3|.rope_scaling.attention_factor = null
olmo3|.rope_theta = 10000
phi|.partial_rotary_factor = 0.5
phi|.hidden_act = "gelu"
phi4-mini|.rope_scaling.long_factor[5] = 5
stablelm|.partial_rotary_factor = 0.5
stablelm|.layer_norm_eps = 1e-4
stablelm-parallel|.partial_rotary_factor = 0.4
starcoder2|.sliding_window = null
starcoder2|.hidden_act = "gelu"
cohere|.logit_scale = 0.31
cohere|.rope_theta = 500
cohere2|.sliding_window_pattern = 4
cohere2|.sliding_window = 18
cohere2|.logit_scale = null
mpt|.attn_config.clip_qkv = null
mpt|.attn_config.softmax_scale = null
ernie4_5|.rope_theta = null
exaone4|.layer_types = null
exaone4|.sliding_window = 16
exaone4|.sliding_window = null | .layer_types = null
seed_oss|.rope_theta = 500
hunyuan|.rope_scaling.alpha = 40
hunyuan|del(.rope_scaling)
gemma3|.rope_local_base_freq = null
gemma3|.rope_theta = null
gemma3|.rope_scaling = null
gemma3|.sliding_window_pattern = 7
gemma3|.sliding_window = 18
gemma3|.query_pre_attn_scalar = 20
ministral3|.rope_parameters.llama_4_scaling_beta = null
ministral3|.rope_parameters.original_max_position_embeddings = 39
ministral3|.rope_parameters.mscale = null
ministral3|.rope_parameters.mscale_all_dim = 0.6
ministral3|.sliding_window = 20
deepseek-v2|.rope_theta = 20000
deepseek-v3|.rope_scaling.factor = 5
deepseek-v3|.rope_scaling.mscale = 0.6
deepseek-v3|.rope_scaling.mscale_all_dim = 0.8
deepseek-v3|.rms_norm_eps = 1e-3
deepseek-v3-moe|.rope_scaling.mscale_all_dim = 0.5
youtu|.rope_theta = 10000
falcon-h1-factors|.embedding_multiplier = 1
falcon-h1-factors|.lm_head_multiplier = 1
falcon-h1-factors|.key_multiplier = 0.7
falcon-h1-factors|.attention_in_multiplier = 1
falcon-h1-factors|.attention_out_multiplier = 1
falcon-h1-factors|.mlp_multipliers[0] = 1
falcon-h1-factors|.mlp_multipliers[1] = 1
falcon-h1-factors|.ssm_in_multiplier = 1
falcon-h1-factors|.ssm_out_multiplier = 1
falcon-h1-factors|.ssm_multipliers[0] = 1
falcon-h1-factors|.ssm_multipliers[1] = 1
falcon-h1-factors|.ssm_multipliers[2] = 1
falcon-h1-factors|.ssm_multipliers[3] = 1
falcon-h1-factors|.ssm_multipliers[4] = 1
gpt-neox-yarn|.rope_scaling.factor = 3
gpt-neox-yarn|.rope_scaling.beta_fast = 2
phi-longrope|.rope_scaling.long_factor[1] = 1
phi-longrope|.rope_scaling.short_factor[1] = 3
falcon-llama3|.rope_scaling.low_freq_factor = 1.5
falcon-llama3|.rope_scaling.original_max_position_embeddings = 50
stablelm-heads|.partial_rotary_factor = 0.6
llama4|.attention_chunk_size = 18
llama4|.layer_types = ["chunked_attention", "chunked_attention", "chunked_attention", "full_attention"]
llama4|.no_rope_layers = null
llama4|.use_qk_norm = false
llama4|.attn_temperature_tuning = false
llama4|.floor_scale = 10
llama4|.attn_scale = null
llama4|.rope_scaling.high_freq_factor = 4
gemma3n|.sliding_window = 18
gemma3n|.final_logit_softcapping = 10
gemma3n|.activation_sparsity_pattern[0] = 0.6
gemma3n|.activation_sparsity_pattern[1] = 0
gemma3n|.rope_parameters.full_attention.rope_theta = 4000
gemma3n|.rope_parameters.sliding_attention.rope_theta = 2000
gemma4|.sliding_window = 18
gemma4|.final_logit_softcapping = null
gemma4|.rope_parameters.full_attention.partial_rotary_factor = 0.6
gemma4|.rope_parameters.full_attention.rope_type = "default"
gemma4|.rope_parameters.full_attention.rope_theta = 4000
gemma4|.rope_parameters.sliding_attention.rope_theta = 2000
gemma4-heads|.rope_parameters.full_attention.partial_rotary_factor = null
gemma4-moe|.top_k_experts = 1
gemma4-moe|.final_logit_softcapping = 10
qwen3-vl|.text_config.rope_theta = 10000
phimoe|.router_jitter_noise = 0.01
phimoe|.rope_scaling.short_mscale = 1 | .rope_scaling.long_mscale = 1
hunyuan-moe|.moe_topk = [2, 2]
minimax-m2|.rotary_dim = 20
exaone-moe|.topk_group = 2
step35|.rope_theta[0,3] = 4000
step35|.rope_theta[1,2] = 2000
step35|.partial_rotary_factors[0,3] = 0.4
step35|.partial_rotary_factors[1,2] = 0.9
step35|.rope_scaling.factor = 3
step35|.sliding_window = 16
step35|.swiglu_limits[2] = 0
step35|.swiglu_limits_shared[0] = 0
step35|.swiglu_limits_shared[3] = 0.3
step35|.moe_router_scaling_factor = 1
exaone-moe|.routed_scaling_factor = 1
bailing-moe2|.partial_rotary_factor = 1
bailing-moe2|.routed_scaling_factor = 1
mistral4|.rope_parameters.llama_4_scaling_beta = null
mistral4|.routed_scaling_factor = 2
deepseek-v32|.index_topk = 12
glm-moe-dsa|.index_topk = 12
bitnet|.hidden_act = "silu"
END
    [ "$n" -eq 153 ]
}

@test "sparse attention: beams, draft chains and trees, snapshots and quantised caches choose the same positions; what cannot choose is refused" {
    ids=$(awk 'BEGIN { for (i = 0; i < 110; i++) printf "%d ", 5 + i * 7 % 250 }')
    refused='sparse attention'
    for name in deepseek-v32 glm-moe-dsa; do
        local run=(-q -m "$(converted "$name")" --prompt-ids "$ids" -n 24 --ignore-eos --ids)
        hash_of() { "$@" --stats stats.json >/dev/null && jq -r .logits_hash stats.json; }
        for cache in f32 q8; do
            want=$(hash_of bmc-gen "${run[@]}" --cache-type $cache)
            for how in '--recycle --tree 8' '--lookup -k 4'; do
                # shellcheck disable=SC2086
                assert_equal "$(hash_of bmc-spec "${run[@]}" --cache-type $cache $how --always --kv paged)" "$want"
            done
            assert_equal "$(hash_of bmc-gen "${run[@]}" --cache-type $cache --chunk 9 -t 1 --kv headwise)" "$want"
            bmc-gen -q -m "$(converted "$name")" --prompt-ids "$ids" -n 9 --ignore-eos --cache-type $cache --save-kv story.kv >/dev/null
            ok bmc-convert --verify story.kv
            assert_equal "$(hash_of bmc-gen -q -m "$(converted "$name")" --load-kv story.kv -n 15 --ignore-eos --kv segment)" "$want"
        done
        want=$(bmc-gen "${run[@]}" --beams 3 --kv paged)
        assert_equal "$(bmc-gen "${run[@]}" --beams 3 --kv segment --chunk 5)" "$want"
        mkdir folder
        cp "$FIXTURES/families/$name"/* folder
        jq '.max_position_embeddings = 2000' "$FIXTURES/families/$name/config.json" >folder/config.json
        bmc-convert -q folder -o long.bmc # so long that heads are offloaded, those of indexers too
        rm -r folder
        local long=(-q -m long.bmc --prompt-ids "$(for _ in {1..10}; do echo "$ids"; done)" -n 9 --ignore-eos --ids --chunk 200)
        want=$(hash_of bmc-gen "${long[@]}" --kv headwise)
        all=$(jq .kv_resident_bytes stats.json)
        assert_equal "$(hash_of bmc-gen "${long[@]}" -t 1 --kv headwise:ram=500K,dir=.)" "$want"
        [ "$(jq .kv_resident_bytes stats.json)" -lt "$all" ]
        expect_error 1 "$refused chooses among all positions, of which policy shift drops some" bmc-gen "${run[@]}" --kv shift
        for attn in $(attns); do
            [ "$attn" = fused ] || expect_error 1 "attention backend $attn does not support $refused" bmc-gen "${run[@]}" --attn "$attn"
        done
    done
}

@test "unsupported features of a family are refused by name" {
    n=0
    while IFS='|' read -r name edit pattern; do
        mkdir folder
        cp "$FIXTURES/families/$name"/* folder
        jq "$edit" "$FIXTURES/families/$name/config.json" >folder/config.json
        expect_error 1 "$pattern" bmc-convert folder -o a.bmc
        rm -r folder
        n=$((n + 1))
    done <<'END'
falcon-7b|.alibi = true|"alibi" is true, but the falcon family supports only
bloom|.apply_residual_connection_post_layernorm = true|"apply_residual_connection_post_layernorm" is true
gpt2|.scale_attn_by_inverse_layer_idx = true|"scale_attn_by_inverse_layer_idx" is true
qwen3|.use_sliding_window = true|"use_sliding_window" is true
gpt-neox|.rope_scaling = {type: "proportional"}|rope_scaling is "proportional"
gptj|del(.rotary_dim)|"rotary_dim" is missing
codegen|.n_head = 2|"transformer.h.0.attn.qkv_proj.weight" cannot be split evenly into 4 turns$
gpt2|.n_head = 3|head_dim: 80 is not a multiple of 3$
phi3-long|.rope_scaling.short_factor = [2]|longrope needs 20 short and long factors, found 1 and 20$
phi3-long|.rope_scaling.long_factor[4] = -1|"rope_long" needs at most 128 numbers from 1e-06 to 1e\+06, found "-1 
phi3-long|.rope_scaling.long_factor[4] = "1"|"rope_long" needs at most 128 numbers from 1e-06 to 1e\+06, found "\? 
llama-longrope|.rope_parameters.long_factor = [range(1; 140)]|"rope_long" needs at most 128 numbers
llama-longrope|.rope_parameters.original_max_position_embeddings = 1|longrope needs a rope_original above 1$
hunyuan-moe|.moe_topk = [2, 3]|: experts_used is "2 3", a whole number
minimax-m2|.attn_type_list = [1, 0]|"attn_type_list.\*" is 1 0, but the minimax-m2 family supports only 1$
phimoe|.num_experts_per_tok = 3|"num_experts_per_tok" is 3, but the phimoe family supports only 2$
phimoe|.rope_scaling.long_mscale = 1.2|long_mscale" is 1.2, but the phimoe family supports only 1.1$
falcon-h1-factors|.ssm_multipliers = [2, 1]|state_scales are 5 factors, and like state_in_scale need layers of kind mamba; found 2$
falcon-h1-factors|.mamba_d_head = 5|state_heads: 48 is not a multiple of 5$
falcon-h1-factors|.mamba_d_head = 12|tensor "model.layers.0.mamba.in_proj.weight" has shape .148..40., its configuration needs
falcon-h1-factors|.attention_bias = true|attn_in_scale excludes bias_qkv
falcon-h1-factors|.mlp_multipliers = [1, -1]|mlp_scale is "-1"
llama-longrope|.rope_parameters.rope_type = "ntk2"|rope_scaling is "ntk2"
smollm3|.no_rope_layers = [1, 0, 1]|"layer_rope" has 3 entries for 4 layers$
smollm3|.no_rope_layers[2] = 2|"layer_rope" is 2 for layer 2; bmc-family.5. lists known kinds$
smollm3|.use_sliding_window = true|"use_sliding_window" is true, but the smollm3 family supports only false$
mpt|.attn_config.alibi = false|"attn_config.alibi" is false
mpt|.logit_scale = "inv_sqrt_d_model"|"logit_scale" is inv_sqrt_d_model
hunyuan|.rope_scaling.alpha = null|rope_factor is "missing"
gemma3|.layer_types = ["full_attention"]|"layer_types" has 1 entries for 7 layers$
gemma3|.rope_parameters.sliding_attention.rope_type = "linear"|"rope_parameters.sliding_attention.rope_type" is linear
step35|.rope_theta[2] = 2000|rope_local_theta is "5000 1000 2000 5000"
step35|.moe_layers_enum = "1,2,4"|expert_layers has 4, expected numbers of the 4 layers, from 0$
step35|.moe_layers_enum = "1,x"|"expert_layers" needs at most 128 numbers from 0 to 1024, found "x"$
step35|.layer_types += ["full_attention"]|"layer_types" has more than 4 entries for 4 layers$
step35|.swiglu_limits[0:2] = []|mlp_limits and expert_limits need a number for each of the 4 layers .*; found 4 and 3 numbers$
step35|. * {num_attention_heads: 3, num_attention_groups: 2}|layers of different sizes need an even head_dim and KV heads that divide query heads; layer 0 has 2 KV heads of 20, and 3 query heads$
step35|.sink = true|"sink" is true, but the step35 family supports only false$
exaone4|.sliding_window_pattern = "LG"|"sliding_window_pattern" is LG
gemma3n|.altup_active_idx = 1|"altup_active_idx" is 1, but the gemma3n family supports only 0$
gemma3n|.altup_correct_scale = false|"altup_correct_scale" is false, but the gemma3n family supports only true$
gemma3n|.altup_num_inputs = 1|streams, which are 0 or at least 2, and a laurel_rank need layer_input
gemma3n|.altup_num_inputs = 17|streams is "17"
gemma3n|.hidden_size_per_layer_input = 0|streams, which are 0 or at least 2, and a laurel_rank need layer_input
gemma3n|.vocab_size_per_layer_input = 261|layer_input_vocab, 261, is above the vocab, 260$
gemma3n|.activation_sparsity_pattern = [0.5]|activation_sparsity needs a number for each of the 5 layers and mlp gated, .*; found 1 numbers$
gemma3n|.activation_sparsity_pattern[0] = 1|"activation_sparsity" needs at most 128 numbers from 0 to 0.9999, found "1 
gemma3n|del(.activation_sparsity_pattern)|"activation_sparsity_pattern" is missing
gemma3n|.intermediate_size = [28, 28, 28, 28, 30]|ffn is "28 28 28 28 30", a whole number
gemma4|.num_kv_shared_layers = 4|kv_shared must be less than the 4 layers, found 4$
gemma4|.num_kv_shared_layers = 3|layer 1 has no keys and values, and no layer of its kind before the last kv_shared, 3, has any$
gemma4|.global_head_dim = 13|layers of different sizes need an even head_dim
gemma4|.hidden_size_per_layer_input = 65537|layer_input is "65537"
gemma4|.layer_types = ["full_attention"]|"layer_types" has 1 entries for 4 layers$
gemma4|.enable_moe_block = true|expert_beside need experts above 0$
gemma4-moe|.enable_moe_block = false|the gemma4 family does not use tensor model.layers.0.experts.down_proj and 23 others
gemma4-moe|.num_experts = 0|expert_beside need experts above 0$
gemma4-moe|.top_k_experts = 6|experts_used must be from 1 to the 5 experts, found 6$
gemma4-moe|.top_k_experts = 0|experts_used must be from 1 to the 5 experts, found 0$
gemma4-moe|.moe_intermediate_size = 0|experts need an expert_ffn above 0$
gemma4-moe|.moe_intermediate_size = 13|"model.layers.0.experts.gate_up_proj" has shape \[5\]\[28\]\[40\], its configuration needs \[5\]\[26\]\[40\]$
gemma4-heads|.num_global_key_value_heads = 3|layers of different sizes need an even head_dim and KV heads that divide query heads; layer [0-9]* has 3 KV heads of 20, and 4 query heads$
llama4|.attention_chunk_size = 0|layer_types has chunked attention in layer 0, but there is no window$
llama4|.moe_layers = []|tensor "model.layers.[0-9].feed_forward.gate_proj.weight" is missing from the weights$
llama4|.moe_layers = [0, 4]|expert_layers has 4, expected numbers of the 4 layers, from 0$
llama4|.num_experts_per_tok = 5|experts_used must be from 1 to the 4 experts, found 5$
llama4|.no_rope_layers = [1, 2, 0, 1]|"layer_types" is 2 for layer 1; bmc-family.5. lists known kinds$
ministral3|.rope_parameters.original_max_position_embeddings = null|an attn_temperature needs a temperature_length above 0$
granite|.residual_multiplier = -1|residual_scale is "-1"
deepseek-v2|.rope_interleave = false|"rope_interleave" is false, but the deepseek family supports only true
deepseek-v3-moe|.moe_layer_freq = 2|"moe_layer_freq" is 2, but the deepseek family supports only 1
deepseek-v2-moe|.topk_method = "noaux"|"topk_method" is noaux
glm4-moe-lite|.mlp_layer_types = ["sparse", "sparse"]|"mlp_layer_types" is "sparse" for layer 0, the glm4-moe-lite family supports only "dense" there$
glm4-moe-lite|.mlp_layer_types = ["dense"]|"mlp_layer_types" has 1 entries for 2 layers$
glm4-moe-lite|.rope_parameters.partial_rotary_factor = 0.5|"rope_parameters.partial_rotary_factor" is 0.5
deepseek-v3|.kv_lora_rank = 0|keys of latent attention, which needs a kv_lora_rank above 0$
deepseek-v3|.kv_lora_rank = 40|needs a kv_lora_rank and a v_dim that are multiples of 16
deepseek-v3|.qk_rope_head_dim = 0|latent attention needs position rope
deepseek-v3|.qk_nope_head_dim = 16|"model.layers.0.self_attn.q_b_proj.weight" has shape
youtu|.v_head_dim = 32|"model.layers.0.self_attn.kv_b_proj.weight" has shape \[72\]\[48\], its configuration needs \[104\]\[48\]$
END
    [ "$n" -eq 80 ]
}

# As in transformers, whose configuration has 4096 by default and prefers it to that of rope_scaling.
@test "Phi-3: an original context only in rope_scaling is that of config.json, 4096" {
    for edit in 'del(.original_max_position_embeddings) | .rope_scaling.original_max_position_embeddings = 80' '.original_max_position_embeddings = 4096'; do
        mkdir folder
        cp "$FIXTURES/families/phi3-long"/* folder
        jq "$edit" "$FIXTURES/families/phi3-long/config.json" >folder/config.json
        bmc-convert folder -o "$([ -e a.bmc ] && echo b || echo a).bmc"
        rm -r folder
    done
    cmp a.bmc b.bmc
    ! cmp -s a.bmc "$(converted phi3-long)" || fail "the edit changes nothing"
}

# ---- syntax of family files ----

@test "let, expressions, turns and plus_one: invalid lines are refused" {
    n=0
    while IFS='|' read -r line pattern; do
        printf '%s\n' 'family a' 'architecture A' 'like gpt2' 'tensor head.weight x' "$line" >a.family
        expect_error 1 "${pattern:-line 5: invalid syntax: }" bmc-convert --family a.family "$FIXTURES/families/gpt2" -o a.bmc
        n=$((n + 1))
    done <<'END'
let context is 3
let width was 3
let width is
config width is 3
tensor layer.q.weight x part q of q,k,v turns
tensor layer.q.weight x part q of q,k,v turns 0
tensor layer.q.weight x part q of q,k,v turns two
tensor layer.q.weight x part q of q,k,v by_head turns 2
tensor layer.q.weight x turns 2
tensor layer.q.weight x plus_one
tensor layer.q.bias x plus_one
config ffn is @hidden*twice|ffn is "@hidden\*twice"
config ffn is @activation*2|ffn: "gelu_new \* 2" needs two numbers$
config head_dim is @hidden/0|head_dim: 80 is not a multiple of 0$
config norm_eps is @hidden^9999|norm_eps is "inf"
END
    [ "$n" -eq 15 ]
}

@test "expressions: quotients, floors of products, sums, powers" {
    while read -r value want; do
        printf '%s\n' 'family a' 'architecture A' 'like bloom' 'let share is 0.29' 'let odd is @twice' 'let twice is @hidden*2' "config context is $value" >a.family
        bmc-convert --family a.family "$FIXTURES/families/bloom" -o a.bmc
        assert_equal "$value $(bmc-convert --info --format json a.bmc | jq .context)" "$value $want"
    done <<'END'
@hidden*share 20
@twice/4 36
@odd 144
@hidden^2 5184
@hidden*1.5 108
@hidden+twice 216
END
}

# ---- language models of multimodal models ----

# wrapped NAME ARCHITECTURE PREFIX..: a folder whose config.json has the configuration in text_config, with vision tensors, and the
# language model's tensors "model." under the given prefix, others under "language_model.".
wrapped() {
    rm -rf m
    mkdir m
    cp "$FIXTURES/families/$1"/{tokenizer.json,model.safetensors} m
    jq "{architectures: [\"$2\"], eos_token_id, tie_word_embeddings, text_config: del(.architectures, .eos_token_id, .tie_word_embeddings),
        vision_config: {hidden_size: 8, num_hidden_layers: 1}}" "$FIXTURES/families/$1/config.json" >m/config.json
    edit_safetensors m/model.safetensors "with_entries(.key |= if startswith(\"model.\") then \"$3\" + .[6:] elif . == \"lm_head.weight\" and (\"$3\" | startswith(\"language_model\")) then \"language_model.\" + . else . end)"
    extra_tensor vision_tower.patch_conv.weight
}

# Adds a tensor of four f16 to m/model.safetensors.
extra_tensor() { # NAME
    edit_safetensors m/model.safetensors "([.[].data_offsets[1]?] | max) as \$at | .[\"$1\"] = {dtype: \"F16\", shape: [4], data_offsets: [\$at, \$at + 8]}"
    head -c 8 /dev/zero >>m/model.safetensors
}

# The converted model m must equal that of the text model, up to the name of its file.
same_as() {
    bmc-convert m -o a.bmc
    cmp a.bmc "$(converted "$1")" || fail "$*"
}

@test "text_config, prefixes of tensors, tensors of vision towers" {
    for prefix in model. language_model.model. model.language_model.; do
        wrapped gemma3 Gemma3ForConditionalGeneration $prefix
        same_as gemma3
        wrapped ministral3 Mistral3ForConditionalGeneration $prefix
        same_as ministral3
    done
    # Tensors of other parts are skipped by name, others refused.
    extra_tensor towers.weight
    expect_error 1 'the mistral family does not use tensor towers.weight; correct' bmc-convert m -o a.bmc
}

# transformers 5.24 computes the cache again where a sequence outgrows the original context, 80 tokens here. Prompts are 5 + 37 i mod 245;
# tests/fixtures/compare_longrope.py compares more of them, and log-probabilities throughout.
@test "LongRoPE: short factors until a sequence outgrows the original context, then all of it with long ones" {
    file=$(converted phi4-mini)
    ids() { jq -nc --argjson n "$1" '[range($n) | 5 + . * 37 % 245]'; }
    a='[108,200,68,237,72,216,116,247,72,27,8,72,216,116,247,214]' b='[198,174,182,182,150,191,160,144,130,142,178,186,195,195,213,227]'
    # Texts of 12, 76 and 79 tokens in a batch, with and without a limit: their own lengths count.
    jq -nc --argjson s "$(ids 12)" --argjson a "$(ids 76)" --argjson b "$(ids 79)" \
        '{ids: $s, n: 1, logprobs: 1}, {ids: $s, logprobs: 1}, {ids: $a, n: 16, logprobs: 1}, {ids: $b, n: 16}, {ids: $b}' >in
    batch() { ok "bmc-$1" -q -m "$file" -t 1 --jsonl --ignore-eos --precision f32 "${@:2}" -f in; }
    batch gen
    assert_equal "$(jq -c '.ids[:16]' <<<"$output" | tail -n 3)" "$a"$'\n'"$b"$'\n'"$b"
    jq -se '[.[:2][].logprobs[0].logprob + 3.68179, .[2].logprobs[4].logprob + 3.11782, .[2].logprobs[15].logprob + 3.67568 | fabs] | max < 1e-4' <<<"$output"
    jq -c 'del(.logprobs)' in >plain
    mv plain in
    batch spec --recycle --tree 8 --always --kv paged:16 -np 2
    assert_equal "$(jq -c '.ids[:16]' <<<"$output" | tail -n 3)" "$a"$'\n'"$b"$'\n'"$b"
    # Beams; and a context shift, after which the sequence is short again and outgrows the original context once more.
    gen() { ok bmc-gen -q -m "$file" -t 1 --ids --ignore-eos --precision f32 "$@"; }
    gen --beams 3 -n 16 --prompt-ids "$(ids 76 | jq -r 'join(" ")')"
    assert_equal "$output" '67 160 10 168 237 1 26 114 26 46 10 168 66 185 160 144'
    shift=(--kv shift -c 100 --context-shift recompute)
    gen "${shift[@]}" -n 70 --prompt-ids "$(ids 76 | jq -r 'join(" ")')"
    read -ra got <<<"$output"
    gen -n 40 --prompt-ids "$(ids 76 | jq -r '.[50:] | join(" ")') ${got[*]:0:25}"
    assert_equal "$output" "${got[*]:25:40}"
    run_plain bmc-gen -q -m "$file" --kv shift -c 64 -n 40 --ignore-eos --ids --prompt-ids "$(ids 60 | jq -r 'join(" ")')" --save-kv late.kv
    assert_equal "$status" 1
    [[ $stderr =~ ^'bmc-gen: a sequence of more than 80 tokens is not saved: ' ]]
}

@test "a snapshot is refused if RoPE scaling depends on the sequence length" {
    file=$(converted llama-longrope)
    prompt=$(jq -r '.cases[0].prompt' "$(results llama-longrope)")
    bmc-gen -q -m "$file" -p "$prompt" -n 4 -c 80 --ignore-eos --save-kv short.kv >/dev/null
    ok bmc-gen -q -m "$file" -n 20 -c 80 --ids --load-kv short.kv --ignore-eos
    assert_equal "$output" "$(jq -r '.cases[0].greedy_ids[4:] | map(tostring) | join(" ")' "$(results llama-longrope)")"
    expect_error 1 'short.kv: beyond 80 tokens .* rotary frequencies depend on the sequence length: save and load with -c 80' \
        bmc-gen -q -m "$file" -n 20 -c 160 --load-kv short.kv
}

@test "shapes of every family" {
    for shape in smollm3-3b granite-3.3-2b glm-4-9b{,-0414} olmo-7b olmo-3-7b phi-2 phi-4 stablelm-2-1.6b starcoder2-3b aya-expanse-8b command-r7b \
        mpt-7b ernie-4.5-0.3b exaone-4.0-1.2b seed-oss-36b hunyuan-1.8b gemma-3-{1b,4b} ministral-3-3b mistral-7b gpt2{,-xl} pythia-1b qwen3-8b gemma-2b gemma-2-2b phi-3-mini olmo2-7b bloom-560m falcon-{7b,40b} gpt-j-6b codegen-350m \
        youtu-llm-2b deepseek-v2-lite deepseek-v3 glm-4.7-flash lfm2-1.2b qwen3.5-9b llama-4-scout gemma-4-5b decilm-7b; do
        case $shape in lfm2* | qwen3.5* | qwen3-next* | llama-4* | gemma-4*) layers=6 ;; *) layers=1 ;; esac
        "$BMC_BIN/bmc-prof" policies --shape $shape --layers $layers -N 2 --repeat 1 --kv bmc >/dev/null 2>err || fail "$shape: $(cat err)"
    done
    # Draft heads run with a target only.
    expect_error 1 '^bmc-prof: .*is a draft head' "$BMC_BIN/bmc-prof" policies --shape tinyllama-eagle -N 2 --kv bmc
    for family in "$ROOT"/models.d/families/*.family; do
        if is_part "$family" || [ -e "$FIXTURES/encoders/$(basename -s .family "$family")" ]; then continue; fi
        grep -qxE "family +$(basename -s .family "$family")" "$ROOT"/models.d/shapes/*.shape || fail "no shape of $family"
    done
}

@test "on a backend whose memory only its functions can use, ids and logits are those of plain C" {
    # of three KV shapes, two with shared layers, recurrent state, both in a layer, latent attention, experts
    local names=(decilm gemma4 qwen35 falcon-h1 deepseek-v2-moe mixtral-fused) policies=(bmc)
    if [ "$BMC_FULL" = 1 ]; then
        mapfile -t names < <(all_families)
        read -ra policies < <(kv_policies)
        [ "${#policies[@]}" -ge 8 ]
    fi
    [ "${#names[@]}" -ge 6 ]
    for name in "${names[@]}"; do
        run "$BMC_BUILD/tests/wall" "$(converted "$name")" "${policies[@]}"
        [ "$status" -eq 0 ] || fail "$name: $output"
        # 4 of each policy, 4 of too little memory, and 5 of a device that lacks something; with experts, which are read from the file, too, 1 more of each policy and that few fit
        case $name in
        deepseek-v2-moe | mixtral-fused) assert_equal "$output" "$((5 * ${#policies[@]} + 10)) checks, 0 failed" ;;
        *) [[ $output =~ ^([0-9]+)' checks, 0 failed'$ && ${BASH_REMATCH[1]} -ge $((4 * ${#policies[@]} + 9)) ]] || fail "$name: $output" ;;
        esac
    done
    for touch in --touch --touch-weights; do
        run "$BMC_BUILD/tests/wall" $touch "$(converted decilm)"
        assert_equal "$status" 1
        [[ $output == 'not ok - tensor memory was used outside of the backend:'*wall* ]] || fail "$touch: $output"
    done
}
