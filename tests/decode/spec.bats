# bmc-spec: the same ids as bmc-gen with every drafter, shape, policy and batch size; acceptance; samples; errors.
#
#   BMC_PART=I/N  with BMC_FULL=1: of the cartesian products, every Nth case from case I on
load ../helper

setup_file() {
    for name in grimm grimm-draft andersen andersen-draft llama-3-like; do model "$name" >/dev/null; done
    export BMC_SEED=${BMC_SEED:-$((($(date +%s%N) / 1000) % 32768))}
}

# The draft model of a model.
draft() { model "$1-draft"; }

# A default model with the comma as its end token.
model_with_end() { # MODEL
    if [ ! -e "$1-end.bmc" ]; then
        mkdir "$1-end" && ln -s "$(folder "$1")"/* "$1-end/" && rm -f "$1-end/config.json" "$1-end/generation_config.json" || return 1
        jq --argjson id "$(bmc-gen -q -m "$(model "$1")" --tokenize -p "," --format json | jq '.rows[-1].id')" '.eos_token_id = $id' \
            "$(folder "$1")/config.json" >"$1-end/config.json" && bmc-convert "$1-end" -o "$1-end.bmc" || return 1
    fi
    echo "$1-end.bmc"
}

# Writes requests for a context of 80 to MODEL.in, and to MODEL.want what bmc-gen gives for each alone, which begins with the
# reference's ids: all reference prompts with several lengths, a stop string within a step, answers that fill the context, and
# prompts that leave room for 0, 1 or 2 tokens.
requests() { # MODEL
    local model=${2:-$(model "$1")}
    jq -c '.cases as $c | ($c | map(.greedy_ids) | add) as $ids |
        (range(8) as $i | {id: $i, prompt: $c[$i % 4].prompt, n: (8 + $i * 11 % 33)}),
        ({id: 8, prompt: $c[0].prompt, n: 60, stop: ["the k", "little old w"]}, {id: 9, prompt: $c[1].prompt, n: -1},
        {id: 10, ids: $ids[:80]}, {id: 11, ids: $ids[:79], n: 9}, {id: 12, ids: $ids[:78]}, {id: 13, prompt: $c[2].prompt, n: -1, stop: ["xyz", "s"]})' \
        "$(reference "$1")" >"$1.in"
    bmc-gen --no-spec -q -m "$model" --jsonl -c 80 -b 1 --stats "$1.plain.json" <"$1.in" | jq -c '[.id, .ids, .finish]' >"$1.want"
    [ "$(wc -l <"$1.want")" -eq 14 ] || fail "$(cat "$1.want")"
}

# Without an end token, requests with a token limit have the reference's ids.
check_requests() { # MODEL
    jq -c '.cases as $c | range(8) as $i | [$i, $c[$i % 4].greedy_ids[:8 + $i * 11 % 33], "length"]' "$(reference "$1")" >reference.want
    head -n 8 "$1.want" | cmp -s - reference.want || fail "$1: $(head -n 8 "$1.want" | diff - reference.want)"
    assert_equal "$(jq -sc 'map(.[2]) | group_by(.) | map([.[0], length])' "$1.want")" '[["length",12],["stop",2]]'
    # One ended within a step, one filled the context.
    jq -se '(.[8][1] | length < 60) and (.[9][1] | length > 60) and .[10][1] == [] and (.[11][1] | length == 1) and (.[12][1] | length == 2)' "$1.want" >/dev/null ||
        fail "$(cat "$1.want")"
}

# check MODEL KV BATCH OPTION..: compares ids and the hash of the logits.
check() {
    local name=$1 kv=$2 batch=$3
    shift 3
    bmc-spec -q -m "$(model "$name")" --jsonl -c 80 --kv "$kv" -b "$batch" --always --stats stats.json "$@" <"$name.in" >out 2>err ||
        fail "$name $kv $batch $*: $(cat err)"
    [ ! -s err ] || fail "$name $kv $batch $*: $(cat err)"
    jq -c '[.id, .ids, .finish]' out >got
    cmp -s got "$name.want" || fail "$name $kv $batch $*: $(diff got "$name.want")"
    jq -e --slurpfile plain "$name.plain.json" '.drafted >= .accepted and .steps <= .sampled_tokens and .N == 80 and
        .logits_hash == $plain[0].logits_hash' stats.json >/dev/null || fail "$name $kv $batch $*: $(cat stats.json)"
}

# chosen STRIDE: true if this case of a product is to be run: all, a part, or every STRIDEth from a random start.
chosen() { # ONE-IN
    turn=$((turn + 1))
    if [ "$BMC_FULL" = 1 ]; then
        [ -z "$BMC_PART" ] || [ $((turn % ${BMC_PART#*/})) -eq $((${BMC_PART%/*} % ${BMC_PART#*/})) ]
    else
        [ $(((turn + BMC_SEED) % $1)) -eq 0 ]
    fi
}

kvs=(iterative upfront bmc:T=4 bmc:r=16 reserve paged:16 segment)

# Values of --ragged that a policy supports: padding needs a cache that is one tensor.
ways() { # KV
    case $1 in reserve | paged* | segment) echo one split ;; *) echo one split pad ;; esac
}

