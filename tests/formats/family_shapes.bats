# Configurations of wrong shape: numbers that are 0, negative, too large or no integers, more experts per token than there are, lists
# with a missing, an additional or an unknown entry. Each is refused in one sentence.
load ../helper

# Families with experts, latent attention, recurrent layers, or traits per layer.
FAMILIES='deepseek-v2-moe deepseek-v3-moe ernie4_5-moe falcon-h1 glm4-moe gpt-oss granite-hybrid-moe granite-moe lfm2-moe llama4 mixtral
olmoe qwen2-moe qwen3-moe qwen3next qwen35-moe gemma3 gemma4 gemma4-heads gemma4-moe cohere2 exaone4 olmo3 smollm3 step35 bamba'

# Members that the family does not read or that may have the value, as FAMILY MEMBER VALUE; * stands for all.
MAY='deepseek-*|num_key_value_heads|*
qwen35-moe|intermediate_size|0
gemma4*|num_kv_shared_layers|0
gemma4*|hidden_size_per_layer_input|0
step35|partial_rotary_factors|*999*
step35|rope_theta|*999*
step35|swiglu_limits|*
step35|swiglu_limits_shared|*
step35|yarn_only_types|*
qwen*|mlp_only_layers|*999*'

setup_file() { export BMC_SEED=${BMC_SEED:-$((($(date +%s%N) / 1000) % 32768))}; }

# The edits of a configuration, a line of JSON each: member, value, configuration.
edits() { # CONFIG
    jq -c '
        def members: paths(numbers) | select((.[-1] | type) == "string" and (.[-1] |
            test("^(num_(hidden_layers|attention_heads|key_value_heads|experts_per_tok|experts|local_experts|kv_shared_layers)|hidden_size|(moe_|shared_|shared_expert_)?intermediate_size(_mlp)?|vocab_size|head_dim|global_head_dim|top_k_experts|n_routed_experts|moe_num_experts|moe_k|n_group|topk_group|kv_lora_rank|qk_(rope|nope)_head_dim|v_head_dim|conv_L_cache|linear_.*(dim|heads)|mamba_(d_state|d_conv|d_ssm|d_head|n_heads|n_groups)|hidden_size_per_layer_input)$")));
        . as $config | (
            (members as $path | (0, -1, 1000000007, "x", 2.5) as $value | [$path, $value]),
            (paths(numbers) as $path | select($path[-1] | tostring | test("^(num_experts_per_tok|top_k_experts|moe_k)$")) |
                [$path, ($config.num_experts // $config.num_local_experts // $config.n_routed_experts // $config.moe_num_experts) + 1]),
            (paths(arrays) as $path | select($path[-1] != "architectures") | getpath($path) as $list |
                ($list[1:], $list + (if $list[0] | type == "number" then [999] else $list[:1] end), ($list | map(if type == "string" then "x" else -5 end)), "x") as $value | [$path, $value])
        ) as [$path, $value] | [($path | map(tostring) | join(".")), $value, ($config | setpath($path; $value))]' "$1"
}

may() { # FAMILY MEMBER VALUE
    local family member value
    while IFS='|' read -r family member value; do
        # shellcheck disable=SC2053 # patterns
        [[ $1 == $family && $2 == "$member" && $3 == $value ]] && return 0
    done <<<"$MAY"
    return 1
}

@test "configurations of wrong shape are refused in one sentence" {
    echo "# BMC_SEED=$BMC_SEED" >&3
    RANDOM=$BMC_SEED
    n=0
    for family in $FAMILIES; do
        rm -rf folder
        mkdir folder
        cp "$FIXTURES/families/$family"/* folder
        edits "$FIXTURES/families/$family/config.json" >all
        [ "$(wc -l <all)" -ge 20 ]
        while IFS= read -r line; do echo "$RANDOM $line"; done <all >drawn
        sort -n drawn | cut -d ' ' -f 2- | head -n "$([ "$BMC_FULL" = 1 ] && echo 9999 || echo 3)" >some
        while IFS= read -r line; do
            jq -c '.[2]' <<<"$line" >folder/config.json
            member=$(jq -r '.[0]' <<<"$line") value=$(jq -c '.[1]' <<<"$line")
            run_plain bmc-convert -q folder -o a.bmc
            if [ "$status" -eq 0 ]; then
                may "$family" "$member" "$value" || fail "$family: $member = $value is accepted"
            else
                [ "$status" -eq 1 ] && [ "$(wc -l <<<"$stderr")" -eq 1 ] && [[ $stderr == "bmc-convert: folder"* ]] || fail "$family: $member = $value: status $status, $stderr"
            fi
            n=$((n + 1))
        done <some
    done
    [ "$n" -ge 75 ]
}
