# Options: numbers and choices in messages, unknown options, aliases, running completions, SEE ALSO.
load ../helper

PROGRAMS='bmc-gen bmc-spec bmc-convert bmc-prof bmc-tune'
[ ! -x "$BMC_BIN/bmc-serve" ] || PROGRAMS+=' bmc-serve'

setup_file() {
    export BMC_SEED=${BMC_SEED:-$RANDOM}
    echo "# BMC_SEED=$BMC_SEED" >&3
}

# refuses REGEX PROGRAM ARGUMENT..: exit 2, and one line on standard error that matches.
refuses() {
    local pattern=$1 program=$2
    shift 2
    run --separate-stderr "$BMC_BIN/$program" "$@" </dev/null
    [ "$status" -eq 2 ] || fail "$program $*: status $status, $stderr"
    [ -z "$output" ] || fail "$program $*: $output"
    [[ $stderr =~ ^$program:\ $pattern\ \(see\ $program\ --help\)$ ]] || fail "$program $*: $stderr"
}

# ---- rules ----

@test "every word of the rules about combined options is an option or a condition" {
    perl -0ne 'while (/\{("[^{]*?), (?:EXCLUDES|EXCLUSIVE|NEEDS),\s*("[^,]*?"|[A-Z ]+|"[^,]*" [A-Z]+),/g) { print "$1 $2\n" }
        print "$1\n" while /^#define [A-Z]+ +"(.*)"/mg; print "\@$1\n" while /^        \{"\@([a-z]+)", /mg' "$ROOT"/cmd/gen/{gen_options,bmc-gen}.c "$ROOT/cmd/spec/bmc-spec.c" |
        grep -oE '@?[a-z][a-z-]*' | sort | uniq -c | sort -k 2 >words
    [ "$(wc -l <words)" -gt 50 ]
    while read -r times word; do
        case $word in
        @*) [ "$times" -gt 1 ] || fail "$word" ;;
        data | pipeline | headwise | shift | recompute) ;;
        *) bmc-gen --help | grep -q -e "--$word\b" || bmc-spec --help | grep -q -e "--$word\b" || fail "$word" ;;
        esac
    done <words
}

# ---- numbers ----

@test "a bad number: the expected range and what was found" {
    whole='needs a whole number'
    refuses "-n: $whole, -1 or more; found \"x\"" bmc-gen -n x
    refuses "-n: $whole, -1 or more; found \"1.5\"" bmc-gen -n 1.5
    refuses "--predict: $whole, -1 or more; found \"\"" bmc-gen --predict=
    refuses "-n: $whole from -1 to 1000000000000000; found \"99999999999999999999\"" bmc-gen -n 99999999999999999999
    refuses "-t: $whole from 1 to 4096; found \"0\"" bmc-gen -t 0
    refuses "--chunk: $whole from 1 to 1048576; found \"-3\"" bmc-gen --chunk -3
    refuses "--temp: needs a number from 0 to 100; found \"warm\"" bmc-gen --temp warm
    refuses "--top-p: needs a number from 0 to 1; found \"1.5\"" bmc-gen --top-p 1.5
    refuses "--seed: $whole from 0 to 18446744073709551615; found \"-1\"" bmc-convert --synth opt-125m -o x --seed -1
    refuses "--draft-max: needs auto, bass or a whole number from 0 to 256; found \"many\"" bmc-spec -k many
    refuses "--budget: needs a time above 0, as 2.5s or 800ms; found \"soon\"" bmc-spec -p x --samples 2 --temp 1 --budget soon
    refuses "--evict: $whole from 0 to 16384; found \"1e3\"" bmc-tune --evict 1e3
    refuses "--seconds: needs a number from 0.01 to 1000000; found \"0\"" bmc-tune --seconds 0
}

