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
    --type) COMPREPLY=($(compgen -W 'auto f32 bf16 f16 q8_0 q8_channel q5_1 q5_0 q4_1 q4_0 iq4_nl q6_k q5_k q4_k q3_k q2_k iq4_xs q5_k_m q5_k_s q4_k_m q4_k_s q3_k_l q3_k_m q3_k_s' -- "$cur")) ;;
    --tensor-type) COMPREPLY=() ;;
    --imatrix) COMPREPLY=($(compgen -f -- "$cur")) ;;
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
            COMPREPLY=($(compgen -W '-o --output --type --leave-output-tensor --tensor-type --imatrix --family --chat-template --no-bos --models-dir --synth -s --seed --tokenizer --info --verify --format -t --threads -q --quiet -h --help --version' -- "$cur"))
        else
            COMPREPLY=($(compgen -f -- "$cur"))
        fi ;;
    esac
}
complete -o filenames -F _bmc_convert bmc-convert
