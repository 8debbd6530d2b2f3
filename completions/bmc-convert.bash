# bash completion for bmc-convert
_bmc_convert()
{
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
    # readline makes three words of NAME=VALUE
    if [[ $cur == = ]]; then
        cur=
    elif [[ $prev == = ]]; then
        prev=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    case $prev in
    --output | -o) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --type) COMPREPLY=($(compgen -W 'auto f32 bf16 f16 q8_channel q8_0 q6_k q5_k_m q5_k_s q5_1 q5_0 q4_k_m q4_k_s q4_1 q4_0 iq4_nl iq4_xs mxfp4 mxfp4_moe q3_k_l q3_k_m q3_k_s iq3_m iq3_s iq3_xs iq3_xxs q2_k q2_k_s iq2_m iq2_s iq2_xs iq2_xxs tq2_0 tq1_0 iq1_m iq1_s' -- "$cur")) ;;
    --tensor-type) COMPREPLY=() ;;
    --imatrix) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --target-bytes) COMPREPLY=() ;;
    --target-bpw) COMPREPLY=() ;;
    --target-kld) COMPREPLY=() ;;
    --target-text) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --family) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --chat-template) COMPREPLY=() ;;
    --models-dir) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --synth) COMPREPLY=($(compgen -W "$(bmc-convert --print-options shapes 2>/dev/null)" -- "$cur") $(compgen -f -- "$cur")) ;;
    --seed | -s) COMPREPLY=() ;;
    --tokenizer) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --format) COMPREPLY=($(compgen -W 'table md csv json jsonl' -- "$cur")) ;;
    --threads | -t) COMPREPLY=() ;;
    *)
        if [[ $cur == -* ]]; then
            COMPREPLY=($(compgen -W '-o --output --type --pure --leave-output-tensor --tensor-type --dry-run --imatrix --calibrate --no-calibrate --target-bytes --target-bpw --target-kld --target-text --family --chat-template --no-bos --models-dir --synth -s --seed --tokenizer --info --verify --cache --format -t --threads -q --quiet --no-config -h --help --version' -- "$cur"))
        else
            COMPREPLY=($(compgen -f -- "$cur"))
        fi ;;
    esac
}
complete -o filenames -F _bmc_convert bmc-convert