@test "parameters of sampling beyond their ranges are refused, with the range" {
    n=0
    while read -r option min max below above; do
        for value in $below $above; do
            refuses "--$option: needs a number from $min to $max; found \"$value\"" bmc-gen "--$option=$value"
            n=$((n + 1))
        done
    done <<'END'
temp 0 100 -1e-9 9999
top-p 0 1 -0.1 1.001
min-p 0 1 -1 2
top-n-sigma 0 1000000 -1 1e7
typical-p 0 1 -1 1.1
repeat-penalty 0.001 1000 0 1001
presence-penalty -1000 1000 -1001 1e9
frequency-penalty -1000 1000 -1e9 1001
xtc-probability 0 1 -1 2
xtc-threshold 0 1 -1 2
dynatemp-range 0 100 -1 101
dynatemp-exp 0 1000 -1 1001
dry-multiplier 0 1000 -1 1001
dry-base 0 1000 -1 1001
mirostat-ent 0 1000 -1 1001
mirostat-lr 0 1 -1 2
END
    assert_equal $n $((2 * $(grep -c '^X(REAL, ' "$ROOT/lib/format/sampling.h")))
    printf '%s\n' '{"prompt":"a","temp":-1}' '{"prompt":"a","temperature":100.5}' >requests
    some_fail 2 2 bmc-gen -q -m "$ROOT/models.d/grimm.bmc" --jsonl -f requests
    [ "$(grep -c 'from 0 to 100' <<<"$output")" -eq 2 ] || fail "$output"
}

@test "numbers take suffixes only where documented" {
    for text in 1K 1k 2M 1G 0x10 1e3; do
        refuses "-t: needs a whole number from 1 to 4096; found \"$text\"" bmc-gen -t $text
        refuses "--top-k: needs a whole number, 0 or more; found \"$text\"" bmc-gen --top-k $text
        refuses "--seed: needs a whole number from 0 to 18446744073709551615; found \"$text\"" bmc-prof latency --seed $text
    done
    # Of tokens and rows some are: whole ones, of one letter.
    for text in 1.5K 1KB K 0x10 1e3 -1K; do
        refuses "-c: needs a whole number, 0 or more; found \"$text\"" bmc-gen -c $text
        refuses "--every: needs a whole number, 1 or more; found \"$text\"" bmc-prof latency --every $text
    done
}

# ---- choices ----

# "OPTION VALUE VALUE .." for every option with choices, from the completion.
choices_of() {
    "$BMC_BIN/$1" --print-options bash |
        sed -nE "s/^ +(--[a-z-]+).*\) COMPREPLY=.*compgen .*-W '([^']*)' .*/\1 \2/p"
}

# The help text of an option.
help_of() { # FILE OPTION
    awk -v option="$2" '
        match($0, /[^ ]/) < 8 && $1 ~ /^-/ { inside = ($1 == option || $2 == option) }
        /^[A-Z].*:$/ { inside = 0 }
        inside' "$1"
}

@test "--help lists every value of every choice" {
    seen=0
    for program in $PROGRAMS; do
        choices_of "$program" >choices
        "$BMC_BIN/$program" --help >help
        while read -r option values; do
            [ "$option" != --columns ] || continue # listed in the man page, per subcommand
            text=" $(help_of help "$option") "
            for value in $values; do
                seen=$((seen + 1))
                [[ $text =~ [^a-z0-9]$value[^a-z0-9] ]] || fail "$program $option: $value is not in: $text"
            done
        done <choices
    done
    [ "$seen" -ge 100 ]
}

@test "policies, kernel sets, precisions and backends come from their tables" {
    kv=$(sed -nE '/kv_policies\[\]/,/NULL/s/[^&]*&kv_policy_([a-z0-9]+),?/\1 /gp' "$ROOT/lib/kv/kv_policies.c" | tr -d '\n' | sed 's/ *NULL.*//; s/ *$//')
    [[ $kv == "bmc iterative"* ]]
    for program in bmc-gen bmc-spec bmc-prof; do
        [ "$(choices_of $program | sed -n 's/^--kv //p')" = "$kv" ] || fail "$program: $(choices_of $program)"
    done
    for program in bmc-gen bmc-spec bmc-prof bmc-tune; do
        choices_of $program >choices
        run grep -cxE -e '--isa .*ref.*' -e '--precision f32 bf16 bf16x2 int8' -e '--attn fused blas onednn' choices
        assert_output 3
    done
    # They are not spelled elsewhere.
    run grep -rnE 'iterative\|upfront|avx2\|avx512|bf16\|bf16x2|fused\|blas' "$ROOT"/cmd
    assert_output ""
    # Each usable kernel set is among them.
    choices_of bmc-gen | sed -n 's/^--isa //p' | tr ' ' '\n' >sets
    [ -n "$(isas)" ]
    for isa in $(isas); do grep -qx "$isa" sets || fail "$isa"; done
}

