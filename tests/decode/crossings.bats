# Random combinations of what speculative decoding is combined with: drafters, draft shapes, cache policies and types, windows,
# batches, prefix caches, snapshots, constraints, samplers, penalties, ranks, KV offload, and kernel sets, one for each process. All give
# the ids and the logits of bmc-gen's plain decoding.
#
#   BMC_SEED=N   the seed of the last test, which is random otherwise, and printed
load ../helper
load ../ranks/mpi

FAMILIES="mistral gemma3 gemma4-heads cohere2 llama4 gpt-oss deepseek-v2-moe qwen3next falcon-h1 lfm2"

setup_file() {
    local name head heads=$FIXTURES/heads
    export SETS
    SETS=$(isas | sed 's/\<blas\>//') # OpenBLAS has sums of its own
    [ "$BMC_FULL" = 1 ] || SETS=${SETS/ref /} # slow, and compared with the other sets elsewhere
    cd "$BATS_FILE_TMPDIR" || return 1
    mkdir target mtp pard
    ln -s "$heads"/target/* "$FIXTURES"/models/llama-3-like/tokenizer* target/
    bmc-convert target -o target.bmc || return 1
    bmc-convert target --type q8_0 -o model.bmc || return 1
    # As a parallel draft model the target drafts its own next token, and others from mask tokens it was not trained for.
    ln -s "$heads/target/model.safetensors" "$FIXTURES"/models/llama-3-like/tokenizer* pard/
    jq '.pard_token = 5' "$heads/target/config.json" >pard/config.json
    bmc-convert pard -o pard.bmc || return 1
    for head in eagle eagle3 speculators peagle; do bmc-convert "$heads/$head" -o $head.bmc || return 1; done
    # The target with an MTP layer behind its last.
    ln -s "$FIXTURES"/models/llama-3-like/tokenizer* mtp/
    ln -s "$heads/target/model.safetensors" mtp/model-1.safetensors
    cp "$heads/mtp/model.safetensors" mtp/model-2.safetensors
    edit_safetensors mtp/model-2.safetensors 'with_entries(.key |= "model.layers.7." + sub("^layers.0."; ""))'
    jq '.num_nextn_predict_layers = 1' "$heads/target/config.json" >mtp/config.json
    for file in mtp/model-?.safetensors; do
        tail -c +9 "$file" | head -c "$(number_at "$file" 0 8)" | jq -c 'keys - ["__metadata__"]' | jq --arg file "$(basename "$file")" 'map({(.): $file}) | add'
    done | jq -s '{weight_map: add}' >mtp/model.safetensors.index.json
    bmc-convert mtp -o self.bmc || return 1
    jq -r '[.cases[].ids] | add | map(tostring) | join(" ")' "$heads/eagle.json" >long
    bmc-gen -m target.bmc --detokenize <long >corpus 2>/dev/null
    # Shared scales of the cache, of a few tokens, so that others saturate; and the same for the other file of this model.
    "$BMC_BIN/bmc-prof" cache-scales -m target.bmc -f corpus -N 20 -o target.bmc.scales >/dev/null || return 1
    sed "s/^model_id.*/model_id $(bmc-convert --info --format json self.bmc | jq -r .model_id)/" target.bmc.scales >self.bmc.scales
    # Models with windows, chunked attention, sinks, KV heads of two sizes, latent attention, experts, recurrent layers.
    for name in $FAMILIES; do bmc-convert "$FIXTURES/families/$name" -o "$name.bmc" && bmc-convert "$FIXTURES/families/$name" --type q8_0 -o "$name-q8_0.bmc" || return 1; done
    # Prompts with common prefixes, short ones, and long ones.
    jq -c '([.cases[].ids] | add) as $l | {ids: $l[:9], n: 50}, {ids: $l[:40], n: 25}, {ids: ($l[:40] + [7, 8]), n: 25}, {ids: $l[20:21], n: 40},
        {ids: $l[:33], n: 30}, {ids: $l[50:90], n: 45}' "$heads/eagle.json" >in
    jq -c '.ids |= map(. % 250)' in >in.family
    tr ' ' '\n' <long | awk '{ printf "%s ", $1 % 250 }' >long.family
}

