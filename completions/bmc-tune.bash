# bash completion for bmc-tune
_bmc_tune()
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
    --shape) COMPREPLY=($(compgen -W "$(bmc-tune --print-options shapes 2>/dev/null)" -- "$cur") $(compgen -f -- "$cur")) ;;
    --ctx-size | -N) COMPREPLY=() ;;
    --parallel | -np) COMPREPLY=() ;;
    --spec) COMPREPLY=() ;;
    --draft | -d) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --acceptance) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --layers) COMPREPLY=() ;;
    --type) COMPREPLY=($(compgen -W 'f32 bf16 f16 q8_0 q8_channel q4_1 q4_0 q4_k q6_k q8_2l q5_0 q5_1 q5_k q3_k q2_k iq4_nl iq4_xs mxfp4 iq3_s iq3_xxs tq1_0 tq2_0 iq2_s iq2_xs iq2_xxs iq1_s iq1_m nvfp4 q1_0 q2_0 q4_z32 q4_z128 q5_k_m q5_k_s q4_k_m q4_k_s mxfp4_moe q3_k_l q3_k_m q3_k_s iq3_m iq3_xs q2_k_s iq2_m' -- "$cur")) ;;
    --cache-type) COMPREPLY=($(compgen -W 'f32 bf16 f16 q8 q6 q5 q4 q8_channel q4_1 q4h' -- "$cur")) ;;
    --alloc) COMPREPLY=($(compgen -W 'pool malloc mmap thp' -- "$cur")) ;;
    --backend) COMPREPLY=($(compgen -W 'cpu opencl' -- "$cur")) ;;
    --attn) COMPREPLY=($(compgen -W 'fused blas onednn' -- "$cur")) ;;
    --isa) COMPREPLY=($(compgen -W 'blas ref avx2 avxvnni avx512 vnni bf16 amx' -- "$cur")) ;;
    --precision) COMPREPLY=($(compgen -W 'f32 bf16 bf16x2 int8' -- "$cur")) ;;
    --threads | -t) COMPREPLY=() ;;
    --cpu-mask | -C) COMPREPLY=() ;;
    --cores) COMPREPLY=($(compgen -W 'all performance' -- "$cur")) ;;
    --seed | -s) COMPREPLY=() ;;
    --state) COMPREPLY=($(compgen -W 'both cold hot' -- "$cur")) ;;
    --rounds | -r) COMPREPLY=() ;;
    --seconds) COMPREPLY=() ;;
    --megabytes) COMPREPLY=() ;;
    --evict) COMPREPLY=() ;;
    --constants) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --profile) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --format) COMPREPLY=($(compgen -W 'table md csv json jsonl' -- "$cur")) ;;
    --plot) COMPREPLY=($(compgen -f -- "$cur")) ;;
    *)
        if [[ $cur == -* ]]; then
            COMPREPLY=($(compgen -W '-m --model --shape -N --ctx-size -np --parallel --spec -d --draft --acceptance --layers --type --cache-type --alloc --backend --attn --isa --precision -t --threads -C --cpu-mask --cores --hugepages --numa -s --seed --state --exact -r --rounds --seconds --megabytes --evict --constants --no-sweep --no-batch-knee --profile --dry-run --force --check --verbose --format -q --quiet --plot --no-config -h --help --version' -- "$cur"))
        else
            COMPREPLY=($(compgen -f -- "$cur"))
        fi ;;
    esac
}
complete -o filenames -F _bmc_tune bmc-tune