# ---- unknown options ----

@test "an unknown option: the nearest name is suggested" {
    refuses 'unknown option --predit; did you mean --predict\?' bmc-gen --predit 3
    refuses 'unknown option --predit; did you mean --predict\?' bmc-gen --predit=3
    refuses 'unknown option --tmep; did you mean --temp\?' bmc-gen --tmep 1
    refuses 'unknown option --tok; did you mean --tokenize\?' bmc-gen --tok
    refuses 'unknown option -predict; did you mean --predict\?' bmc-gen -predict 3
    refuses 'unknown option --cachetype; did you mean --cache-type\?' bmc-prof --cachetype f32
    refuses 'unknown option --inof; did you mean --info\?' bmc-convert --inof x
    refuses 'unknown option --versoin; did you mean --version\?' bmc-tune --versoin
    refuses 'unknown option --recylce; did you mean --recycle\?' bmc-spec --recylce
    refuses 'unknown option -n16; did you mean -n 16\?' bmc-gen -n16
    refuses 'unknown option -tb4; did you mean -tb 4\?' bmc-gen -tb4
    refuses 'unknown option --core; did you mean --cores\?' bmc-gen --core all
    refuses 'unknown option -ctk: here it is --cache-type.*' bmc-prof memory -ctk f16 # of another program
}

@test "an unknown option unlike any other: no suggestion" {
    refuses 'unknown option --no-such-option' bmc-gen --no-such-option
    refuses 'unknown option -z' bmc-gen -z
    refuses 'unknown option --' bmc-gen --=x
    long=$(printf -- '--x%.0s' {1..1000})
    refuses "unknown option $long" bmc-gen "$long"
}

@test "options of llama.cpp: the equivalent, or the reason why there is none" {
    while read -r option ours; do
        refuses "unknown option $option: here it is $ours(, .*)?" bmc-gen "$option" 1
    done <<'END'
--n-predict --predict
--temperature --temp
--ubatch-size --chunk
-ub --chunk
--flash-attn --attn
-fa --attn
--cache-type-k --cache-type
-ctv --cache-type
--log-disable --quiet
--in-file --file
--reverse-prompt --stop
--prompt-cache-ro --load-kv
END
    for option in --tfs --json-object -cnv --color --no-mmap --control-vector -hf --jinja; do
        refuses "unknown option $option: .*" bmc-gen $option 1
    done
    refuses "unknown option --tfs: the samplers are .*" bmc-spec --tfs 2
    refuses 'unknown option --draft-max: it is --draft-max of bmc-spec' bmc-gen --draft-max 4
    refuses 'unknown option -md: it is --model-draft of bmc-spec' bmc-gen -md x
    refuses 'unknown option --draft-n: here it is --draft-max' bmc-spec --draft-n 4
    # No equivalent in a program without that option.
    refuses 'unknown option --n-predict' bmc-convert --n-predict 4
}