@test "every drafter, shape, policy, batch and thread count gives the ids and the logits of bmc-gen" {
    for name in grimm andersen; do
        requests $name
        check_requests $name
    done
    echo "# BMC_SEED=$BMC_SEED" >&3
    local turn=0 ran=0 k drafter name kv batch threads way
    for k in 1 2 4 8 26; do
        for drafter in "-d DRAFT -k $k" "-d DRAFT --tree $k" "--lookup -k $k" "--lookup --lookup-oldest -k $k" "--recycle --tree $k" "--recycle -k $k" \
            "--suffix -k $k" "--suffix --tree $k" "--suffix -d DRAFT --tree $k" "--lookup -d DRAFT -k $k"; do
            for name in grimm andersen; do
                for kv in "${kvs[@]}"; do
                    for batch in 1 3 8; do
                        for threads in 1 2; do
                            # An odd stride that divides none of the sizes above: the subset has every value of each.
                            chosen 613 || continue
                            way=$(ways "$kv" | cut -d ' ' -f $((turn / 2 % $(ways "$kv" | wc -w) + 1)))
                            ran=$((ran + 1))
                            # shellcheck disable=SC2046,SC2086 # words
                            check $name "$kv" $batch ${drafter/DRAFT/$(draft $name)} --ragged "$way" -t $threads
                        done
                    done
                done
            done
        done
    done
    echo "# $ran of $turn cases" >&3
    [ $ran -ge 6 ]
}

@test "answers that end with an end token" {
    echo "# BMC_SEED=$BMC_SEED" >&3
    local turn=0 ran=0 end name kv batch drafter way
    for name in grimm andersen; do
        end=$(model_with_end $name)
        requests $name "$end"
        # They end within steps, at different lengths.
        jq -se 'map(select(.[2] == "eos") | .[1] | length) | length >= 3 and (unique | length >= 2)' $name.want >/dev/null || fail "$(cat $name.want)"
        for drafter in "-d DRAFT -k 8" "-d DRAFT --tree 26" "--lookup -k 4" "--recycle --tree 8" "--suffix -k 8" "--suffix -d DRAFT -k 4"; do
            for kv in "${kvs[@]}"; do
                for batch in 1 3 8; do
                    chosen 23 || continue
                    ran=$((ran + 1))
                    way=$(ways "$kv" | cut -d ' ' -f $((turn / 2 % $(ways "$kv" | wc -w) + 1)))
                    # shellcheck disable=SC2086 # words
                    check $name "$kv" $batch ${drafter/DRAFT/$(draft $name)} --ragged "$way" -t $((1 + turn % 2)) -m "$end"
                done
            done
        done
    done
    [ $ran -ge 7 ]
}

@test "adaptive lengths, pauses, --tree auto and padded batches give the same ids" {
    requests grimm
    local d
    d=$(draft grimm)
    check grimm bmc 3 -d "$d"
    check grimm bmc 8 -d "$d" --ragged pad -k 3
    check grimm upfront 3 -d "$d" --ragged pad --tree 9
    check grimm bmc 3 -d "$d" -cd 32
    check grimm bmc 1 -d "$d" -k 0
    assert_equal "$(jq -c '[.tokens_per_step, .drafted]' stats.json)" '[1,0]'
    bmc-spec -q -m "$(model grimm)" -d "$d" --jsonl -c 80 <grimm.in >out
    assert_equal "$(jq -c '[.id, .ids, .finish]' out)" "$(cat grimm.want)"
    bmc-spec -m "$(model grimm)" -d "$d" --tree auto --jsonl -c 80 -b 2 -t 1 <grimm.in >out 2>err
    assert_equal "$(jq -c '[.id, .ids, .finish]' out)" "$(cat grimm.want)"
    grep -qE '^bmc-spec: --tree auto: (no drafting|a chain of [0-9]+|a tree of [0-9]+): .*gains.*the best tree' err || fail "$(cat err)"
}

