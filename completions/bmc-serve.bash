# bash completion for bmc-serve
_bmc_serve()
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
    --lora) COMPREPLY=() ;;
    --alias) COMPREPLY=() ;;
    --ctx-size | -c) COMPREPLY=() ;;
    --port) COMPREPLY=() ;;
    --socket) COMPREPLY=() ;;
    --listen) COMPREPLY=() ;;
    --api-key-file) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --max-requests) COMPREPLY=() ;;
    --max-connections) COMPREPLY=() ;;
    --max-tokens) COMPREPLY=() ;;
    --max-body) COMPREPLY=() ;;
    --time-limit) COMPREPLY=() ;;
    --drain) COMPREPLY=() ;;
    --predict | -n) COMPREPLY=() ;;
    --system) COMPREPLY=() ;;
    --chat-template) COMPREPLY=() ;;
    --chat-template-kwargs) COMPREPLY=() ;;
    --temp) COMPREPLY=() ;;
    --top-k) COMPREPLY=() ;;
    --top-p) COMPREPLY=() ;;
    --min-p) COMPREPLY=() ;;
    --top-n-sigma) COMPREPLY=() ;;
    --typical-p) COMPREPLY=() ;;
    --repeat-penalty) COMPREPLY=() ;;
    --repeat-last-n) COMPREPLY=() ;;
    --presence-penalty) COMPREPLY=() ;;
    --frequency-penalty) COMPREPLY=() ;;
    --xtc-probability) COMPREPLY=() ;;
    --xtc-threshold) COMPREPLY=() ;;
    --dynatemp-range) COMPREPLY=() ;;
    --dynatemp-exp) COMPREPLY=() ;;
    --dry-multiplier) COMPREPLY=() ;;
    --dry-base) COMPREPLY=() ;;
    --dry-allowed-length) COMPREPLY=() ;;
    --dry-penalty-last-n) COMPREPLY=() ;;
    --mirostat) COMPREPLY=($(compgen -W '0 2' -- "$cur")) ;;
    --mirostat-ent) COMPREPLY=() ;;
    --mirostat-lr) COMPREPLY=() ;;
    --samplers) COMPREPLY=() ;;
    --dry-sequence-breaker) COMPREPLY=() ;;
    --logit-bias) COMPREPLY=() ;;
    --seed | -s) COMPREPLY=() ;;
    --stop | -r) COMPREPLY=() ;;
    --json-schema | -j) COMPREPLY=() ;;
    --grammar) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --regex) COMPREPLY=() ;;
    --choice) COMPREPLY=() ;;
    --parallel | -np) COMPREPLY=() ;;
    --memory) COMPREPLY=() ;;
    --kv-pressure) COMPREPLY=() ;;
    --kv-pressure-limit) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --kv-pressure-log) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --kv-pressure-replay) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --prefix-cache-mb) COMPREPLY=() ;;
    --prefix-cache) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --kv) COMPREPLY=($(compgen -W 'bmc iterative upfront paged reserve segment shift headwise' -- "$cur")) ;;
    --context-shift) COMPREPLY=($(compgen -W 'slide recompute' -- "$cur")) ;;
    --keep) COMPREPLY=() ;;
    --alloc) COMPREPLY=($(compgen -W 'pool malloc mmap thp' -- "$cur")) ;;
    --cache-type) COMPREPLY=($(compgen -W 'f32 bf16 f16 q8 q6 q5 q4 q8_channel q4_1 q4h' -- "$cur")) ;;
    --cache-kld) COMPREPLY=() ;;
    --attend) COMPREPLY=($(compgen -W 'padded valid' -- "$cur")) ;;
    --backend) COMPREPLY=($(compgen -W 'cpu opencl' -- "$cur")) ;;
    --gpu-layers | -ngl) COMPREPLY=() ;;
    --fallback) COMPREPLY=($(compgen -W 'none cpu' -- "$cur")) ;;
    --attn) COMPREPLY=($(compgen -W 'fused blas onednn' -- "$cur")) ;;
    --isa) COMPREPLY=($(compgen -W 'blas ref avx2 avxvnni avx512 vnni bf16 amx' -- "$cur")) ;;
    --precision) COMPREPLY=($(compgen -W 'f32 bf16 bf16x2 int8' -- "$cur")) ;;
    --profile) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --chunk) COMPREPLY=() ;;
    --threads | -t) COMPREPLY=() ;;
    --threads-batch | -tb) COMPREPLY=() ;;
    --cpu-mask | -C) COMPREPLY=() ;;
    --cores) COMPREPLY=($(compgen -W 'all performance' -- "$cur")) ;;
    --experts) COMPREPLY=() ;;
    --retrieval-heads) COMPREPLY=($(compgen -f -- "$cur")) ;;
    *)
        if [[ $cur == -* ]]; then
            COMPREPLY=($(compgen -W '-m --model --lora --alias -c --ctx-size --port --socket --listen --api-key-file --max-requests --max-connections --max-tokens --max-body --time-limit --drain -n --predict --lenient --system --chat-template --chat-template-kwargs --parse-special --no-parse-special --temp --top-k --top-p --min-p --top-n-sigma --typical-p --repeat-penalty --repeat-last-n --presence-penalty --frequency-penalty --xtc-probability --xtc-threshold --dynatemp-range --dynatemp-exp --dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n --mirostat --mirostat-ent --mirostat-lr --samplers --dry-sequence-breaker --logit-bias -s --seed -r --stop --ignore-eos -j --json-schema --grammar --regex --choice -np --parallel --memory --kv-pressure --kv-pressure-limit --kv-pressure-log --kv-pressure-replay --prefix-cache-mb --prefix-cache --no-spec -q --quiet --kv --context-shift --keep --alloc --cache-type --cache-kld --attend --backend -ngl --gpu-layers --fallback --attn --isa --precision --profile --chunk -t --threads -tb --threads-batch -C --cpu-mask --cores --mlock --hugepages --numa --experts --retrieval-heads --no-config -h --help --version' -- "$cur"))
        else
            COMPREPLY=($(compgen -f -- "$cur"))
        fi ;;
    esac
}
complete -o filenames -F _bmc_serve bmc-serve