# "NAME<tab>EQUIVALENT" of every option in the table of bmc-llama.cpp(7).
foreign_rows() {
    awk '/BEGIN FOREIGN/ { inside = 1 } /END FOREIGN/ { inside = 0 }
        inside && !/^(T[{}]|\.)/ { if (++n % 2) names = $0; else print names "\t" $0 }' "$ROOT/man/bmc-llama.cpp.7" |
        sed 's/\\%//g; s/\\-/-/g; s/\\e/\\/g' |
        while IFS=$'\t' read -r names what; do
            for name in ${names//,/}; do printf '%s\t%s\n' "$name" "$what"; done
        done
}

# has_option PROGRAM OPTION, long or short; --help is in the file of that name, which is read once.
has_option() {
    local -n names=named_by_${1//-/_}
    [ -n "${names-}" ] || names=" $(sed -nE 's/^ +((-[a-zA-Z]+, )?[^ ,]+).*/\1/p' "$1" | tr -s ',\n' ' ')"
    [[ $names == *" $2 "* ]]
}

@test "the man page's table of other programs' options agrees with --help" {
    foreign_rows >rows
    [ "$(wc -l <rows)" -ge 100 ]
    run cut -f 1 rows
    [ "$(sort <<<"$output" | uniq -d)" = "" ] || fail "twice: $(sort <<<"$output" | uniq -d)"
    for program in bmc-gen bmc-spec bmc-convert bmc-prof; do "$BMC_BIN/$program" --help >$program; done
    "$BMC_BIN/bmc-gen" --print-options aliases >aliases # -b is one
    has_option bmc-gen -n
    has_option bmc-gen --predict
    ! has_option bmc-gen --pred || fail "the search finds what is not there"
    while IFS=$'\t' read -r name what; do
        case $what in
        'the same'* | 'not the same'*) has_option bmc-gen "$name" || grep -q -e "^$name " aliases || fail "$name is said to be the same" ;;
        none:*) ! has_option bmc-gen "$name" || fail "$name is said not to be there" ;;
        *' of bmc-spec'* | *' of bmc-convert'* | *' of bmc-prof'*)
            program=${what#* of }
            what=${what%% *}
            has_option "${program%%[; ]*}" "$what" || fail "$name: $what"
            ;;
        --*)
            what=${what%%[; ]*}
            has_option bmc-gen "$what" || fail "$name: $what"
            ! has_option bmc-gen "$name" || fail "$name is said to be $what"
            ;;
        *) fail "$name: $what" ;;
        esac
    done <rows
}

@test "each unsupported option of that table is answered with the note of its row" {
    foreign_rows | sed -n '/^-/p' >rows
    n=0
    while IFS=$'\t' read -r name what; do
        case $what in
        'the same'* | 'not the same'*) continue ;;
        none:*) want="bmc-gen: unknown option $name: ${what#none: } (see bmc-gen --help)" ;;
        *' of bmc-'*) want="bmc-gen: unknown option $name: it is ${what%%[; ]*} of $(grep -oE 'bmc-(spec|convert|prof)' <<<"$what" | head -n 1) (see bmc-gen --help)" ;;
        *) want="bmc-gen: unknown option $name: here it is ${what/;/,} (see bmc-gen --help)" ;;
        esac
        n=$((n + 1))
        if ! sampled 4; then continue; fi
        said=$("$BMC_BIN/bmc-gen" "$name" 1 2>&1 >/dev/null </dev/null) || true
        [ "$said" = "$want" ] || fail "$name: $said, not $want"
    done <rows
    [ "$n" -ge 400 ]
}

@test "underscores in names of other programs' options" {
    refuses 'unknown option --max_tokens: here it is --predict, generated tokens only' bmc-gen --max_tokens 5
    refuses 'unknown option --max_new_tokens: here it is --predict, .*' bmc-spec --max_new_tokens=5
    refuses 'unknown option --ctx_size; did you mean --ctx-size\?' bmc-gen --ctx_size 5
    refuses 'unknown option --num_beams: here it is --beams' bmc-gen --num_beams 4
    refuses 'unknown option --tensor_parallel_size: here it is --parallelism, .*' bmc-gen --tensor_parallel_size 2
    refuses 'unknown option --torch_dtype: it is --type of bmc-convert' bmc-gen --torch_dtype auto
    refuses 'unknown option --stream: text is always printed as it is generated' bmc-gen --stream
    refuses 'unknown option --host: bmc-serve is the server \(--port, --listen, .*\), and --jsonl .*' bmc-gen --host 0.0.0.0
    refuses 'unknown option --grp-attn-n: .* not implemented' bmc-gen --grp-attn-n
    refuses 'unknown option --json-schema-file: here it is --json-schema' bmc-gen --json-schema-file x
}

