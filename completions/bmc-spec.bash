# bash completion for bmc-spec
_bmc_spec()
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
    --prompt | -p) COMPREPLY=() ;;
    --file | -f) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --prompt-ids) COMPREPLY=() ;;
    --predict | -n) COMPREPLY=() ;;
    --ctx-size | -c) COMPREPLY=() ;;
    --draft | -d) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --model-draft | -md) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --suffix-pool) COMPREPLY=() ;;
    --lookup-corpus) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --draft-max | -k) COMPREPLY=($(compgen -W 'auto bass' -- "$cur")) ;;
    --length-start) COMPREPLY=() ;;
    --length-step) COMPREPLY=() ;;
    --length-mod) COMPREPLY=() ;;
    --length-limit) COMPREPLY=() ;;
    --tree) COMPREPLY=($(compgen -W 'auto' -- "$cur")) ;;
    --acceptance) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --batch-knee) COMPREPLY=() ;;
    --draft-kv) COMPREPLY=($(compgen -W 'bmc iterative upfront paged reserve segment shift headwise' -- "$cur")) ;;
    --draft-ctx-size | -cd) COMPREPLY=() ;;
    --spec-sampling) COMPREPLY=($(compgen -W 'coupled rejection' -- "$cur")) ;;
    --simulate-acceptance) COMPREPLY=() ;;
    --session) COMPREPLY=() ;;
    --system) COMPREPLY=() ;;
    --tools) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --chat-template) COMPREPLY=() ;;
    --chat-template-kwargs) COMPREPLY=() ;;
    --reasoning) COMPREPLY=($(compgen -W 'hide show separate' -- "$cur")) ;;
    --reasoning-budget) COMPREPLY=() ;;
    --reasoning-budget-message) COMPREPLY=() ;;
    --tool-choice) COMPREPLY=() ;;
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
    --prefix-cache-mb) COMPREPLY=() ;;
    --logprobs) COMPREPLY=() ;;
    --ragged) COMPREPLY=($(compgen -W 'one pad split' -- "$cur")) ;;
    --samples) COMPREPLY=() ;;
    --budget) COMPREPLY=() ;;
    --prefix-cache) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --load-kv) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --save-kv) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --prompt-cache) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --stats) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --check-hash) COMPREPLY=() ;;
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
    --parallelism) COMPREPLY=($(compgen -W 'data tensor pipeline expert' -- "$cur")) ;;
    --layers) COMPREPLY=() ;;
    --micro-batches) COMPREPLY=() ;;
    *)
        if [[ $cur == -* ]]; then
            COMPREPLY=($(compgen -W '-m --model --lora -p --prompt -f --file --prompt-ids --no-parse-special -e --escape -n --predict -c --ctx-size -d --draft -md --model-draft --lookup --lookup-oldest --suffix --suffix-pool --lookup-corpus --recycle -k --draft-max --length-start --length-step --length-mod --length-limit --tree --dynamic --acceptance --record-acceptance --batch-knee --always --draft-kv -cd --draft-ctx-size --spec-sampling --simulate-acceptance --chat -i --interactive --session --system --tools --run-tools --chat-template --chat-template-kwargs --reasoning --reasoning-budget --reasoning-budget-message --tool-choice --no-parallel-tool-calls --parse-special --temp --top-k --top-p --min-p --top-n-sigma --typical-p --repeat-penalty --repeat-last-n --presence-penalty --frequency-penalty --xtc-probability --xtc-threshold --dynatemp-range --dynatemp-exp --dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n --mirostat --mirostat-ent --mirostat-lr --samplers --dry-sequence-breaker --logit-bias -s --seed -r --stop --ignore-eos -j --json-schema --grammar --regex --choice --jsonl -np --parallel --openai --unordered --lenient --prefix-cache-mb --logprobs --ragged --samples --budget --prefix-cache --load-kv --save-kv --prompt-cache --echo --ids -sp --special --stats --roofline --check-hash -q --quiet --kv --context-shift --keep --alloc --cache-type --cache-kld --attend --backend -ngl --gpu-layers --fallback --attn --isa --precision --profile --chunk -t --threads -tb --threads-batch -C --cpu-mask --cores --mlock --hugepages --numa --experts --parallelism --layers --micro-batches --no-config -h --help --version' -- "$cur"))
        else
            COMPREPLY=($(compgen -f -- "$cur"))
        fi ;;
    esac
}
complete -o filenames -F _bmc_spec bmc-spec
