#!/bin/sh
# Entries of the BMC paper: sh tests/bench/papers/bmc.sh ENTRY. Names are those of entries.list.
# shellcheck disable=SC2016 # programs of jq
set -eu
. "$(dirname "$0")/lib.sh"

bmc='.policy | startswith("bmc")'
iterative='.policy == "iterative"'
upfront='.policy == "upfront"'
paged='.policy | startswith("paged")'

# attention FILE SHAPE N B POLICIES OPTION..: the attention block of one layer
attention() {
    file=$1 shape=$2 n=$3 b=$4 kv=$5
    shift 5
    prof "$file" policies --shape "$shape" --layers 1 -N "$n" -np "$b" --kv "$kv" --repeat "$rounds" --profile none "$@"
}

# Of N steps with costs linear in the context those in the middle take the mean: middle FILE SHAPE LAYERS B N STEPS POLICIES OPTION ..
middle() {
    file=$1 shape=$2 layers=$3 b=$4 n=$5 steps=$6 kv=$7
    shift 7
    prof "$file" bench --shape "$shape" --layers "$layers" -np "$b" -p 0 -d $(((n - steps) / 2)) -n "$steps" -N "$n" --kv "$kv" --warmup 0 --profile none "$@"
}

# Shares of attention, of growth and of SDPA in a step: the parts of a step are means, so each round is a run.
fig2() {
    n=2048 b=8 layers=2
    for shape in $(pick "opt-350m opt-1.3b" "opt-350m opt-1.3b opt-2.7b opt-6.7b"); do
        whole=$(awk '$1 == "layers" { print $2 }' "models.d/shapes/$shape.shape")
        for round in $(seq "$rounds"); do
            middle "round.$round" "$shape" $layers $b $n "$(pick 64 256)" iterative --lockstep -r 1
        done
        for part in attention:0.75:0.8 updating:0.6:0.7 SDPA:0.15:0.2; do
            samples=$(jq -sc --argjson layers $layers --argjson whole "$whole" --arg part "${part%%:*}" 'map(.rows[0] |
                (.step_ms - .attention_ms - .projections_ms - .mlp_ms - .other_ms - .head_ms - .sampling_ms) as $updating |
                {updating: $updating, SDPA: .attention_ms, attention: ($updating + .attention_ms)} as $ms |
                ($ms[$part] / $layers * $whole) / (($ms.attention + .projections_ms + .mlp_ms + .other_ms) / $layers * $whole + .head_ms + .sampling_ms))' "$work"/round.*)
            claimed=${part#*:}
            share "share of ${part%%:*}, $shape" "$samples" "${claimed%:*}" "${claimed#*:}" "$shape, ${part%%:*}"
        done
    done
    note "$layers layers, times of a layer multiplied by the model's layers; B = $b, $(pick 64 256) steps in the middle of N = $n."
}

# Updating the cache over attention, by context: each context is a cell, rounds alternate over all.
fig3() {
    b=$(pick 8 32) contexts=$(pick "128 256 512" "128 256 512 1024 2048")
    for round in $(seq "$rounds"); do
        for n in $contexts; do
            attention "n.$n.$round" opt-2.7b "$n" "$b" iterative --lockstep --attn blas --repeat 1
        done
    done
    for n in $contexts; do
        direction "updating over SDPA, N = $n" "$(jq -sc 'map(.rows[0] | (.alloc_ms + .copy_ms) / .sdpa_ms)' "$work/n.$n".*)" 1 "N = $n"
    done
    jq -sc '[group_by(.rows[0].N)[] | {n: .[0].rows[0].N, update: (map(.rows[0] | .alloc_ms + .copy_ms) | sort[length / 2 | floor]), sdpa: (map(.rows[0].sdpa_ms) | sort[length / 2 | floor])}] |
        {kind: "figure", title: "OPT-2.7B, one layer, iterative", x_name: "context N", y_name: "ms until N", log2_x: true,
         series: [{name: "updating the cache", x: map(.n), y: map(.update)}, {name: "SDPA", x: map(.n), y: map(.sdpa)}]}' "$work"/n.*
    note "B = $b (paper: 512), the batch grows as one tensor."
}

# The backend of the attention block: OpenBLAS, or oneDNN as in the paper.
attn=${ATTN:-blas}

# Table IV and figure 4. Growth at once, as in the paper.
tab4() {
    n=$(pick 256 1024) b=8
    attention rows opt-2.7b "$n" $b iterative,upfront,paged:32,bmc:grow=now --attn "$attn"
    claim "iterative over bmc" "$(over rows total_ms "$iterative" "$bmc")" 3.38 "" "iterative"
    claim "upfront over bmc" "$(over rows total_ms "$upfront" "$bmc")" 1.90 "" "upfront"
    claim "paged over bmc" "$(over rows total_ms "$paged" "$bmc")" 1.11 "" "paged"
    claim "iterative over upfront (figure 4)" "$(over rows total_ms "$iterative" "$upfront")" 1.9 "" "figure 4"
    jq -c '.rows[0].total_ms as $whole | [.rows[] | {p: .policy, a: (.alloc_ms / $whole), c: (.copy_ms / $whole), s: (.sdpa_ms / $whole)}] as $ours |
        [{p: "iterative", a: 0.4608, c: 0.2249, s: 0.3143}, {p: "upfront", a: 0.0003, c: 0, s: 0.5622}, {p: "vLLM", a: 0.0024, c: 0, s: 0.3253}, {p: "BMC", a: 0.0021, c: 0.0011, s: 0.2924}] as $paper |
        [range(4) | ($paper[.] | .p += ", paper"), ($ours[.] | .p += ", here")] |
        {kind: "figure", title: "Time relative to iterative (table IV)", x_name: "", y_name: "share of iterative", bars: map(.p),
         series: [{name: "allocation", y: map(.a)}, {name: "copying", y: map(.c)}, {name: "SDPA", y: map(.s)}]}' "$work/rows"
    note "OPT-2.7B, one layer, --attn $attn, N = $n, B = $b; paged blocks of 32."
}

tab5() {
    n=$(pick 256 512) b=8
    for alloc in mmap thp; do
        attention rows opt-6.7b "$n" $b iterative,upfront,bmc:T=8 --lockstep --attn blas --alloc $alloc --repeat 1
        jq -c --arg pages $alloc '.rows[] | [$pages, .policy, .minor_faults, .major_faults, (.dtlb_misses // "not counted")]' "$work/rows" >>"$work/table"
        ratio=$(jq '[.rows[] | select(.policy == "iterative").minor_faults] + [.rows[] | select(.policy | startswith("bmc")).minor_faults] | .[0] / .[1]' "$work/rows")
        if [ $alloc = mmap ]; then counted "minor faults, iterative over bmc, 4 KiB pages" "$ratio" 26.6 "" "4 KiB"
        else counted "the same with large pages" "$ratio" 18.0 "" "2 MiB"; fi
    done
    jq -sc '{kind: "table", title: "Page faults", head: ["pages", "policy", "minor faults", "major faults", "DTLB misses"], rows: .}' "$work/table"
    note "OPT-6.7B, one layer, N = $n, B = $b, the batch as one tensor."
}

# The curve over T. sweep_entry SHAPE N B BEST ITERATIVE UPFRONT OPTION..: the paper's best T, and its two ratios ("" for
# none). The minimum is flat, so the claim is that its T takes the time of the best one, not that it is the best one.
sweep_entry() {
    shape=$1 n=$2 b=$3 best=$4 over_iterative=$5 over_upfront=$6
    shift 6
    prof rows sweep --shape "$shape" --layers 1 -N "$n" -np "$b" --repeat "$rounds" "$@"
    curve rows "$shape, N = $n, B = $b"
    paper=$(jq --argjson best "$best" '[.rows[].T // empty] | min_by((. / $best | log) | fabs)' "$work/rows")
    t=$(jq '[.rows[] | select(.T)] | min_by(.total_ms).T' "$work/rows")
    share "T = $paper, the paper's, over the best T, N = $n" "$(over rows total_ms ".T == $paper" ".T == $t")" 1 1 "$shape $n: T = $paper"
    for pair in "iterative $n $over_iterative" "upfront 1 $over_upfront"; do
        # shellcheck disable=SC2086 # words
        set -- $pair
        name="$1 over T = $paper, N = $n" samples=$(over rows total_ms ".T == $2" ".T == $paper")
        if [ $# -eq 3 ]; then claim "$name" "$samples" "$3" "" "$shape $n: $1"; else direction "$name" "$samples" 1 "$shape $n: $1"; fi
    done
    note "$shape, one layer, N = $n, B = $b: the best T in the medians is $t."
}

fig5() { if [ "$size" = full ]; then sweep_entry opt-13b 1024 8 16 3.25 1.34 --attn blas; else sweep_entry opt-13b 256 2 8 3.25 1.34 --attn blas; note "At N = 1024 the paper's T is 16: 8 at 256 by its own square root."; fi; }
fig7() { for shape in $(pick "opt-350m opt-1.3b" "opt-350m opt-1.3b opt-2.7b opt-6.7b"); do sweep_entry "$shape" "$(pick 256 512)" "$(pick 4 8)" "$(pick 6 8)" "" "" --attn blas; done; }
fig8() { for n in $(pick "64 256" "128 512 2048"); do sweep_entry opt-6.7b "$n" "$(pick 4 8)" "$(echo "$n" | awk '{ print 8 * sqrt($1 / 128) }')" "" "" --attn blas; done; }
fig9() { for n in $(pick "256 1024" "1024 4096"); do sweep_entry llama-3-8b "$n" "$(pick 4 32)" "$(echo "$n" | awk '{ print 16 * sqrt($1 / 1024) }')" "" "" --attn blas; done; }
h3() { for n in $(pick "64 256" "64 256 1024"); do sweep_entry opt-350m "$n" 8 "$(echo "$n" | awk '{ print 16 * sqrt($1 / 1024) }')" "" "" --attn blas; done; }

tab7() {
    n=$(pick 256 1024) b=$(pick 8 32)
    for row in opt-350m:1.31 opt-1.3b:1.27 opt-2.7b:1.07 $(pick "" "opt-6.7b:1.57 opt-13b:1.30"); do
        attention rows "${row%:*}" "$n" "$b" bmc:grow=now,paged:16 --attn "$attn"
        claim "paged over bmc, ${row%:*}, $attn" "$(over rows total_ms "$paged" "$bmc")" "${row#*:}" "" "${row%:*}"
    done
    attention rows opt-350m "$n" "$b" bmc,paged:16 --attn fused
    claim "paged over bmc, opt-350m, fused kernels" "$(over rows total_ms "$paged" "$bmc")" 1.31 "" "350m fused"
    note "One layer, N = $n, B = $b, blocks of 16 entries (paper: N = 1024, B = 32)."
}

# Attention alone by transformers and by bmc-prof in turns; without transformers nothing is compared.
tab10() {
    ! no_transformers || skip "PYTHON=FILE: needs an interpreter with torch and transformers"
    sed 's/^heads .*/heads 32/; s/^hidden .*/hidden 512/; s/^ffn .*/ffn 2048/; s/^context .*/context 16384/' models.d/shapes/opt-350m.shape >"$work/heads.shape"
    for cell in $(pick "4:2048:4.33 4:4096:6.04 4:8192:7.69" "4:1024:4.21 4:2048:4.33 4:4096:6.04 4:8192:7.69 16:1024:4.38 16:2048:3.92 16:4096:8.48"); do
        IFS=: read -r b n paper <<END
$cell
END
        for round in $(seq "$(turns 3 3)"); do
            "$PYTHON" tests/bench/hf_attention.py 32 16 "$b" $((n * 15 / 32)) $((n / 16)) 1 "$threads" >"$work/hf" 2>"$work/error" || fail "$(tail -n 1 "$work/error")"
            for attn in fused blas; do
                middle "$attn" "$work/heads.shape" 1 "$b" "$n" $((n / 16)) iterative,bmc --attn $attn --cache-type f32 -r 1
            done
            jq -nc --slurpfile hf "$work/hf" --slurpfile fused "$work/fused" --slurpfile blas "$work/blas" 'def ms($x; $p): $x[0].rows[] | select(.policy | startswith($p)) | .step_ms - .projections_ms - .mlp_ms - .other_ms - .head_ms - .sampling_ms;
                {version: $hf[0].transformers, hf: ($hf[0].ms[0] / $hf[0].steps), fused: ms($fused; "bmc"), blas: ms($blas; "bmc"), iterative: ms($blas; "iterative")}' >>"$work/ms.$b.$n"
        done
        claim "transformers over bmc, B = $b, N = $n" "$(jq -sc 'map(.hf / .fused)' "$work/ms.$b.$n")" "$paper" "" "B $b N $n"
        direction "the same with OpenBLAS" "$(jq -sc 'map(.hf / .blas)' "$work/ms.$b.$n")" 1 "B $b N $n, OpenBLAS"
        direction "transformers over iterative with OpenBLAS" "$(jq -sc 'map(.hf / .iterative)' "$work/ms.$b.$n")" 1 "B $b N $n, iterative"
    done
    note "32 heads of 16, one layer, f32, cache updates included, N / 16 steps in the middle of N; transformers $(jq -rs '.[0].version' "$work/ms.$b.$n"), its dynamic cache and torch's attention."
}

# Whole steps. decode FILE SHAPE LAYERS B DEPTH TOKENS POLICIES OPTION ..
decode() {
    file=$1 shape=$2 layers=$3 b=$4 depth=$5 n=$6 kv=$7
    shift 7
    prof "$file" bench --shape "$shape" --layers "$layers" -np "$b" -p 0 -d "$depth" -n "$n" -N "$n" --kv "$kv" -r "$rounds" --warmup 0 --profile none "$@"
}

fig10() {
    steps=$(pick 128 2047)
    for shape in opt-350m opt-1.3b; do
        middle rows $shape 24 8 2048 "$steps" iterative,upfront,bmc -r "$(turns "$(if [ $shape = opt-350m ]; then echo 2; else echo 1; fi)" 5)"
        claim "bmc over iterative, $shape" "$(over rows tok_s_end_to_end "$bmc" "$iterative")" 1.2 2.5 "$shape"
        direction "bmc over upfront, $shape" "$(over rows tok_s_end_to_end "$bmc" "$upfront")" 1 "$shape, upfront"
    done
    note "Whole models, B = 8, $steps steps in the middle of N = 2048 (paper: up to 2.5 times, mean 2.0)."
}

fig11() {
    for cell in 8:512 $(pick "" "1:512 32:512 8:1024 8:1920"); do
        decode rows opt-1.3b "$(pick 2 24)" "${cell%:*}" "${cell#*:}" "$(pick 64 128)" paged:16,bmc --attn "${ATTN:-fused}"
        claim "bmc over paged, B = ${cell%:*}, N = ${cell#*:}" "$(over rows tok_s_end_to_end "$bmc" "$paged")" 1.2 1.47 "B ${cell%:*} N ${cell#*:}"
    done
    note "OPT-1.3B, $(pick 2 24) layers of 24; paged is the cache of vLLM over the same kernels (--attn ${ATTN:-fused}; the fused ones read blocks in place)."
}

h1() {
    decode rows llama-3-8b 1 1 "$(pick 4096 8064)" "$(pick 32 128)" paged:16,bmc
    claim "bmc over paged, N = $(pick 4K 8K)" "$(over rows tok_s_end_to_end "$bmc" "$paged")" 1.2 "" "N $(pick 4K 8K)"
    note "One layer of Llama-3-8B and the head; the baseline is our paged policy, not vLLM."
}

# Against Hugging Face transformers: whole models, the geometric mean of the abstract.
abstract() {
    ! no_transformers || skip "PYTHON=FILE: needs an interpreter with torch and transformers"
    rounds=$(turns 3 5)
    cells=$(pick "opt-350m:24:8:64:64" "opt-350m:24:8:512:512 opt-350m:24:32:256:256 opt-1.3b:24:8:512:512 opt-1.3b:24:32:128:128 opt-2.7b:16:8:256:256")
    caches=dynamic,static,iterative,paged:16,bmc i=0
    ! "$PYTHON" -c 'import deepspeed' 2>/dev/null >&2 || caches=$caches,deepspeed
    for cell in $cells; do
        i=$((i + 1))
        IFS=: read -r shape layers b p n <<END
$cell
END
        transformers "cell.$i" "$shape" "$layers" --batch "$b" --prompt "$p" --new "$n" --caches $caches
        jq -c --arg name "$shape, $layers layers, B = $b, $p + $n" '.tok_s | map_values(sort[length / 2 | floor]) | [$name] + [.dynamic, .static, .deepspeed // 0, .iterative, ."paged:16", .bmc | . * 10 | round / 10]' "$work/cell.$i" >>"$work/table"
    done
    jq -sc '{kind: "table", title: "Tokens per second", head: ["model", "transformers, dynamic cache", "static cache", "DeepSpeed (0: not installed)", "iterative", "paged", "bmc"], rows: .}' "$work/table"
    # a round's geometric mean over the cells
    means() { jq -sc --arg a "$1" --arg b "$2" '[.[].tok_s | [range(.[$a] | length) as $i | .[$a][$i] / .[$b][$i]]] | transpose | map(map(log) | add / length | exp)' "$work"/cell.*; }
    claim "bmc over transformers, dynamic cache" "$(means bmc dynamic)" 3.2 "" dynamic
    direction "bmc over transformers, static cache" "$(means bmc static)" 1 static
    case $caches in *deepspeed*) claim "bmc over DeepSpeed" "$(means bmc deepspeed)" 2.29 "" DeepSpeed ;; esac
    claim "bmc over paged (our policy, for vLLM)" "$(means bmc paged:16)" 1.36 "" paged
    direction "iterative (our policy) over transformers, dynamic cache" "$(means iterative dynamic)" 1 iterative
    note "Same weights and threads, alternating. vLLM has no build for CPUs on PyPI."
}

tab2() {
    if ! no_transformers; then
        rounds=$(turns 3 5)
        for cell in $(pick "1:128:32:0.99:1.59" "1:128:128:0.99:1.59 8:128:128:0.82:1.34 8:1024:64:0.50:1.68"); do
            IFS=: read -r b p n hf ours <<END
$cell
END
            transformers rates llama-3-8b "$(pick 1 2)" --batch "$b" --prompt "$p" --new "$n" --caches dynamic,paged:16,bmc
            claim "transformers over paged, $p + $n, B = $b" "$(faster rates dynamic paged:16)" "$hf" "" "HF $p+$n B $b"
            claim "bmc over paged, $p + $n, B = $b" "$(faster rates bmc paged:16)" "$ours" "" "bmc $p+$n B $b"
        done
        note "Llama-3-8B, $(pick 1 2) of 32 layers and the head; paged is our policy over the same kernels, in place of vLLM. Where B = 8 the paper has 32."
        return
    fi
    for cell in 1:0.99:1.59 $(pick "" "32:0.82:1.34"); do
        b=${cell%%:*} papers=${cell#*:}
        usecases rows 128:128 -- --shape llama-3-8b --layers "$(pick 1 4)" -np "$b" --kv paged:16,iterative,bmc -r "$rounds" --warmup 0 --profile none
        claim "iterative over paged, 128 + 128, B = $b" "$(over rows tok_s_end_to_end "$iterative" "$paged")" "${papers%:*}" "" "iterative B $b"
        claim "bmc over paged, 128 + 128, B = $b" "$(over rows tok_s_end_to_end "$bmc" "$paged")" "${papers#*:}" "" "bmc B $b"
    done
    if [ "$size" = full ]; then
        usecases rows 128:1920 1920:128 -- --shape llama-3-8b --layers 2 -np 8 --kv paged:16,iterative,bmc -r 3 --warmup 0 --profile none
        for case in 128:1920:0.42:1.44 1920:128:0.50:1.68; do
            p=${case%%:*} rest=${case#*:}
            for way in iterative bmc; do
                values=${rest#*:}
                claim "$way over paged, $p + ${rest%%:*}, B = 8" "$(over rows tok_s_end_to_end ".n_prompt == $p and (.policy | startswith(\"$way\"))" ".n_prompt == $p and ($paged)")" \
                    "$(if [ $way = bmc ]; then echo "${values#*:}"; else echo "${values%:*}"; fi)" "" "$way $p"
            done
        done
    fi
    note "Llama-3-8B, $(pick 1 "2 to 4") of 32 layers and the head; paged and iterative stand for vLLM and Hugging Face over the same kernels."
}

# Uneven lengths: quantiles of a log-normal distribution with GSM8K's mean lengths, 60 and 67 tokens.
tab3() {
    b=$(pick 8 32) layers=$(pick 2 4)
    if ! no_transformers; then
        jq -nr --argjson b "$b" '[range($b) | ((. + 0.5) / $b) | (. - 0.5) * 2.2] | .[] | "\(52 * (. * 0.45 | exp) | floor) \(56 * (-. * 0.6 | exp) | floor)"' >"$work/lengths"
        for row in opt-1.3b:3.02 $(pick "" "opt-2.7b:3.46 opt-6.7b:3.57"); do
            transformers rates "${row%:*}" "$layers" --lengths "$work/lengths" --caches dynamic,iterative,bmc
            claim "bmc over transformers, ${row%:*}" "$(faster rates bmc dynamic)" "${row#*:}" "" "${row%:*}"
            direction "bmc over iterative (our policy), ${row%:*}" "$(faster rates bmc iterative)" 1 "${row%:*}, iterative"
        done
        note "$layers layers, $b sequences of uneven lengths with GSM8K's means (paper: 32 sequences); transformers pads prompts and generates until the longest answer ends."
        return
    fi
    jq -nc --argjson b "$b" '[range($b) | ((. + 0.5) / $b) | (. - 0.5) * 2.2] | to_entries[] |
        {ids: [range(52 * (.value * 0.45 | exp) | floor) as $i | 40 + ($i * 7 + 3) % 250], n: (56 * (-.value * 0.6 | exp) | floor), temperature: 0}' >"$work/in"
    for row in opt-1.3b:3.02 $(pick "" "opt-2.7b:3.46 opt-6.7b:3.57"); do
        sed "s/^layers .*/layers $layers/" "models.d/shapes/${row%:*}.shape" >"$work/part.shape"
        bin/bmc-convert --synth "$work/part.shape" -o "$work/model.bmc" >"$work/error" 2>&1 || fail "$(tail -n 1 "$work/error")"
        for round in $(seq "$rounds"); do
            for kv in iterative bmc; do
                bin/bmc-gen -q -m "$work/model.bmc" --jsonl -np "$b" -t "$threads" --ignore-eos --profile none --kv $kv --stats "$work/$kv.$round" <"$work/in" >"$work/out" 2>"$work/error" || fail "$(tail -n 1 "$work/error")"
            done
        done
        claim "bmc over iterative, ${row%:*}" "$(jq -nc --slurpfile a "$work/iterative.1" '[inputs | .decode_ms + .sample_ms] | length as $n | [range($n / 2) as $i | .[$i] / .[$i + $n / 2]]' $(seq -f "$work/iterative.%g" "$rounds") $(seq -f "$work/bmc.%g" "$rounds"))" "${row#*:}" "" "${row%:*}"
        equal "logits_hash, ${row%:*}" "$(jq -sc 'map(.logits_hash)' "$work"/iterative.* "$work"/bmc.*)"
        rm "$work"/iterative.* "$work"/bmc.*
    done
    note "$layers layers, $b sequences of uneven lengths with GSM8K's means; the baseline is policy iterative, not Hugging Face."
}

# One core with the memory bandwidth of the machine.
tab6() {
    command -v taskset >/dev/null || skip "taskset is not installed"
    n=$(pick 256 1024) threads=1
    for row in opt-350m:8:1.55 opt-1.3b:8:2.25 $(pick "" "opt-2.7b:8:1.50 opt-6.7b:8:1.79 opt-350m:32:1.56 opt-1.3b:32:1.60 opt-2.7b:32:1.72 opt-6.7b:32:1.25"); do
        shape=${row%%:*} rest=${row#*:}
        taskset -c 0 bin/bmc-prof policies --shape "$shape" --layers 1 -N "$n" -np "${rest%:*}" --kv paged:16,bmc --attn blas --repeat "$rounds" --profile none -t 1 --format json >"$work/rows" 2>"$work/error" || fail "$(tail -n 1 "$work/error")"
        claim "paged over bmc, $shape, B = ${rest%:*}" "$(over rows total_ms "$paged" "$bmc")" "${rest#*:}" "" "$shape ${rest%:*}"
    done
    note "One core of $(nproc), attention of one layer, N = $n, OpenBLAS; the paper restricts 192 cores to 8."
}

fig16() {
    b=$(pick 4 8)
    prof rows bench --shape opt-2.7b -np "$b" -p 0 -d 240,2032 -n 16 -N 2048 --kv iterative,bmc -r "$(turns 2 5)" --warmup 0 --profile none
    for policy in iterative:4:7 bmc:1:2; do
        ends=${policy#*:} name=${policy%%:*}
        claim "time of token 2048 over token 256, $name" "$(over rows tok_s_end_to_end ".depth == 240 and (.policy | startswith(\"$name\"))" ".depth == 2032 and (.policy | startswith(\"$name\"))")" "${ends%:*}" "${ends#*:}" "$name"
    done
    note "The whole model in bf16, B = $b (paper: B = 32, 6 times and less than 2 times); means of 16 tokens."
}

# A primitive per token under iterative, one per growth step under bmc: SDPA of the first takes longer (section VIII-E).
jit() {
    n=$(pick 128 1024) b=$(pick 4 8)
    for round in $(seq "$(turns 3 5)"); do
        attention "round.$round" opt-2.7b "$n" "$b" iterative,bmc:T=8 --lockstep --attn onednn --repeat 1
    done
    ours="([.rows[] | select($iterative)][0]) as \$i | ([.rows[] | select($bmc)][0]) as \$b"
    direction "SDPA, iterative over bmc" "$(jq -sc "map($ours | \$i.sdpa_ms / \$b.sdpa_ms)" "$work"/round.*)" 1
    counted "primitives, iterative over bmc" "$(jq "$ours | \$i.primitives / \$b.primitives" "$work/round.1")" $((n / 8))
    note "OPT-2.7B, one layer, oneDNN, N = $n, B = $b as one tensor, T = 8; of iterative's SDPA, creating primitives took $(jq "$ours | \$i.primitive_ms / \$i.sdpa_ms * 100 | round" "$work/round.1") %. Our iterative allocates tiles of 16 entries, which oneDNN reads as strided tensors: primitives for these are created faster."
}

# oneDNN's products: the first 1536 entries of 2048, read in place, over a tensor of 1536.
h5() {
    make -s build/gcc/bench/eager_products
    for round in $(seq "$rounds"); do
        build/gcc/bench/eager_products $(pick 2 8) 16 1 64 3 >"$work/round.$round" || fail "oneDNN"
    done
    for product in scores values; do
        claim "$product, strided over contiguous" "$(awk -v p=$product '$1 == 1536 && $2 == p { print $6 }' "$work"/round.* | jq -sc .)" 3.01 14.4 "$product"
    done
    note "n = 1536 of N = 2048, OPT-350M's heads, B = $(pick 2 8), one thread."
}

# Attention with speculation by T: the medians of bmc-tune's own rounds, a run per round here.
spec() { # M PAPER
    n=$(pick 1024 4096)
    for round in $(seq "$(turns 3 5)"); do
        bin/bmc-tune --shape llama-2-7b -N "$n" --spec "k=26,m=$1" --attn blas --state cold --no-batch-knee --dry-run --rounds 3 --seconds "$(pick 5 60)" -t "$threads" --format json >"$work/round.$round" 2>"$work/error" || fail "$(tail -n 1 "$work/error")"
    done
    claim "best T over upfront, m = $1" "$(jq -sc 'map(.curve | (map(.measured_ms | select(.)) | min) / .[0].measured_ms)' "$work"/round.*)" "$2" "" "m = $1"
    jq -sc --argjson paper "$3" '(map(.curve | .[0].measured_ms as $one | map({T, y: (.measured_ms / $one)})) | add | group_by(.T) | map({T: .[0].T, y: (map(.y) | sort[length / 2 | floor]), lo: (map(.y) | min), hi: (map(.y) | max)})) as $c |
        {kind: "figure", title: "Attention with speculation, relative to T = 1", x_name: "T, allocations", y_name: "latency", log2_x: true,
         series: [{name: "paper", x: $paper[0], y: $paper[1]}, {name: "measured", x: ($c | map(.T)), y: ($c | map(.y)), lo: ($c | map(.lo)), hi: ($c | map(.hi))}]}' "$work"/round.*
    note "Llama-2-7B, one layer, N = $n (paper: 4096), k = 26."
}
tab1() { spec 4 0.45 '[[1, 2, 4, 8, 16, 128, 256, 512, 1024], [1, 0.56, 0.54, 0.45, 0.46, 0.47, 0.64, 0.83, 2.04]]'; form "accepted tokens are given, not drafted"; }
tab8() { spec 8 0.50 '[[1, 2, 4, 8, 16, 32, 64, 128, 256], [1, 0.65, 0.55, 0.509, 0.501, 0.503, 0.52, 0.57, 0.74]]'; form "on a CPU, with another model than the paper's"; }

fig14() {
    [ -e lib/bmc-mpi.so ] || skip "needs MPI: make deps-mpi mpi"
    ROUNDS=$(turns 1 3) SHAPES=$(pick opt-350m "opt-350m opt-1.3b") BATCHES=$(pick 32 "32 128") sh tests/bench/instances.sh 2>"$work/error" | markdown
    note "Two layers, 64 + 64 tokens; the baseline is policy iterative."
}

# Figures 12 and 13: speculation over models of random weights. policies TABLE OPTIONS..: samples in $work/samples
policies() {
    table=$1
    shift
    env "$@" SAMPLES="$work/samples" ROUNDS="$(turns 3 5)" sh tests/bench/spec_tables.sh "$table" >"$work/table" 2>"$work/error" || fail "$(tail -n 1 "$work/error")"
    grep '^|' "$work/table" | markdown
    sed -n '/^- /s/^- //p' "$work/table" | while IFS= read -r line; do note "$line"; done
}
# rates A B: samples of way A's tokens per second over way B's, all tasks together; 0 and 1 are regular decoding with
# iterative and bmc, 2 and 3 speculative decoding with them
rates() {
    jq -sc --argjson a "$1" --argjson b "$2" '[.[].ways] | transpose | map(transpose | map([(map(.[0]) | add), (map(.[1]) | add)] | .[0] / .[1])) as $x |
        [range($x[0] | length) | $x[$a][.] / $x[$b][.]]' "$work/samples"
}
fig12() {
    policies bmc-12 SCALE="$(pick 1/16 1/4)" N="$(pick 24 128)" REQUESTS="$(pick 1 2)"
    claim "speculation over regular decoding, both iterative" "$(rates 2 0)" 1.73 "" "by speculation"
    claim "speculation with bmc over regular decoding, iterative" "$(rates 3 0)" 1.90 "" "with BMC"
    direction "with speculation, bmc over iterative" "$(rates 3 2)" 1 "bmc over iterative"
    form "random weights, simulated acceptance; the EAGLE head keeps its layer, so its share of a step is larger than the paper's"
}
fig13() {
    policies bmc-13 SCALE=1/8 N="$(pick 32 256)" PROMPT="$(pick 64 160)"
    claim "with PARD, bmc over iterative" "$(rates 3 2)" 1.23 1.39 "bmc over iterative"
    direction "PARD over regular decoding, both bmc" "$(rates 3 1)" 1 "by speculation"
    form "random weights of one pair of shapes (the paper does not name its models), simulated acceptance"
}

"$entry"