# Options of llama.cpp and ik_llama.cpp, and common ones of transformers and vLLM: each exists or has a row.
@test "all common options of other programs are answered" {
    rows=$'\n'$(foreign_rows | cut -f 1)$'\n'
    for program in bmc-gen bmc-spec; do "$BMC_BIN/$program" --help >$program; done
    n=0
    while read -r -a names; do
        for name in "${names[@]}"; do
            n=$((n + 1))
            [[ $rows == *$'\n'"$name"$'\n'* ]] || has_option bmc-gen "$name" || has_option bmc-spec "$name" || fail "$name has no row"
        done
    done <"$FIXTURES/foreign-options.txt"
    [ "$n" -ge 300 ]
}

@test "docs.sh detects a man page with a different table of options" {
    mkdir copy
    cp -r "$ROOT/man" "$ROOT/completions" copy
    sed -i '/BEGIN FOREIGN/,/END FOREIGN/s/uses one device/uses two/' copy/man/bmc-llama.cpp.7
    export DOCS_ROOT=copy BMC_BIN
    run sh "$ROOT/tests/docs.sh" check
    assert_failure 1
    assert_line --partial "copy/man/bmc-llama.cpp.7 differs"
}

# ---- options given twice ----

# Of settings the last counts, so that aliases and scripts can have defaults; of texts, lists and files one would be lost.
@test "a text, a list or a file of an option is given once" {
    n=0
    for program in $PROGRAMS; do
        "$BMC_BIN/$program" --help >help
        while read -r option arg; do
            # no test of what is read or written: usage is checked before
            expect_error 2 "^$program: $option is given twice, with \"x\.1\" and \"y\.1\": give one" "$BMC_BIN/$program" "$option" x.1 "$option" y.1
            n=$((n + 1))
        done < <(grep -o '^ *-.*' help | sed -nE 's/^ *(-[a-z]+, )?(--[a-z-]+) (TEXT|IDS|JSON|RE|A\|B|FILE|DIR)  .*/\2 \3/p' | grep -vE -e '^--(stop|lora|dry-sequence-breaker|tensor-type|model|draft|model-draft) ')
    done
    [ "$n" -gt 40 ]
    expect_error 2 '^bmc-gen: -p is given twice, with "a" and "b": give one' bmc-gen -p a -p b
    expect_error 1 '^bmc-gen: b: cannot open' bmc-gen -m a -m b -p x
    expect_error 2 '^bmc-prof: -p is given twice, with "1" and "2": give one' "$BMC_BIN/bmc-prof" bench -p 1 -p 2
    assert_equal "$(bmc-gen -q -p x -p x -n 9 -n 2 --temp 1 --temp 0 --kv paged --kv bmc --ids)" "$(bmc-gen -q -p x -n 2 --ids)"
}

# ---- aliases ----

@test "-c is the context in all programs that have one" {
    assert_equal "$("$BMC_BIN/bmc-prof" latency -m "$(model grimm)" -c 4 -r 1 --format json | jq -c '.rows | length')" 3
    expect_error 2 '"x" is not a list of at most 16 whole numbers from 2' bmc-tune -c x --dry-run
}