@test "prompts that leave 0, 1, 2 or 4 positions of the context, with -n 0, 1, 2" {
    local turn=0 rows n drafter
    local drafters=("-d $(draft grimm) -k 8" "-d $(draft grimm) --tree 8" "--lookup" "--recycle" "--suffix")
    jq -nc '(64, 63, 62, 60) as $rows | (-1, 0, 1, 2) as $n | {ids: [range($rows) | 100 + .], n: $n}' >in
    bmc-gen --no-spec -q -m "$(model grimm)" -c 64 --jsonl -b 1 -f in | jq -c '[.ids, .finish]' >want
    assert_equal "$(jq -sc 'map(.[0] | length)' want)" '[0,0,0,0,1,0,1,1,2,0,1,2,4,0,1,2]'
    for drafter in "${drafters[@]}"; do
        # shellcheck disable=SC2086 # words
        ok bmc-spec -q -m "$(model grimm)" -c 64 --jsonl -b 1 -f in --always $drafter
        assert_equal "$drafter: $(jq -c '[.ids, .finish]' <<<"$output")" "$drafter: $(cat want)"
    done
    # A single sequence, each with one of the drafters.
    while read -r rows n; do
        drafter=${drafters[(turn++ + BMC_SEED) % ${#drafters[@]}]}
        # shellcheck disable=SC2086 # words
        ok_cut bmc-spec -q -m "$(model grimm)" -c 64 --prompt-ids "$(seq -s ' ' 100 $((99 + rows)))" --ids -n "$n" --always $drafter
        assert_equal "$drafter: $output" "$drafter: $(sed -n ${turn}p want | jq -r '.[0] | map(tostring) | join(" ")')"
    done < <(jq -r '"\(.ids | length) \(.n)"' in)
    assert_equal "$turn" 16
}

@test "small contexts of target and draft model limit the drafts" {
    local c way
    for c in 1 2 3 5 10; do
        bmc-gen --no-spec -q -m "$(model grimm)" -c $c --prompt-ids 675 --ids >want 2>/dev/null
        for way in "-d $(draft grimm)" "-d $(draft grimm) --tree auto" "--lookup" "--recycle" "--recycle --tree auto" "--suffix --tree auto" "--suffix -d $(draft grimm)"; do
            # Shapes are planned from measured times, which takes ten times as long as the rest.
            [[ $way != *auto ]] || sampled 3 || continue
            # shellcheck disable=SC2086 # words
            ok_cut bmc-spec -q -m "$(model grimm)" -c $c --prompt-ids 675 --ids --always $way
            assert_output "$(cat want)"
        done
    done
    bmc-gen --no-spec -q -m "$(model grimm)" -p "Once upon a time" -n 40 >want
    for c in 1 2 3 4 9 17; do
        for way in "" "--tree auto"; do
            [ $c -lt 4 ] || [ -z "$way" ] || sampled 3 || continue
            # shellcheck disable=SC2086 # words
            ok bmc-spec -q -m "$(model grimm)" -d "$(draft grimm)" -cd $c -p "Once upon a time" -n 40 --always $way --stats stats.json
            assert_output "$(cat want)"
            jq -e --argjson c $c '.k <= ([$c - 2, 0] | max) and (($c < 3) == (.drafted == 0) or .speculation == "off")' stats.json >/dev/null || fail "$c: $(cat stats.json)"
        done
    done
}

@test "statistics equal those of a simulation with bmc-gen" {
    local begun=${EPOCHREALTIME/[.,]/} took
    ok bmc-spec -q -m "$(model grimm)" -d "$(draft grimm)" -p "Once upon a time" -n 40 -k 3 --always --ids --stats stats.json
    took=$((${EPOCHREALTIME/[.,]/} - begun))
    # The simulation: what the draft model generates after every prefix, and how much of it equals the target's text.
    local text=($output) at=1 steps=0 drafted=0 history= accepted=(0 0 0) offered=(0 0 0) prompt draft k i
    prompt=$(bmc-gen -q -m "$(model grimm)" --tokenize -p "Once upon a time" --format json | jq -r '[.rows[].id] | join(" ")')
    while [ $at -lt 40 ]; do
        k=$((40 - at - 1 < 3 ? 40 - at - 1 : 3))
        draft=()
        [ $k -eq 0 ] || read -ra draft < <(bmc-gen --no-spec -q -m "$(draft grimm)" --prompt-ids "$prompt ${text[*]:0:at}" --ids --ignore-eos -n $k)
        steps=$((steps + 1)) drafted=$((drafted + k)) history+="$k,"
        for ((i = 0; i < k; i++)); do offered[i]=$((offered[i] + 1)); done
        for ((i = 0; i < k; i++)); do
            [ "${draft[i]}" = "${text[at + i]}" ] || break
            accepted[i]=$((accepted[i] + 1))
        done
        at=$((at + i + 1))
    done
    assert_equal "$(jq -c '[.steps, .drafted, .accepted, .decode_steps, .decode_tokens, .draft_length_history]' stats.json)" \
        "[$steps,$drafted,$((accepted[0] + accepted[1] + accepted[2])),$steps,39,[${history%,}]]"
    jq -e --argjson steps $steps '(.tokens_per_step * $steps * 1000 | round) == 39000' stats.json >/dev/null || fail "$(cat stats.json)"
    for i in 0 1 2; do
        assert_equal "$(jq ".acceptance_by_position[$i] * ${offered[i]} | round" stats.json)" ${accepted[i]}
    done
    # With one sequence the latencies of the first, the last and all are the same.
    jq -e '.first_ptl_ms == .last_ptl_ms and .first_ptl_ms == .all_ptl_ms and
        .first_ptl_ms * 39 > .verify_ms and .first_ptl_ms * 39 < $took / 1000' --argjson took $took stats.json >/dev/null || fail "$took: $(cat stats.json)"
    # With several the first is shorter than the last, and the mean is between them.
    printf '{"prompt":"Once upon a time","n":%d}\n' 30 3 12 >in
    ok bmc-spec -q -m "$(model grimm)" -d "$(draft grimm)" --jsonl -f in -b 3 -k 2 --always --stats stats.json
    jq -e '.first_ptl_ms < .last_ptl_ms and .first_ptl_ms < .all_ptl_ms and .all_ptl_ms < .last_ptl_ms and
        .steps > .decode_steps and (.draft_length_history | length) == .decode_steps and .decode_tokens == 42' stats.json >/dev/null || fail "$(cat stats.json)"
}

@test "stop strings and end tokens within a step" {
    want=$(bmc-gen -q -p "Once upon a time" -n 200 -m "$(model grimm)" --stop "king")
    ok bmc-spec -q -p "Once upon a time" -n 200 -m "$(model grimm)" -d "$(draft grimm)" -k 8 --always --stop "king"
    assert_output "$want"
    # A model with several end tokens.
    echo '{"ids": [1,2,3,4,5], "n": 60}' >in
    bmc-gen --no-spec -q -m "$(model llama-3-like)" --jsonl -f in >want
    ok bmc-spec -q -m "$(model llama-3-like)" -d "$(model llama-3-like)" -k 4 --always --jsonl -f in
    assert_output "$(cat want)"
}

@test "a model as its own draft model has all draft tokens accepted" {
    ok bmc-spec -q -m "$(model grimm)" -d "$(model grimm)" -k 4 --always -p "Once upon a time" -n 51 --stats stats.json
    jq -e '.accepted == .drafted and .tokens_per_step == 5 and .decode_steps == 10 and
        .acceptance_by_position == [1.0, 1.0, 1.0, 1.0] and .draft_length_history == [range(10) | 4]' stats.json >/dev/null || fail "$(cat stats.json)"
    # Algorithm 1 of BASS adds two draft tokens per step, up to the limit.
    ok bmc-spec -q -m "$(model grimm)" -d "$(model grimm)" -k bass --batch-knee 16 --always -p "Once upon a time" -n 80 --stats stats.json
    assert_equal "$(jq -c '.draft_length_history[:6]' stats.json)" '[7,9,11,13,15,15]'
    # Without --batch-knee a single sequence has the paper's limit; upfront has enough free entries.
    ok bmc-spec -q -m "$(model grimm)" -d "$(model grimm)" -k bass --profile none --kv upfront -c 500 --always -p "Once upon a time" -n 400 --ignore-eos --stats stats.json
    assert_equal "$(jq -c '[.k, .draft_length_history[:15]]' stats.json)" '[32,[7,9,11,13,15,17,19,21,23,25,27,29,31,32,32]]'
    # Another increment implies this rule.
    ok bmc-spec -q -m "$(model grimm)" -d "$(model grimm)" --length-step 3 --always -p "Once upon a time" -n 80 --stats stats.json
    assert_equal "$(jq -c '.draft_length_history[:4]' stats.json)" '[7,10,13,16]'
    # By measured times: from the same first length, at most twice the longest so far, to the limit of 32.
    ok bmc-spec -q -m "$(model grimm)" -d "$(model grimm)" --profile none --always -p "Once upon a time" -n 400 --ignore-eos --stats stats.json
    jq -e '.k == 32 and .draft_length_history[0] == 7 and .draft_length_history[1] <= 15 and (.draft_length_history | max <= 32)' stats.json
}

@test "a draft that needs more than the padding makes the cache grow earlier, within what the sequence needs" {
    # The prompt leaves 3 of 16 entries: room for the newest token and 2 draft tokens, but the sequence goes on.
    ids=$(seq -s ' ' 100 112)
    ok bmc-spec -q -m "$(model grimm)" -d "$(model grimm)" -k bass --profile none --kv bmc:r=16 -c 256 --always --prompt-ids "$ids" -n 40 --ignore-eos --stats stats.json
    assert_equal "$(jq -c '.draft_length_history[:3]' stats.json)" '[7,9,11]'
    # A tree of 9 does not fit the 3 entries, of a sequence of 16 entries as a whole.
    ok bmc-spec -q -m "$(model grimm)" -d "$(draft grimm)" --tree 9 --profile none --kv bmc:r=16 -c 256 --always --prompt-ids "$ids" -n 4 --ignore-eos --stats stats.json
    jq -e '.draft_length_history[0] == 2 and .kv_allocations == 1' stats.json >/dev/null || fail "$(cat stats.json)"
}

@test "mean accepted length above two with eight draft tokens" {
    jq -c '.cases[] | {prompt, n: 64}' "$(reference grimm)" >in
    ok bmc-spec -q -m "$(model grimm)" -d "$(draft grimm)" -k 8 --always --jsonl -f in --ignore-eos --stats stats.json
    echo "# tokens per step: grimm $(jq .tokens_per_step stats.json)" >&3
    jq -e '.tokens_per_step > 2' stats.json >/dev/null || fail "$(cat stats.json)"
}

@test "combined drafters use both, and accept more than each alone" {
    local way accepted=()
    for way in --suffix "-d $(draft grimm)" "--suffix -d $(draft grimm)"; do
        # shellcheck disable=SC2086 # words
        ok bmc-spec -q -m "$(model grimm)" $way -p "The king said" -n 300 -k 8 --always --ignore-eos --stats stats.json
        accepted+=("$(jq .tokens_per_step stats.json)")
    done
    assert_equal "$(jq -r .drafter stats.json)" suffix+model
    echo "# tokens per step: suffix ${accepted[0]}, model ${accepted[1]}, both ${accepted[2]}" >&3
    jq -ne --argjson x "[$(IFS=,; echo "${accepted[*]}")]" '$x[2] > $x[0] and $x[2] > $x[1]'
}

@test "suffix decoding learns from finished requests, from those of the batch and from a corpus" {
    local batch
    bmc-gen --no-spec -q -m "$(model grimm)" -p "Once upon a time" -n 60 >text
    printf '{"prompt":"Once upon a time","n":60}\n' >once
    cat once once once once >four
    ok bmc-spec -q -m "$(model grimm)" --suffix -k 8 --always --jsonl -f once --stats alone.json
    # The first request learns nothing from the others, each later one is predicted by those before.
    for batch in 1 2; do
        ok bmc-spec -q -m "$(model grimm)" --suffix -k 8 --always --jsonl -f four -np $batch --stats stats.json
        assert_equal "$(jq -sc 'map(.ids) | unique | length' <<<"$output")" 1
        jq -e --slurpfile alone alone.json '.tokens_per_step > 1.5 * $alone[0].tokens_per_step' stats.json || fail "$(cat alone.json stats.json)"
    done
    # A pool of a few blocks forgets the requests before.
    ok bmc-spec -q -m "$(model grimm)" --suffix -k 8 --always --jsonl -f four -np 1 --suffix-pool 64 --stats small.json
    jq -e --slurpfile alone alone.json '.tokens_per_step < 1.5 * $alone[0].tokens_per_step' small.json || fail "$(cat small.json)"
    # With its own text as corpus nearly all draft tokens are accepted.
    ok bmc-spec -q -m "$(model grimm)" --suffix --lookup-corpus text -k 8 --always --jsonl -f once --stats corpus.json
    jq -e '.tokens_per_step > 4' corpus.json || fail "$(cat corpus.json)"
}

@test "--lookup-corpus: files that are no text" {
    local args=(-q -m "$(model grimm)" --suffix -p "The king" -n 2)
    : >empty
    printf 'a\0b' >binary
    printf 'The \xff king' >latin
    truncate -s $((16 * 1024 * 1024 + 1)) large
    mkdir folder
    printf '\n' >line
    expect_error 1 'empty: is empty; --lookup-corpus needs a text file' bmc-spec "${args[@]}" --lookup-corpus empty
    expect_error 1 'binary: is not text: byte 2 is 0' bmc-spec "${args[@]}" --lookup-corpus binary
    expect_error 1 'latin: .*UTF-8' bmc-spec "${args[@]}" --lookup-corpus latin
    expect_error 1 'large: has 16777217 bytes; --lookup-corpus takes up to 16 MiB' bmc-spec "${args[@]}" --lookup-corpus large
    expect_error 1 'folder' bmc-spec "${args[@]}" --lookup-corpus folder
    expect_error 1 'nowhere' bmc-spec "${args[@]}" --lookup-corpus nowhere
    ok bmc-spec "${args[@]}" --lookup-corpus line
    assert_output "$(bmc-gen --no-spec -q -m "$(model grimm)" -p "The king" -n 2)"
}

@test "draft tokens cause no more reallocations of the cache than plain decoding" {
    for kv in bmc:r=16 bmc:T=4; do
        ok bmc-gen --no-spec -q -m "$(model grimm)" -p "Once upon a time" -c 256 -n 80 --kv $kv --stats plain.json
        jq -e '.kv_allocations > 1' plain.json >/dev/null || fail "$kv: $(cat plain.json)"
        for shape in "-k 26" "--tree 26"; do
            # shellcheck disable=SC2086 # words
            ok bmc-spec -q -m "$(model grimm)" -d "$(draft grimm)" -p "Once upon a time" -c 256 -n 80 --kv $kv $shape --always --stats stats.json
            jq -e --slurpfile plain plain.json '.kv_allocations <= $plain[0].kv_allocations' stats.json >/dev/null || fail "$kv $shape: $(cat plain.json stats.json)"
        done
    done
}

@test "--record-acceptance writes a file that --tree reads" {
    local args=(-q -m "$(model grimm)" -d "$(draft grimm)" -p "Once upon a time" -n 60) file
    export XDG_CONFIG_HOME=$PWD/config
    ok bmc-spec "${args[@]}" --record-acceptance
    file=$(echo "$XDG_CONFIG_HOME"/bmc/acceptance-*-greedy)
    # Acceptance rates by rank, from steps that gave one or two tokens each.
    awk '$1 == "steps" { steps = $2 } $1 == "accept" { for (i = 2; i <= NF; i++) sum += $i; n = NF - 1 }
        END { exit !(steps >= 25 && n >= 1 && n <= 16 && sum > 0.3 && sum <= 1.0001) }' "$file" || fail "$(cat "$file")"
    ok bmc-spec "${args[@]}" --tree 12
    # The rates decide the shape: with one rank it is a chain.
    sed 's/^accept.*/accept 0.9/' "$file" >chain
    ok bmc-spec "${args[@]}" --tree 12 --acceptance chain --always --stats stats.json
    assert_equal "$(jq '[.steps, .drafted] | .[1] / .[0] | . <= 12' stats.json)" true
    for wrong in 'accept' 'accept 0.9 0.9' 'accept x' ''; do
        sed "s/^accept.*/$wrong/" "$file" >bad
        expect_error 1 'bad: .*(accept|recorded)' bmc-spec "${args[@]}" --tree 12 --acceptance bad
    done
    for wrong in nan inf -1 1e308 1.5 '0.5,0.5' "$(yes 0 | head -n 33 | tr '\n' ' ')" "$(printf '%0100d' 0)"; do
        sed "s/^accept.*/accept $wrong/" "$file" >bad
        expect_error 1 'bad: .*sum of at most 1' bmc-spec "${args[@]}" --tree 256 --acceptance bad
    done
    plain=$(bmc-gen --no-spec -q -m "$(model grimm)" -p "Once upon a time" -n 12 --ids)
    for strange in '0 0 0' '1e-320 0' '1' '0 1' "$(yes 0.03 | head -n 32 | tr '\n' ' ')"; do
        sed "s/^accept.*/accept $strange/" "$file" >strange
        ok bmc-spec "${args[@]}" -n 12 --tree 256 --acceptance strange --always --ids
        assert_output "$plain"
    done
    sed 's/^target .*/target 00/' "$file" >bad
    expect_error 1 'another model' bmc-spec "${args[@]}" --tree 12 --acceptance bad
    sed 's/^draft .*/draft 00/' "$file" >bad
    expect_error 1 'another drafter' bmc-spec "${args[@]}" --tree 12 --acceptance bad
    expect_error 1 'another drafter' bmc-spec -q -m "$(model grimm)" --recycle -p x --acceptance "$file"
    # A path that cannot be written is an error before the run, not after it.
    expect_error 1 '/proc/x/y: ' bmc-spec "${args[@]}" --record-acceptance --acceptance /proc/x/y
    XDG_CONFIG_HOME=/$(printf '%09000d' 0) expect_error 1 'no folder.*--acceptance' bmc-spec "${args[@]}" --record-acceptance
    XDG_CONFIG_HOME=/$(printf '%09000d' 0) ok bmc-spec "${args[@]}" --tree 12
    expect_error 1 'nowhere' bmc-spec "${args[@]}" --tree 12 --acceptance nowhere
}

@test "snapshots: bmc-spec continues those of bmc-gen and its own, with the same logits, and saves for both" {
    local way first whole turn=0 kv
    ok bmc-gen --no-spec -q -m "$(model grimm)" -p "Once upon a time" -n 60 --ids --stats whole.json
    whole=$output
    for way in "-d $(draft grimm) -k 5" "-d $(draft grimm) --tree 12" --lookup --recycle "--suffix -d $(draft grimm)"; do
        for first in bmc-gen "bmc-spec --always $way"; do
            # shellcheck disable=SC2086 # words
            {
                ok $first -q -m "$(model grimm)" -p "Once upon a time" -n 31 --save-kv a.kv
                kv=${kvs[turn++ % ${#kvs[@]}]}
                ok bmc-spec -q -m "$(model grimm)" $way --always --load-kv a.kv -n 10 --save-kv a.kv --kv $kv
                ok bmc-convert --verify a.kv
                ok bmc-spec -q -m "$(model grimm)" $way --always --load-kv a.kv -n 19 --ids --stats end.json --kv $kv
            }
            assert_equal "$output" "$(cut -d ' ' -f 42-60 <<<"$whole")"
            assert_equal "$(jq .logits_hash end.json)" "$(jq .logits_hash whole.json)"
        done
    done
}

@test "snapshots: one that fills its capacity and the context" {
    local kv c way turn=0
    for kv in "${kvs[@]}"; do
        bmc-gen --no-spec -q -m "$(model grimm)" -c 64 --prompt-ids "$(seq -s ' ' 100 159)" --kv $kv --save-kv full.kv >/dev/null
        for c in 64 65 66 80; do
            bmc-gen --no-spec -q -m "$(model grimm)" -c $c --kv $kv --load-kv full.kv --ids >want 2>/dev/null
            # Each drafter runs with every policy and context over several runs, one of the three at a time.
            for way in "-d $(draft grimm) -k 8" "-d $(draft grimm) --tree 12" --recycle; do
                turn=$((turn + 1))
                [ "$BMC_FULL" = 1 ] || [ $(((turn + (turn - 1) / 12 + BMC_SEED) % 3)) -eq 0 ] || continue
                # shellcheck disable=SC2086 # words
                ok_cut bmc-spec -q -m "$(model grimm)" -c $c --kv $kv --load-kv full.kv --ids --always $way
                assert_output "$(cat want)"
            done
        done
    done
}

@test "snapshots: several answers to one prompt, lines of a batch, another model" {
    ok bmc-gen --no-spec -q -m "$(model grimm)" -p "Once upon a time there was" -n 3 --save-kv a.kv
    ok bmc-spec -q -m "$(model grimm)" -d "$(draft grimm)" --load-kv a.kv -p " king" -n 8 --samples 3
    [ "$(jq -s 'map(.text) | unique | length' <<<"$output")" -gt 1 ]
    printf '{"id":1,"prompt":"The king","n":9}\n{"id":2,"prompt":"In the wood","n":12}\n' >in
    ok bmc-gen --no-spec -q -m "$(model grimm)" --jsonl -f in --save-kv b.kv
    printf '{"id":2,"n":11}\n{"id":1,"prompt":" said","n":7}\n' >more
    ok bmc-gen --no-spec -q -m "$(model grimm)" --jsonl -f more --load-kv b.kv
    local plain=$output
    ok bmc-spec -q -m "$(model grimm)" -d "$(draft grimm)" --jsonl -f more --load-kv b.kv
    assert_equal "$output" "$plain"
    expect_error 1 'model' bmc-spec -q -m "$(model llama-3-like)" --lookup --load-kv a.kv -n 1
    expect_error 2 'samples excludes' bmc-spec -m "$(model grimm)" --lookup --samples 2 --load-kv a.kv --save-kv c.kv
}

@test "--samples: ranked, reproducible for a seed, within a time budget" {
    local args=(-q -m "$(model grimm)" -d "$(draft grimm)" -p "Once upon a time" --samples 5 -n 12 --always -k 3)
    ok bmc-spec "${args[@]}"
    jq -se 'length == 5 and ([.[].rank] == [1, 2, 3, 4, 5]) and ([.[].mean_logprob] | . == (sort | reverse)) and
        ([.[].sample] | sort == [0, 1, 2, 3, 4]) and ([.[].text] | unique | length > 1) and all(.[]; .ids | length == 12)' <<<"$output" >/dev/null ||
        fail "$output"
    want=$output
    ok bmc-spec "${args[@]}"
    assert_output "$want"
    # The prompt is computed once: the other samples fork it and compute its last token.
    ok bmc-spec "${args[@]}" --stats stats.json
    jq -e '.prefill_tokens == 4 + 4' stats.json >/dev/null || fail "$(cat stats.json)"
    # An interrupted run prints nothing: the signal says it all.
    run --separate-stderr timeout -s INT 0.5 "$BMC_BIN/bmc-spec" -q -m "$(model grimm)" -d "$(draft grimm)" -p "Once upon a time" --samples 500 -n 900 --ignore-eos
    assert_equal "$status $output $stderr" "124  "
    expect_error 1 'none of 5 answers.*budget' bmc-spec "${args[@]}" --budget 0.001ms -n 500
    expect_error 2 'budget.*above 0' bmc-spec "${args[@]}" --budget 0s
    expect_error 2 'budget.*2.5s' bmc-spec "${args[@]}" --budget soon
    expect_error 2 'samples' bmc-spec "${args[@]}" --temp 0
    expect_error 1 'id 4000000 is outside' bmc-spec -q -m "$(model grimm)" -d "$(draft grimm)" --prompt-ids 4000000 --samples 2 -n 1
}

@test "draft models with another vocabulary: text between both, the output of plain decoding" {
    # andersen has BOS and another byte-level vocabulary than grimm; llama-3-like and llama-2-like (SentencePiece, a blank in front of
    # texts) draft nothing sensible.
    jq -nc '"Once upon a time there was a king who", "The wolf said to the little", "Il était une fois – ☃", "x" | {prompt: ., n: 40}' >in
    for target in grimm andersen; do
        for options in '--temp 0' '--temp 0.8 --seed 3'; do
            # shellcheck disable=SC2086
            bmc-gen -q -m "$(model $target)" --jsonl --ignore-eos $options -np 2 <in | jq -c '[.id, .ids]' >want
            for draft in grimm-draft andersen-draft llama-3-like llama-2-like; do
                [ "${draft%-draft}" != $target ] || continue
                sampled 2 || [ "$draft $options" = "grimm-draft --temp 0" ] || continue
                # shellcheck disable=SC2086
                bmc-spec -q -m "$(model $target)" -d "$(model $draft)" --jsonl --ignore-eos --always $options -k 5 -np 2 --stats stats.json <in 2>err | jq -c '[.id, .ids]' >have
                cmp want have || fail "$target $draft $options: $(diff want have)"
                [ "$(jq .drafted stats.json)" -ge 60 ] || fail "$target $draft $options: $(jq -c '[.accepted, .drafted]' stats.json)"
                [ "$draft $options" != 'grimm-draft --temp 0' ] || [ "$(jq .accepted stats.json)" -ge 15 ] || fail "$(jq -c '[.accepted, .drafted]' stats.json)"
            done
        done
    done
}

@test "draft models with another vocabulary continue long texts without a blank" {
    # 2,174 bytes, of which the first 2,048 are encoded once
    text="x$(for ((i = 0; i < 136; i++)); do printf littlechildrené; done)"
    bmc-gen -q -m "$(model grimm)" -p "$text" -n 20 --ignore-eos --ids >want
    bmc-spec -q -m "$(model grimm)" -d "$(model andersen-draft)" -p "$text" -n 20 --ignore-eos --ids --always -k 5 --stats stats.json >have 2>err
    cmp want have
    [ "$(jq .drafted stats.json)" -ge 15 ] || fail "$(cat stats.json err)"
}

@test "a bad line of a batch does not affect the others" {
    printf '%s\n' '{"id":1,"prompt":"Once","n":5}' '' '{"id":3' '{"id":4,"prompt":"The king","n":5}' '{"ids":[99999]}' >in
    some_fail 2 4 bmc-spec -q -m "$(model grimm)" -d "$(draft grimm)" --jsonl -f in
    assert_equal "$(jq -sc '[.[].finish]' <<<"$output")" '["length","error","length","error"]'
    jq -se '(.[1].error | startswith("line 3: ")) and (.[3].error | startswith("line 5: "))' <<<"$output" >/dev/null ||
        fail "$output"
}

@test "error messages" {
    local g d
    g=$(model grimm) d=$(draft grimm)
    # The message names the difference: here whether a token is special.
    cp -r "$(folder grimm-draft)" plain
    rm -f plain/special_tokens_map.json plain/tokenizer_config.json
    jq '.added_tokens |= map(if .content == "</s>" then .special = false else . end)' "$(folder grimm-draft)/tokenizer.json" >tokenizer.json
    mv tokenizer.json plain/tokenizer.json
    bmc-convert plain -o plain.bmc
    id=$(jq '.added_tokens[] | select(.content == "</s>").id' plain/tokenizer.json)
    "$BMC_BIN/bmc-spec" -m "$g" -d plain.bmc -p x -n 4 2>err >out
    grep -q "plain.bmc has another vocabulary: id $id, \"</s>\", is an ordinary token there and a special token in the target: drafts pass through text$" err || fail "$(cat err)"
    "$BMC_BIN/bmc-spec" -m plain.bmc -d "$(model grimm-draft)" -p x -n 4 2>err >out
    grep -q "has another vocabulary: id $id, \"</s>\", is a special token there and an ordinary token in the target: drafts pass" err || fail "$(cat err)"
    expect_error 2 '250 draft tokens do not fit the context of 100' bmc-spec -m "$g" -d "$d" -p x -k 250 -c 100
    expect_error 2 "draft 8: needs a draft model; -k 8" bmc-spec --draft 8 -p x
    expect_error 2 'window of 16' bmc-spec -m "$g" -d "$d" -p x -k 26 -cd 16
    expect_error 1 "exceeds the draft model's context" bmc-spec -m "$g" -d "$d" -p x -cd 5000
    # A model drafts for itself with the last 6 tokens: its draft is accepted because BOS (2) is in front of them.
    ok bmc-spec -q -m "$(model andersen)" -d "$(model andersen)" -cd 16 -k 1 --always -n 3 --ignore-eos --stats stats.json --prompt-ids '2 1775 1377 516 527 1602 141 1406 1983 924 1665 890 1134 522 1118 909 1753 1111 938 32 820 1722 703 361 538 1004 59 1634 1333 1920 863 1178 48 137 1426 736 1197 293 1225 266'
    assert_equal "$(jq .accepted stats.json)" 1
    expect_error 2 'nothing to draft with' bmc-spec -m "$g" -p x
    expect_error 2 'exclude each other' bmc-spec -m "$g" -d "$d" --tree 4 -k bass -p x
    expect_error 2 'exclude each other' bmc-spec -m "$g" -d "$d" --tree 4 --length-step 1 -p x
    expect_error 2 'tree: needs auto or a whole number' bmc-spec -m "$g" -d "$d" --tree "" -p x
    expect_error 1 'draft model: .*nowhere' bmc-spec -m "$g" -d nowhere.bmc -p x
    expect_error 2 'one tensor' bmc-spec -m "$g" -d "$d" -p x --kv paged --ragged pad
    expect_error 2 'exclude each other' bmc-spec -m "$g" --suffix --lookup -p x
    expect_error 2 'exclude each other' bmc-spec -m "$g" -d "$d" --recycle -p x
    expect_error 2 'no tree' bmc-spec -m "$g" -d "$d" --lookup --tree 4 -p x
    expect_error 2 'a single drafter' bmc-spec -m "$g" -d "$d" --suffix --record-acceptance -p x
    expect_error 2 '--lookup-corpus goes with --suffix' bmc-spec -m "$g" --lookup --lookup-corpus in -p x
    expect_error 2 '--suffix-pool goes with --suffix' bmc-spec -m "$g" -d "$d" --suffix-pool 1K -p x
    expect_error 2 'suffix-pool.*64 to' bmc-spec -m "$g" --suffix --suffix-pool 63 -p x
    expect_error 2 'draft-max.*0 to 256' bmc-spec -m "$g" -d "$d" -p x -k 1000
    expect_error 2 'draft-max.*"many"' bmc-spec -m "$g" -d "$d" -p x -k many
    expect_error 2 'tree.*1 to 256' bmc-spec -m "$g" -d "$d" -p x --tree 0
    expect_error 2 'no tree' bmc-spec -m "$g" --lookup -p x --tree 4
    expect_error 2 'batch-knee limits drafts whose size adapts' bmc-spec -m "$g" -d "$d" -p x -k 4 --batch-knee 2
    expect_error 2 'batch-knee limits drafts whose size adapts' bmc-spec -m "$g" -d "$d" -p x --tree 4 --batch-knee 2
    expect_error 2 'draft-kv' bmc-spec -m "$g" -d "$d" -p x --draft-kv best
    expect_error 2 'lookup-oldest' bmc-spec -m "$g" -d "$d" -p x --lookup-oldest
    # A draft model that gives NaN: its final norm is NaN. Opening does not read weights.
    cp "$d" nan.bmc
    at=$(bmc-convert --info --format json "$d" | jq '.rows[] | select(.name == "final_norm.weight") | .offset')
    echo '{"prompt": "Once upon a time", "n": 9}' >in
    for i in 0 1 2 3; do printf '\xff\xff\xff\x7f' | patch nan.bmc $((at + 4 * i)); done
    run --separate-stderr bmc-spec -q -m "$g" -d nan.bmc --jsonl -f in --always
    [ "$status" -eq 1 ]
    [[ $stderr =~ ^"bmc-spec: the draft model gives no finite logits" ]]
    jq -e '(.error | startswith("the run ended: the draft model gives no finite logits")) and (.ids | length == 1)' <<<"$output"
}

@test "simulated acceptance is announced and follows its probability" {
    bmc-spec -m "$(model grimm)" -d "$(draft grimm)" -p "Once upon a time" -n 600 -k 4 --simulate-acceptance 0.8 --ignore-eos --stats stats.json >/dev/null 2>err
    grep -q SIMULATED err
    jq -e '.simulated_acceptance == 0.8 and (.acceptance_by_position[0] | . > 0.7 and . < 0.9) and
        (.acceptance_by_position[1] | . > 0.5 and . < 0.78)' stats.json >/dev/null || fail "$(cat stats.json)"
}

@test "sampling: the text of bmc-gen for a seed, another one by rejection sampling" {
    local args=(-m "$(model grimm)" -p "Once upon a time" -n 40 --temp 0.8 --seed 3 -q) drafts=(-d "$(draft grimm)" -k 4 --always) text
    text=$(bmc-gen --no-spec "${args[@]}")
    [ "$(bmc-gen "${args[@]}" --seed 4)" != "$text" ]
    assert_equal "$(bmc-spec "${args[@]}" "${drafts[@]}")" "$text"
    assert_equal "$(bmc-spec "${args[@]}" -d "$(draft grimm)")" "$text"
    ok bmc-spec "${args[@]}" "${drafts[@]}" --spec-sampling rejection
    refute_output "$text"
    assert_equal "$(bmc-spec "${args[@]}" "${drafts[@]}" --spec-sampling rejection -t 1)" "$output"
    # without draft tokens there is nothing to reject
    assert_equal "$(bmc-spec "${args[@]}" -d "$(draft grimm)" -k 0 --spec-sampling rejection)" "$text"
}

@test "unit tests: trees, draft lengths, auto-tuning" {
    run "$BMC_BUILD/tests/test_tree"
    assert_success
    [[ ${lines[-1]} =~ ^([0-9]+)' checks, 0 failed'$ ]]
    [ "${BASH_REMATCH[1]}" -ge 50 ]
}

@test "unit tests: greedy ids under all policies, distribution of sampled tokens" {
    # shellcheck disable=SC2046 # none or one word
    run "$BMC_BUILD/tests/test_spec" $([ "$BMC_FULL" = 1 ] && echo full)
    assert_success
    [[ ${lines[-1]} =~ ^([0-9]+)' checks, 0 failed'$ ]]
    [ "${BASH_REMATCH[1]}" -ge 700 ]
    assert_line --regexp '^# .*: chi-square 0\.'
}

@test "unit tests: suffix index, suffix drafts, combined drafters" {
    run "$BMC_BUILD/tests/test_suffix" "$FIXTURES"
    assert_success
    [[ ${lines[-1]} =~ ^([0-9]+)' checks, 0 failed'$ ]]
    [ "${BASH_REMATCH[1]}" -ge 1000 ]
}