setup() {
    mkdir "$BATS_TEST_TMPDIR/here" "$BATS_TEST_TMPDIR/tmp" && cd "$BATS_TEST_TMPDIR/here" || return 1
    export OMPI_MCA_btl_vader_backing_directory=$BATS_TEST_TMPDIR/tmp
    ln -s "$BATS_FILE_TMPDIR"/{*.bmc,*.scales,*.family,in,long,corpus} .
}

# on PROGRAM OPTION..: runs it on one of the kernel sets. (Not in a pipeline.)
on() {
    local isa
    # shellcheck disable=SC2086 # words
    pick isa $SETS
    "$@" --isa "$isa" --precision "$precision"
}

# draw [FAMILY]: sets target, plain (the file of bmc-gen), requests, prompt, drafter, shape, policy, type, precision and sampling. The family's draft is the model itself, quantised.
draw() {
    target=target.bmc plain=target.bmc requests=in prompt=long
    pick drafter "-d eagle.bmc" "-d eagle3.bmc" "-d speculators.bmc" "-d peagle.bmc" "-d self" "-d pard.bmc" "-d model.bmc" --lookup --suffix --recycle \
        "--lookup --lookup-oldest" "--suffix --suffix-pool 64" "--suffix --lookup-corpus corpus" "--lookup -d eagle.bmc" "--suffix -d peagle.bmc" \
        "--suffix -d pard.bmc" "--lookup -d self" "--lookup -d model.bmc"
    if [ $# -gt 0 ]; then
        pick drafter --lookup --suffix --recycle "-d $1-q8_0.bmc" "-d $1.bmc" "--suffix -d $1-q8_0.bmc" "--lookup -d $1-q8_0.bmc"
        pick target "$1.bmc" "$1-q8_0.bmc"
        plain=$target requests=in.family prompt=long.family
    fi
    [[ $drafter != *self* ]] || target=self.bmc
    pick shape "-k $((1 + RANDOM % 9))" "-k $((10 + RANDOM % 7))" "" "-k bass" "--tree $((2 + RANDOM % 25))" "--tree 26" "--tree $((27 + RANDOM % 22))" "--tree auto"
    # --lookup drafts no trees
    [[ $drafter != *lookup\ * && $drafter != --lookup || $shape != --tree* ]] || shape="-k 5"
    [[ $drafter != "-d "*eagle* || $shape != "--tree "[0-9]* ]] || pick shape "$shape" "$shape --dynamic" "$shape --dynamic"
    pick policy bmc bmc:r=16 bmc:T=4,grow=now reserve reserve:r=16 paged paged:16 segment iterative upfront
    pick type f32 f32 bf16 f16 q8 q4 q4h
    # SCALES becomes MODEL.scales
    [ $# -gt 0 ] || pick type "$type" "$type" "$type" "$type" q8:scales=SCALES q4:scales=SCALES
    pick precision f32 int8
    pick always --always --always ""
    pick sampling "" "" "--temp 0.8 --seed 3" "--temp 1.3 --top-k 0 --min-p 0 --seed 4" "--temp 1 --xtc-probability 0.5 --typical-p 0.9 --dynatemp-range 0.4" \
        "--temp 1 --mirostat 2 --mirostat-ent 3 --seed 5"
}

# check WHAT: compares ids, ends, and the hash of the logits.
check() {
    cmp -s want got || fail "$*: $(diff want got)"
    jq -es '.[0].logits_hash == .[1].logits_hash and .[0].decode_tokens > 0' plain.json stats.json >/dev/null || fail "$*: other logits"
    read -r more accepted_more < <(jq -r '"\(.drafted) \(.accepted)"' stats.json)
    # A rolling cache may have no room for drafts, a draft model's short window none behind a prompt; --tree auto may choose none.
    [[ $drafter != *"-d "* || -z $always || "$shape$*" =~ auto|regex|choice|-cd|snapshot|"--kv shift --con" || $more -gt 0 ]] || fail "$*: no draft tokens"
    drafted=$((drafted + more)) accepted=$((accepted + accepted_more))
}

# A batch of requests; sometimes twice, with a prefix cache in a folder that the second run reuses.
batch() {
    local limit option drafting cache="" again
    pick limit "-c 120" "-c 120" "-c 64" "-c 60 --kv shift:S=48,slack=4 --ignore-eos" "-c 60 --kv shift --context-shift recompute --keep 3 --ignore-eos"
    pick option "" "" "--regex [a-z]{2,9}(\\.|[a-zA-Z]+)*" "--choice that|this.house|house.and.garden|the" "--repeat-penalty 1.2" \
        "--presence-penalty 0.1 --repeat-last-n 9" "--logit-bias 9=-2 --logit-bias 30=0.5"
    pick drafting "" "" "--prefix-cache-mb 0" "--ragged split" "-t 2" "--chunk $((5 + RANDOM % 40))" "--attend valid" "-tb 2"
    # trees must fit the window
    [[ $drafter != *-d* || $shape =~ ^--tree\ (3[5-9]|4) || $RANDOM -lt 24000 ]] || drafting+=" -cd 40"
    # A prefix cache in a folder holds no windows that roll; recurrent states at ends of prompts, or at any end of a block.
    [[ $limit = *shift* || $RANDOM -gt 12000 ]] || pick cache "--prefix-cache cache" "--prefix-cache cache,states=16"
    [[ $limit = *shift* ]] || limit+=" --kv $policy"
    rm -rf cache
    # shellcheck disable=SC2086 # words
    on bmc-gen --no-spec -q -m $plain --jsonl -np 1 --cache-type ${type/SCALES/$plain.scales} ${limit/--kv $policy/} $option $sampling --stats plain.json <$requests >results 2>refused
    jq -c '[.ids, .finish, .error]' <results >want
    for again in 1 ${cache:+2}; do
        # shellcheck disable=SC2086
        on bmc-spec -q -m $target $drafter $shape $always --jsonl -np $((1 + RANDOM % 5)) --cache-type ${type/SCALES/$target.scales} $limit $option $sampling $drafting $cache --stats stats.json \
            <$requests >results 2>err
        jq -c '[.ids, .finish, .error]' <results >got
        sed 's/^bmc-spec:/bmc-gen:/' err | cmp -s - refused || fail "$drafter $shape $limit: $(cat err)"
        # Models that cannot do that refuse it alike.
        [ -s want ] && [ ! -s refused ] || continue
        check "batch $again: $drafter $shape $always --cache-type $type $limit $option $sampling $drafting $cache"
        # The second run finds what the first has stored; draft heads compute the last 64 tokens of a prompt again.
        [[ $again -eq 1 || $drafter =~ eagle|speculators|self ]] || hits=$((hits + $(jq .prefix_cache_hit_tokens stats.json))) hit_runs=$((hit_runs + 1))
    done
}

# A snapshot of plain decoding, continued by speculation, and its snapshot continued by plain decoding.
snapshot() {
    local other long first type=${type%:*} # that of the snapshot is the default
    pick other bmc:r=32 reserve:r=16 paged:32 segment upfront
    pick first 1 8 30 90
    [[ ! $target =~ ^(gpt-oss|deepseek) ]] || pick policy "$policy" headwise:ram=300K,group=1 # whose KV heads can be offloaded
    long=$(cut -d ' ' -f "1-$first" $prompt)
    # shellcheck disable=SC2086 # words
    on bmc-gen --no-spec -q -m $plain --kv "$other" --cache-type "$type" --prompt-ids "$long" -n 12 --ids $sampling --save-kv a.kv >/dev/null
    on bmc-gen --no-spec -q -m $plain --load-kv a.kv --prompt-ids "7 8" -n 30 --ids --save-kv b.kv --stats plain.json >want
    # shellcheck disable=SC2086 # words
    on bmc-spec -q -m $target $drafter $shape $always --kv "$policy" --load-kv a.kv --prompt-ids "7 8" -n 30 --ids --save-kv c.kv --stats stats.json >got
    check "snapshot of $first tokens by $other: $drafter $shape $always --cache-type $type --kv $policy"
    on bmc-gen --no-spec -q -m $plain --load-kv b.kv --prompt-ids "9" -n 9 --ids --stats plain.json >want
    # shellcheck disable=SC2086
    on bmc-spec -q -m $target $drafter $shape $always --load-kv c.kv --prompt-ids "9" -n 9 --ids --stats stats.json >got
    check "snapshot of speculation: $drafter $shape $always --cache-type $type --kv $policy"
    rm ./*.kv
}

# A batch over ranks, each on a kernel set of its own, or with KV offload; with drafts and without, where it can with a prefix cache, which a
# second run finds.
spread() { # WAY FAMILY
    local target=$2-q8_0.bmc type precision sampling program drafter="" shape="" always="" drafted=0 accepted=0 more accepted_more first last again option cache=""
    pick type f32 f16 q8 q6 q4 q8_channel
    pick precision f32 int8 int8
    pick sampling "" "--temp 0.8 --seed 3"
    pick program bmc-gen "bmc-spec --suffix --always -k 5" "bmc-spec --recycle --always --tree 6"
    [[ $1 != data && $1 != offload ]] || cache="--prefix-cache cache"
    rm -rf cache
    # shellcheck disable=SC2206 # words
    option=(-q -m "$target" --jsonl --cache-type "$type" $sampling)
    on bmc-gen --no-spec "${option[@]}" -np 1 --stats plain.json <in.family >results
    jq -c '[.ids, .finish, .error]' <results >want
    option+=(-np $((1 + RANDOM % 3)) --stats stats.json --precision "$precision")
    for again in 1 ${cache:+2}; do
        pick first $SETS
        pick last $SETS
        # shellcheck disable=SC2086
        if [ "$1" = offload ]; then
            "$BMC_BIN"/$program "${option[@]}" --isa "$first" --kv headwise:ram=300K,group=1 $cache
        else
            mpirun -n 1 "$BMC_BIN"/$program "${option[@]}" -t 1 --parallelism $1 $cache --isa "$first" : \
                -n 1 "$BMC_BIN"/$program "${option[@]}" -t 1 --parallelism $1 $cache --isa "$last"
        fi <in.family | jq -c '[.ids, .finish, .error]' >got
        check "$again: $program, $1 on $first and $last: ${option[*]}"
    done
    [ -z "$cache" ] || [ "$(jq .prefix_cache_hit_tokens stats.json)" -ge 32 ] || fail "$(<stats.json)"
}

# crossings SEED N [FAMILY ..]: so many random combinations, with one of the families.
crossings() {
    local target plain requests prompt drafter shape policy type precision always sampling what more accepted_more drafted=0 accepted=0 hits=0 hit_runs=0
    local family="" count=$2
    RANDOM=$1
    shift 2
    for ((i = 0; i < count; i++)); do
        [ $# -eq 0 ] || pick family "$@"
        # shellcheck disable=SC2086 # none or one
        draw $family
        pick what batch batch snapshot
        $what
    done
    # How many follows from the lengths drawn, from pauses, from windows that roll, and from what lookups find.
    [ "$drafted" -gt "$count" ] || fail "$drafted draft tokens"
    [ "$hits" -ge $((32 * hit_runs)) ] || fail "$hits tokens found in a prefix cache by $hit_runs runs"
    [ "$accepted" -gt 0 ] || fail "$accepted of $drafted draft tokens accepted"
}

@test "random combinations give the ids and the logits of bmc-gen, fixed seeds" {
    crossings 1 "$((${BMC_FULL:-0} ? 200 : 12))"
    crossings 2 "$((${BMC_FULL:-0} ? 200 : 12))"
}

@test "random combinations give the ids and the logits of bmc-gen, a random seed" {
    local seed=${BMC_SEED:-$RANDOM}
    echo "# seed $seed"
    crossings "$seed" "$((${BMC_FULL:-0} ? 200 : 12))" || fail "seed $seed"
}

@test "random combinations for models with windows, experts, latent attention and recurrent layers" {
    # shellcheck disable=SC2086 # words
    crossings "${BMC_SEED:-3}" "$((${BMC_FULL:-0} ? 200 : 12))" $FAMILIES
}

@test "ranks, KV offload, prefix caches and drafts on random kernel sets" {
    local way ways=(tensor data pipeline expert) seed=${BMC_SEED:-$RANDOM} family
    needs_mpi
    echo "# seed $seed"
    RANDOM=$seed
    for ((i = 0; i < (${BMC_FULL:-0} ? 60 : 1); i++)); do
        for way in "${ways[(seed + i) % 4]}" offload; do
            pick family gpt-oss deepseek-v2-moe
            spread $way "$family"
        done
    done
}