@test "other names of options are accepted, and listed in the man page only" {
    seen=0
    for program in $PROGRAMS; do
        "$BMC_BIN/$program" --help >help
        unset named_by_help
        tr -d '\\%' <"$ROOT/man/$program.1" >page
        "$BMC_BIN/$program" --print-options aliases >aliases
        while read -r old name; do
            seen=$((seen + 1))
            grep -qE -e "^ +(-[a-zA-Z]+, )?$name( |,|$)" help || fail "$program has no $name"
            ! has_option help "$old" || fail "$program: $old is listed"
            grep -qF -e "$old ($name)" page || fail "$program.1: $old"
            refute grep -qE -e "[ ']$old( |\$|')" "$ROOT/completions/$program.bash"
            # A flag takes no value, another option needs one: the message has the name as given.
            if grep -qE -e "^ .*$name [A-Z]" help; then
                refuses "$old needs a value: [A-Z=-]+" "$program" "$old"
            elif [[ $name == --* ]]; then
                refuses "$old takes no value" "$program" "$old=1"
            fi
        done <aliases
        cat aliases >>all
    done
    [ "$seen" -ge 25 ]
    assert_equal "$(sort -u all)" "$(sort <<'END'
--batch --parallel
--chat-format --chat-template
--kv-type --cache-type
--rows --attend
--heads --retrieval-heads
--split --parallelism
--in-flight --micro-batches
--share-mb --prefix-cache-mb
--shift --context-shift
--free-rows --batch-knee
--no-rows --no-batch-knee
--fixed --draft-max
--save-importance --save-imatrix
--importance --imatrix
--keep --tensor-type
--keep-head --leave-output-tensor
-b -np
-c -N
END
)"
    refuses 'unknown option --importance.*' bmc-gen --importance x
    refuses '--keep: needs a whole number, 0 or more; found "a=f32"' bmc-gen --keep a=f32
}

@test "values of earlier versions" {
    for value in requests data layers pipeline tensor; do
        refuses '--temp: needs a number from 0 to 100; found "x"' bmc-gen --split $value --parallelism $value --temp x
    done
    for value in policy padded valid; do
        refuses '--temp: needs a number from 0 to 100; found "x"' bmc-gen --rows $value --attend $value --temp x
    done
    refuses '--split: "none" is none of data, tensor, pipeline, expert' bmc-gen --split none
}

# ---- completions ----

# "COMMAND LINE | EXPECTED" for all shells.
COMPLETED='bmc-prof sw|sweep
bmc-prof --kv bmc,pa|bmc,paged
bmc-prof --shape tinyllama-d|tinyllama-draft-55m
bmc-prof roof --m|--megabytes
bmc-prof compare --t|--tolerance
bmc-prof policies --al|--alloc
bmc-gen --isa avx5|avx512
bmc-gen --cache-type b|bf16
bmc-gen --precision bf16x|bf16x2
bmc-gen --tok|--tokenize
bmc-convert --synth opt-12|opt-125m'

