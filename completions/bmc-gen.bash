# bash completion for bmc-gen
_bmc_gen()
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
    --beams) COMPREPLY=() ;;
    --n-best) COMPREPLY=() ;;
    --length-penalty) COMPREPLY=() ;;
    --early-stopping) COMPREPLY=($(compgen -W 'yes no never' -- "$cur")) ;;
    --parallel | -np) COMPREPLY=() ;;
    --prefix-cache-mb) COMPREPLY=() ;;
    --logprobs) COMPREPLY=() ;;
    --memory) COMPREPLY=() ;;
    --kv-pressure) COMPREPLY=() ;;
    --kv-pressure-limit) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --kv-pressure-log) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --kv-pressure-replay) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --prefix-cache) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --load-kv) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --save-kv) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --prompt-cache) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --receipt) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --receipt-key) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --verify-receipt) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --stride) COMPREPLY=() ;;
    --save-imatrix) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --pooling) COMPREPLY=($(compgen -W 'mean last cls' -- "$cur")) ;;
    --embed-prompt) COMPREPLY=() ;;
    --remove-session) COMPREPLY=() ;;
    --stats) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --check-hash) COMPREPLY=() ;;
    --format) COMPREPLY=($(compgen -W 'table md csv json jsonl' -- "$cur")) ;;
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
    --parallelism) COMPREPLY=($(compgen -W 'data tensor pipeline expert' -- "$cur")) ;;
    --layers) COMPREPLY=() ;;
    --micro-batches) COMPREPLY=() ;;
    *)
        if [[ $cur == -* ]]; then
            COMPREPLY=($(compgen -W '-m --model --lora -p --prompt -f --file --prompt-ids --no-parse-special -e --escape -n --predict -c --ctx-size --chat -i --interactive --session --system --tools --run-tools --chat-template --chat-template-kwargs --reasoning --reasoning-budget --reasoning-budget-message --tool-choice --no-parallel-tool-calls --parse-special --temp --top-k --top-p --min-p --top-n-sigma --typical-p --repeat-penalty --repeat-last-n --presence-penalty --frequency-penalty --xtc-probability --xtc-threshold --dynatemp-range --dynatemp-exp --dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n --mirostat --mirostat-ent --mirostat-lr --samplers --dry-sequence-breaker --logit-bias -s --seed -r --stop --ignore-eos -j --json-schema --grammar --regex --choice --no-spec --beams --n-best --length-penalty --early-stopping --jsonl -np --parallel --openai --unordered --lenient --prefix-cache-mb --logprobs --memory --kv-pressure --kv-pressure-limit --kv-pressure-log --kv-pressure-replay --prefix-cache --load-kv --save-kv --prompt-cache --receipt --receipt-key --verify-receipt --score --summary --stride --save-imatrix --embed --pooling --embed-prompt --normalize --no-normalize --rerank --tokenize --render-chat --list-sessions --remove-session --detokenize --echo --ids -sp --special --stats --roofline --check-hash -q --quiet --format --kv --context-shift --keep --alloc --cache-type --cache-kld --attend --backend -ngl --gpu-layers --fallback --attn --isa --precision --profile --chunk -t --threads -tb --threads-batch -C --cpu-mask --cores --mlock --hugepages --numa --experts --retrieval-heads --parallelism --layers --micro-batches --no-config -h --help --version' -- "$cur"))
        else
            COMPREPLY=($(compgen -f -- "$cur"))
        fi ;;
    esac
}
complete -o filenames -F _bmc_gen bmc-gen
