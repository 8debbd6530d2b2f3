# bash completion for bmc-prof
_bmc_prof()
{
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
    # readline makes three words of NAME=VALUE
    if [[ $cur == = ]]; then
        cur=
    elif [[ $prev == = ]]; then
        prev=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    case $prev in
    --model | -m) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --shape) COMPREPLY=($(compgen -W "$(bmc-prof --print-options shapes 2>/dev/null)" -- "$cur") $(compgen -f -- "$cur")) ;;
    --layers) COMPREPLY=() ;;
    --type) COMPREPLY=($(compgen -W 'f32 bf16 f16 q8_0 q8_channel q4_1 q4_0 q4_k q6_k q8_2l q5_0 q5_1 q5_k q3_k q2_k iq4_nl iq4_xs mxfp4 iq3_s iq3_xxs tq1_0 tq2_0 iq2_s iq2_xs iq2_xxs iq1_s iq1_m nvfp4 q1_0 q2_0 q4_z32 q4_z128 q5_k_m q5_k_s q4_k_m q4_k_s mxfp4_moe q3_k_l q3_k_m q3_k_s iq3_m iq3_xs q2_k_s iq2_m' -- "$cur")) ;;
    --ctx-size | -N) COMPREPLY=() ;;
    --parallel | -np) COMPREPLY=() ;;
    --prompt | -p) COMPREPLY=() ;;
    --gen | -n) COMPREPLY=() ;;
    --beams) COMPREPLY=() ;;
    --memory) COMPREPLY=() ;;
    --depth | -d) COMPREPLY=() ;;
    --load-kv) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --file | -f) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --lora) COMPREPLY=() ;;
    --reference) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --reference-precision) COMPREPLY=($(compgen -W 'f32 bf16 bf16x2 int8' -- "$cur")) ;;
    --reference-cache-type) COMPREPLY=($(compgen -W 'f32 bf16 f16 q8 q6 q5 q4 q8_channel q4_1 q4h' -- "$cur")) ;;
    --sink) COMPREPLY=() ;;
    --recent) COMPREPLY=() ;;
    --sparsity) COMPREPLY=() ;;
    --kv) COMPREPLY=($(compgen -P "${cur%"${cur##*,}"}" -W 'bmc iterative upfront paged reserve segment shift headwise' -- "${cur##*,}")) ;;
    --cache-type) COMPREPLY=($(compgen -W 'f32 bf16 f16 q8 q6 q5 q4 q8_channel q4_1 q4h' -- "$cur")) ;;
    --cache-kld) COMPREPLY=() ;;
    --attend) COMPREPLY=($(compgen -W 'padded valid' -- "$cur")) ;;
    --alloc) COMPREPLY=($(compgen -W 'pool malloc mmap thp' -- "$cur")) ;;
    --retrieval-heads) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --backend) COMPREPLY=($(compgen -W 'cpu opencl' -- "$cur")) ;;
    --attn) COMPREPLY=($(compgen -W 'fused blas onednn' -- "$cur")) ;;
    --isa) COMPREPLY=($(compgen -W 'blas ref avx2 avxvnni avx512 vnni bf16 amx' -- "$cur")) ;;
    --precision) COMPREPLY=($(compgen -W 'f32 bf16 bf16x2 int8' -- "$cur")) ;;
    --profile) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --experts) COMPREPLY=() ;;
    --threads | -t) COMPREPLY=() ;;
    --cpu-mask | -C) COMPREPLY=() ;;
    --cores) COMPREPLY=($(compgen -W 'all performance' -- "$cur")) ;;
    --seed | -s) COMPREPLY=() ;;
    --ranks) COMPREPLY=() ;;
    --network) COMPREPLY=() ;;
    --repeat | -r) COMPREPLY=() ;;
    --warmup) COMPREPLY=() ;;
    --every) COMPREPLY=() ;;
    --megabytes) COMPREPLY=() ;;
    --against) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --tolerance) COMPREPLY=() ;;
    --format) COMPREPLY=($(compgen -W 'table md csv json jsonl' -- "$cur")) ;;
    --columns) COMPREPLY=($(compgen -P "${cur%"${cur##*,}"}" -W 'all policy T T_from r batch alloc_ms copy_ms append_ms sdpa_ms scores_ms softmax_ms values_ms primitives primitive_ms total_ms total_ms_min total_ms_max minor_faults major_faults dtlb_misses cycles instructions kv_allocations kv_copied_bytes kv_padded_rows rows_computed kv_peak_bytes shape model_id layers N weight_type kv_type attn isa precision threads repeat warmup seed cpu version commit timestamp attended alloc lockstep samples error n test n_prompt n_gen depth tok_s tok_s_sd tok_s_end_to_end tok_s_end_to_end_sd step_ms roof_share roof_kind first_token_ms roof_gb_s roof_gflop_s latency_p50_ms latency_p95_ms latency_p99_ms attention_ms projections_ms mlp_ms head_ms other_ms sampling_ms conversion_ms wait_ms peak_resident_bytes device_peak_bytes step_bytes macs_quantised macs_bf16 macs_f32 macs_attention experts_per_layer beams token_bytes full_token_bytes kv_bytes over_standard least_bytes fits activation_bytes peak_bytes run_layers run_batch run_bytes run_over weight_bytes active_weight_bytes expert_bytes ranks parallelism network compute_ms network_ms against_one sent_bytes sent_calls read_gb_s copy_gb_s f32_gflop_s f32_isa bf16_gflop_s bf16_isa int8_gop_s int8_isa page_fault_ns tokens sink recent repeats streaming_heads streaming_share layer head score sparse k_low k_high v_low v_high type k_kld v_kld positions kld_mean kld_median kld_p99 kld_p999 kld_max same_top ppl ppl_reference ppl_ratio ppl_ratio_se retrieval_heads kv_scales lora reference reference_model_id reference_precision reference_kv_type folder blocks states block_bytes lookups lookup_tokens hit_tokens hit_rate stored_blocks evicted_blocks dropped_blocks figure a b ratio ratio_lo ratio_hi rounds_a rounds_b verdict' -- "${cur##*,}")) ;;
    --output | -o) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --save-logits) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --save-top) COMPREPLY=() ;;
    --plot) COMPREPLY=($(compgen -f -- "$cur")) ;;
    *)
        if [[ $cur == -* ]]; then
            local word options='-m --model --shape --layers --type -N --ctx-size -np --parallel -p --prompt -n --gen --beams --memory -d --depth --load-kv -f --file --lora --reference --reference-precision --reference-cache-type --sink --recent --sparsity --kv --cache-type --cache-kld --attend --alloc --lockstep --retrieval-heads --backend --attn --isa --precision --profile --experts -t --threads -C --cpu-mask --cores --hugepages --numa -s --seed --ranks --network -r --repeat --warmup --every --megabytes --against --tolerance --format --columns -o --output --save-logits --save-top --plot --no-config -h --help --version'
            for word in "${COMP_WORDS[@]:1}"; do
                case $word in
                policies) options='-m --model --shape --layers -N --ctx-size -np --parallel --kv --cache-type --attend --alloc --lockstep --backend --attn --isa --profile -t --threads -C --cpu-mask --cores -s --seed -r --repeat --warmup --format --columns --plot --no-config -h --help --version' ;;
                sweep) options='-m --model --shape --layers -N --ctx-size -np --parallel --cache-type --attend --alloc --lockstep --backend --attn --isa -t --threads -C --cpu-mask --cores -s --seed -r --repeat --warmup --format --columns --plot --no-config -h --help --version' ;;
                latency) options='-m --model --shape --layers --type -N --ctx-size -np --parallel -d --depth --load-kv --kv --cache-type --attend --alloc --lockstep --backend --attn --isa --precision --profile -t --threads -C --cpu-mask --cores --hugepages --numa -s --seed -r --repeat --warmup --every --format --columns --plot --no-config -h --help --version' ;;
                bench) options='-m --model --shape --layers --type -N --ctx-size -np --parallel -p --prompt -n --gen -d --depth --kv --cache-type --attend --alloc --lockstep --backend --attn --isa --precision --profile --experts -t --threads -C --cpu-mask --cores --hugepages --numa -s --seed -r --repeat --warmup --megabytes --format --columns --no-config -h --help --version' ;;
                memory) options='-m --model --shape --layers --type -N --ctx-size -np --parallel -p --prompt -n --gen --beams --memory --kv --cache-type --alloc --profile -t --threads -C --cpu-mask --cores --megabytes --format --columns --no-config -h --help --version' ;;
                ranks) options='-m --model --shape --layers --type -np --parallel -p --prompt -n --gen --kv --cache-type --attend --alloc --lockstep --attn --isa --precision --profile -t --threads -C --cpu-mask --cores --hugepages --numa -s --seed --ranks --network -r --repeat --warmup --format --columns --no-config -h --help --version' ;;
                predict) options='--shape --layers --type -np --parallel -p --prompt -n --gen -d --depth --kv --cache-type --attend --alloc --lockstep --attn --isa --precision --profile -t --threads -C --cpu-mask --cores --hugepages --numa -s --seed -r --repeat --warmup --format --columns --no-config -h --help --version' ;;
                roof) options='-t --threads -C --cpu-mask --cores -r --repeat --megabytes --format --columns --no-config -h --help --version' ;;
                heads) options='-m --model -N --ctx-size -f --file --sink --recent --sparsity --isa --precision -t --threads -C --cpu-mask --cores --format --columns -o --output --no-config -h --help --version' ;;
                cache-scales) options='-m --model -N --ctx-size -f --file --isa --precision -t --threads -C --cpu-mask --cores --format --columns -o --output --no-config -h --help --version' ;;
                cache-types) options='-m --model -N --ctx-size -f --file --isa --precision -t --threads -C --cpu-mask --cores --format --columns -o --output --no-config -h --help --version' ;;
                quality) options='-m --model -N --ctx-size -f --file --lora --reference --reference-precision --reference-cache-type --kv --cache-type --cache-kld --retrieval-heads --attn --isa --precision -t --threads -C --cpu-mask --cores --format --columns --save-logits --save-top --plot --no-config -h --help --version' ;;
                prefix-cache) options='--format --columns --no-config -h --help --version' ;;
                compare) options='-r --repeat --against --tolerance --format --columns --no-config -h --help --version' ;;
                esac
            done
            COMPREPLY=($(compgen -W "$options" -- "$cur"))
        else
            local word words='policies sweep latency bench memory ranks predict roof heads cache-scales cache-types quality prefix-cache compare'
            COMPREPLY=($(compgen -W "$words" -- "$cur"))
            for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
                if [[ " $words " == *" $word "* ]]; then
                    COMPREPLY=($(compgen -f -- "$cur"))
                fi
            done
        fi ;;
    esac
}
complete -o filenames -F _bmc_prof bmc-prof
