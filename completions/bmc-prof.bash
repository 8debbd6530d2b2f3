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
    --type) COMPREPLY=($(compgen -W 'f32 bf16 f16 q8 q8c q4 q4s' -- "$cur")) ;;
    --ctx-size | -N) COMPREPLY=() ;;
    --batch | -b) COMPREPLY=() ;;
    --prompt | -p) COMPREPLY=() ;;
    --gen | -n) COMPREPLY=() ;;
    --beams) COMPREPLY=() ;;
    --memory) COMPREPLY=() ;;
    --depth | -d) COMPREPLY=() ;;
    --cases) COMPREPLY=() ;;
    --load-kv) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --file | -f) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --sink) COMPREPLY=() ;;
    --recent) COMPREPLY=() ;;
    --sparsity) COMPREPLY=() ;;
    --kv) COMPREPLY=($(compgen -P "${cur%"${cur##*,}"}" -W 'bmc iterative upfront paged reserve segment shift headwise' -- "${cur##*,}")) ;;
    --kv-type) COMPREPLY=($(compgen -W 'f32 bf16 f16 q8 q4' -- "$cur")) ;;
    --rows) COMPREPLY=($(compgen -W 'policy valid' -- "$cur")) ;;
    --alloc) COMPREPLY=($(compgen -W 'malloc mmap thp' -- "$cur")) ;;
    --attn) COMPREPLY=($(compgen -W 'fused blas' -- "$cur")) ;;
    --isa) COMPREPLY=($(compgen -W 'blas ref avx2 avxvnni avx512 vnni bf16 amx' -- "$cur")) ;;
    --precision) COMPREPLY=($(compgen -W 'f32 bf16 bf16x2 int8' -- "$cur")) ;;
    --profile) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --threads | -t) COMPREPLY=() ;;
    --seed | -s) COMPREPLY=() ;;
    --launcher) COMPREPLY=() ;;
    --ranks) COMPREPLY=() ;;
    --network) COMPREPLY=() ;;
    --repeat | -r) COMPREPLY=() ;;
    --warmup) COMPREPLY=() ;;
    --every) COMPREPLY=() ;;
    --megabytes) COMPREPLY=() ;;
    --tolerance) COMPREPLY=() ;;
    --format) COMPREPLY=($(compgen -W 'table md csv json jsonl' -- "$cur")) ;;
    --output | -o) COMPREPLY=($(compgen -f -- "$cur")) ;;
    --plot) COMPREPLY=($(compgen -f -- "$cur")) ;;
    *)
        if [[ $cur == -* ]]; then
            local word options='-m --model --shape --layers --type -N --ctx-size -b --batch -p --prompt -n --gen --beams --memory -d --depth --cases --load-kv -f --file --sink --recent --sparsity --kv --kv-type --rows --alloc --lockstep --attn --isa --precision --profile -t --threads -s --seed --launcher --ranks --network -r --repeat --warmup --every --megabytes --tolerance --format -o --output --plot -h --help --version'
            for word in "${COMP_WORDS[@]:1}"; do
                case $word in
                policies) options='-m --model --shape --layers -N --ctx-size -b --batch --kv --kv-type --rows --alloc --lockstep --attn --isa --profile -t --threads -s --seed -r --repeat --warmup --format --plot -h --help --version' ;;
                sweep) options='-m --model --shape --layers -N --ctx-size -b --batch --kv-type --rows --alloc --lockstep --attn --isa -t --threads -s --seed -r --repeat --warmup --format --plot -h --help --version' ;;
                latency) options='-m --model --shape --layers --type -N --ctx-size -b --batch -d --depth --load-kv --kv --kv-type --rows --alloc --lockstep --attn --isa --precision --profile -t --threads -s --seed -r --repeat --warmup --every --format --plot -h --help --version' ;;
                bench) options='-m --model --shape --layers --type -N --ctx-size -b --batch -p --prompt -n --gen -d --depth --kv --kv-type --rows --alloc --lockstep --attn --isa --precision --profile -t --threads -s --seed -r --repeat --warmup --megabytes --format -h --help --version' ;;
                usecases) options='-m --model --shape --layers --type -b --batch --memory --cases --kv --kv-type --rows --alloc --lockstep --attn --isa --precision --profile -t --threads -s --seed -r --repeat --warmup --format -h --help --version' ;;
                memory) options='-m --model --shape --layers -N --ctx-size -b --batch -p --prompt -n --gen --beams --memory --kv --kv-type --alloc --profile -t --threads --megabytes --format -h --help --version' ;;
                instances) options='-m --model -b --batch -p --prompt -n --gen --kv -t --threads --launcher -r --repeat --format -h --help --version' ;;
                ranks) options='-m --model --shape --layers --type -b --batch -p --prompt -n --gen --kv --kv-type --rows --alloc --lockstep --attn --isa --precision --profile -t --threads -s --seed --ranks --network -r --repeat --warmup --format -h --help --version' ;;
                roof) options='-t --threads -r --repeat --megabytes --format -h --help --version' ;;
                heads) options='-m --model -N --ctx-size -f --file --sink --recent --sparsity --isa --precision -t --threads --format -o --output -h --help --version' ;;
                compare) options='--tolerance --format -h --help --version' ;;
                esac
            done
            COMPREPLY=($(compgen -W "$options" -- "$cur"))
        else
            local word words='policies sweep latency bench usecases memory instances ranks roof heads compare'
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