@test "bash completes subcommands, shapes, lists and choices" {
    export PATH=$BMC_BIN:$PATH
    complete_in_bash() {
        local words name
        read -ra words <<<"$1"
        name=${words[0]}
        [[ $1 != *' ' ]] || words+=('')
        # shellcheck disable=SC1090
        source "$ROOT/completions/$name.bash"
        COMP_WORDS=("${words[@]}") COMP_CWORD=$((${#words[@]} - 1)) COMPREPLY=()
        "_${name//-/_}"
        echo "${COMPREPLY[*]}"
    }
    while IFS='|' read -r line expected; do
        assert_equal "$line: $(complete_in_bash "$line")" "$line: $expected"
    done <<<"$COMPLETED"
    assert_equal "$(complete_in_bash 'bmc-prof ')" "policies sweep latency bench memory ranks predict roof heads cache-scales cache-types quality prefix-cache compare"
    assert_equal "$(complete_in_bash 'bmc-gen --kv = r')" reserve
    assert_equal "$(complete_in_bash 'bmc-prof --kv bmc,iterative,up')" bmc,iterative,upfront
    touch story.txt
    assert_equal "$(complete_in_bash 'bmc-gen -f sto')" story.txt
    assert_equal "$(complete_in_bash 'bmc-prof roof sto')" story.txt
}

@test "fish completes subcommands, shapes, lists and choices" {
    command -v fish >/dev/null || skip "no fish"
    export PATH=$BMC_BIN:$PATH HOME=$PWD
    complete_in_fish() { fish --no-config -c "source $ROOT/completions/${1%% *}.fish; complete -C '$1'" | cut -f 1; }
    while IFS='|' read -r line expected; do
        assert_equal "$line: $(complete_in_fish "$line")" "$line: $expected"
    done <<<"$COMPLETED"
    assert_equal "$(complete_in_fish 'bmc-prof ' | sort | paste -sd ' ')" "bench compare heads latency memory policies ranks roof sweep"
    assert_equal "$(complete_in_fish 'bmc-gen --kv=r')" "--kv=reserve"
    touch story.txt
    assert_equal "$(complete_in_fish 'bmc-gen -f sto')" story.txt
    assert_equal "$(complete_in_fish 'bmc-prof roof sto')" story.txt
}

@test "zsh completes subcommands, shapes, lists and choices" {
    command -v zsh >/dev/null || skip "no zsh"
    # shellcheck disable=SC2016
    zsh -f -c 'zmodload zsh/zpty && zpty t true' 2>/dev/null || skip "no pseudo-terminal"
    cat >complete.zsh <<'END'
zmodload zsh/zpty
root=$1
zpty z zsh -f -i
zpty -w z "PS1=; PS2=; fpath=($root/completions \${(M)fpath:#*/Completion(|/Base|/Unix)}); autoload -U compinit; compinit -D -u
show() { zle complete-word; BUFFER=\"print -r -- FO''UND\${(q)BUFFER}E''ND\"; zle accept-line }
zle -N show; bindkey '^X' show; stty -echo; print READ''Y"
zpty -r -m z line '*READY*'
while read -r words; do
    zpty -w -n z "$words"$'\x18'
    zpty -r -m z line '*FOUND*END*'
    print -r -- "${${line##*FOUND}%%END*}"
done
END
    cut -d '|' -f 1 <<<"$COMPLETED" >lines
    # Earlier words do not change; the last one may be followed by a blank, a comma in a list, or an equals sign.
    sed -E 's/[^ ]*\|(.*)/\1/' <<<"$COMPLETED" >expected
    PATH=$BMC_BIN:$PATH HOME=$PWD timeout 60 zsh -f complete.zsh "$ROOT" <lines >found
    sed -E 's/\\//g; s/[ ,=]+$//' found >plain
    run diff expected plain
    assert_output ""
}

@test "names of shapes for completions: plain ones only" {
    mkdir -p tree/bin tree/models.d/shapes
    cp "$BMC_BIN/bmc-prof" tree/bin
    # shellcheck disable=SC2016
    touch tree/models.d/shapes/{my-1.5b,'a b','$(touch x)',-rf,.hidden}.shape tree/models.d/shapes/notes.txt
    ok tree/bin/bmc-prof --print-options shapes
    assert_output my-1.5b
}

# ---- man pages ----

# The pages that a page's SEE ALSO names.
see_also() { sed -n '/^\.SH SEE ALSO/,$s/^\.BR \([a-z_.\\-]*\) (\([1357]\)),\{0,1\}$/\1.\2/p' "$1" | tr -d '\\'; }

@test "every SEE ALSO names the other programs or libbmc(3), bmc(7), and existing pages" {
    pages=$(cd "$ROOT/man" && echo *)
    [ "$(wc -w <<<"$pages")" -ge 9 ]
    for page in $pages; do
        see_also "$ROOT/man/$page" >named
        programs=$PROGRAMS
        case $page in bmc_*.3) # a group of functions: libbmc(3) names the programs
            programs=
            grep -qx libbmc.3 named || fail "$page does not name libbmc(3)"
            ;;
        esac
        for program in $programs; do
            [ "$page" = "$program.1" ] || grep -qx "$program.1" named || fail "$page does not name $program(1)"
        done
        [ "$page" = bmc.7 ] || grep -qx bmc.7 named || fail "$page does not name bmc(7)"
        ! grep -qx "$page" named || fail "$page names itself"
        while read -r name; do [ -e "$ROOT/man/$name" ] || fail "$page names $name"; done <named
    done
    see_also "$ROOT/man/bmc.7" >named
    for page in bmc-family.5 bmc-kv.5 bmc-model.5; do grep -qx $page named || fail "bmc(7) does not name $page"; done
    for program in $PROGRAMS; do grep -q "^\.BR ${program/-/\\\\-} (1)$" "$ROOT/man/bmc.7" || fail "bmc(7) does not describe $program"; done
}
