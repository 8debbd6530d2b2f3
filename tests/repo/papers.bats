# The index of the papers (tests/bench/papers.md) is complete, and its verdicts have measurements.
bats_require_minimum_version 1.5.0
load ../quick

INDEX=${BATS_TEST_DIRNAME%/*}/bench/papers.md
LIST=${BATS_TEST_DIRNAME%/*}/bench/papers.list

# Rows of the index, as tab-separated cells.
rows() { grep -E '^\| (BMC|BASS|segment|HeadInfer|HTP) \|' "$INDEX" | sed 's/^| //; s/ *|$//; s/ *| */\t/g'; }

# "PAPER ITEM" for everything with a row: in "eq. 5, 6" the kind applies to both numbers.
indexed() {
    rows | awk -F'\t' '{
        n = split($2, item, ", ")
        for (i = 1; i <= n; i++) {
            if (match(item[i], /^(figures?|tables?|eq\.|algorithm|section) /)) {
                kind = substr(item[i], 1, RLENGTH - 1)
                sub(/s$/, "", kind)
                item[i] = substr(item[i], RLENGTH + 1)
            } else if (item[i] !~ /^[0-9IVX]+$/)
                kind = ""
            print $1 " " (kind == "" ? "" : kind " ") item[i]
        }
    }'
}

# The same for everything listed in papers.list.
listed() {
    grep -v '^#' "$LIST" | while read -r paper kind first last more; do
        if [[ $first =~ ^[0-9]+$ ]] && [[ $last =~ ^[0-9]+$ ]]; then
            seq -f "$paper $kind %g" "$first" "$last"
        elif [ "$kind" = table ]; then
            for n in $first $last $more; do echo "$paper table $n"; done
        else
            echo "$paper $kind $first${last:+ $last}${more:+ $more}"
        fi
    done
}

@test "every table, figure and equation of the papers has exactly one row" {
    cd "$BATS_TEST_TMPDIR" || return 1
    [ "$(listed | wc -l)" -gt 80 ]
    indexed | sort >have
    assert_equal "$(uniq -d have)" ""
    assert_equal "$(listed | sort | comm -23 - have)" ""
}

@test "verdicts are of the known kinds, and measured ones have a script and a figure" {
    [ "$(rows | wc -l)" -gt 80 ]
    run awk -F'\t' '
        NF != 6 { print "not six cells: " $0 }
        $6 !~ /^(holds|does not hold|form only|arithmetic|not measured|drawing|the same)/ { print "unknown verdict: " $0 }
        $6 ~ /^(holds|does not hold)/ && ($4 == "" || $5 == "" || $5 !~ /\((any|[EXQSL][),; ])/) { print "no script, or no figure with its machine: " $0 }
        $6 ~ /^(drawing|not measured)$/ && $5 != "" { print "a figure, but not measured: " $0 }' <(rows)
    assert_output ""
}

# Rows whose verdict judges a claim.
judged() { rows | awk -F'\t' '$6 ~ /^(holds|does not hold)/'; }

# Entries of make papers that print why no claim is tested, as KEY.
form_entries() {
    local script
    for script in "${BATS_TEST_DIRNAME%/*}"/bench/papers/{bmc,bass,segment,headinfer,htp}.sh; do
        awk -v paper="$(basename "$script" .sh)" '/^[a-z0-9_]+\(\) \{/ { name = $1; sub(/\(.*/, "", name) } /(^|[ ;])form "/ { print paper "/" name }' "$script"
    done | sort -u
}

@test "what was measured on PoCL's device, a CPU, judges no claim about a GPU" {
    run awk -F'\t' '$5 ~ /PoCL/ { print $1 " " $2 }' <(judged)
    assert_output ""
    [ "$(rows | grep -c PoCL)" -ge 3 ]
}

@test "rows with simulated acceptance, or whose answers are not a real model's, are form only" {
    cd "$BATS_TEST_TMPDIR" || return 1
    run awk -F'\t' '$4 ~ /(spec_tables|spec_policy|spec_speed|tune_spec|needle)\.sh/ || $5 " " $6 ~ /simulated|random weights|trained (for|to)/ { print $1 " " $2 }' <(judged)
    assert_output ""
    form_entries >form
    rows | awk -F'\t' '$4 ~ /ONLY=/ { key = $4; sub(/.*ONLY=/, "", key); sub(/[^a-z0-9\/].*/, "", key); print key "\t" ($6 ~ /^form only/) }' >verdicts
    [ "$(wc -l <verdicts)" -gt 40 ]
    run awk -F'\t' 'NR == FNR { form[$1] = 1; next } $2 != ($1 in form) { print $1 ": the entry and the verdict of the index differ in whether a claim is tested" }' form verdicts
    assert_output ""
}

# Judged rows whose claim is about another program, without a figure of it (its name and version in the result), and without
# "NAME is not measured" in the verdict; and those where a policy stands for it.
imitations() {
    judged | awk -F'\t' '
        {
            wrong = $5 $6 ~ /our (paged )?policy/
            for (rest = $3; match(rest, /Hugging Face|HF|vLLM|DeepSpeed|llama\.cpp|oneDNN|PACE/); rest = substr(rest, RSTART + RLENGTH)) {
                name = substr(rest, RSTART, RLENGTH)
                if (name ~ /^H/) name = "transformers"
                if ($5 !~ (name " [0-9a-f]*[0-9]") && $6 !~ (name " (is|are|was|were) not measured")) wrong = 1
            }
            if (wrong) print $1 " " $2
        }'
}

@test "no policy of this library stands for another program" {
    assert_equal "$(imitations)" ""
}

@test "scripts named in the index exist" {
    cd "$BATS_TEST_TMPDIR" || return 1
    grep -oE 'tests/[a-z_]+(/[a-z_]+)?\.(sh|bats)' "$INDEX" | sort -u >named
    [ "$(wc -l <named)" -gt 15 ]
    while read -r script; do
        [ -e "${BATS_TEST_DIRNAME%/tests/*}/$script" ] || fail "$script does not exist"
    done <named
}

# ---- make papers ----

entries() { sed '/^#/d; s/ *| */|/g' "${BATS_TEST_DIRNAME%/*}/bench/papers/entries.list"; }

@test "entries of make papers belong to rows of the index, and their scripts have them" {
    cd "$BATS_TEST_TMPDIR" || return 1
    [ "$(entries | wc -l)" -gt 25 ]
    assert_equal "$(entries | cut -d '|' -f 1 | sort | uniq -d)" ""
    rows | awk -F'\t' '{ print $1 " " $2 }' | sort >known
    entries | cut -d '|' -f 4 | sed 's/; /\n/g' | sort >used
    assert_equal "$(uniq -d used)" ""
    assert_equal "$(comm -23 used known)" ""
    while IFS='|' read -r key short full _; do
        grep -qE "^${key#*/}\(\) \{" "${BATS_TEST_DIRNAME%/*}/bench/papers/${key%%/*}.sh" || fail "$key: no such function"
        [[ $short =~ ^([0-9]+|-)$ ]] || fail "$key: $short"
        [[ $full =~ ^[0-9]+$ ]] || fail "$key: $full"
    done < <(entries)
}

# result KEY ITEM PARTS [STATE]
result() {
    mkdir -p results
    printf '{"key":"%s","items":["%s"],"state":"%s","reason":"","size":"short","commit":"c","cpu":"a <cpu>","threads":2,"seconds":1,"time":"t","command":"x","parts":[%s]}' \
        "$1" "$2" "${4:-done}" "$3" >"results/${1/\//-}.json"
}

page() {
    "$BMC_BUILD/bench/papers/page" "$INDEX" results . || return 1
    sed -n "/^### $1\$/,/^### /p" index.md | sed -n 's/^\*\*Verdict of this run: \(.*\)\*\*.*/\1/p'
}

claim() { printf '{"kind":"claim","name":"r","samples":[%s],%s}' "$1" "$2"; }

@test "verdicts of the page follow from ratios and their intervals" {
    cd "$BATS_TEST_TMPDIR" || return 1
    # samples, paper, verdict: the interval of 5 rounds is from the least to the largest
    while read -r samples paper verdict; do
        result bmc/fig10 "BMC figure 10" "$(claim "$samples" "$paper")"
        assert_equal "$(page "BMC figure 10")" "$verdict"
    done <<'END'
1.9,2,2.1,2.2,2.3 "paper":[2.5,2.5] holds
1.5,1.6,1.7,1.8,1.9 "paper":[2.5,2.5] holds in part
0.9,1.6,1.7,1.8,2.1 "paper":[2.5,2.5] undecided
0.9,1,1.1,1.1,1.2 "paper":[2.5,2.5] does not hold
0.7,0.8,0.9,0.9,0.95 "paper":[2.5,2.5] does not hold
2.2 "paper":[2.5,2.5] not measured
2.2 "paper":[2.5,2.5],"exact":true holds
1.2,1.3,1.4 "direction":1 holds
0.5,0.6,0.7 "direction":-1 holds
0.95,1.05,1.09 "direction":0 holds
0.95,1.1,1.2 "direction":0 undecided
1.3,1.4,1.5 "direction":0 does not hold
0.5,0.52,0.54 "paper":[0.6,0.6],"direction":0 does not hold
END
    # Ranks 2 and 8 of 9 samples cover the median with 96 %: outliers do not matter.
    result bmc/fig10 "BMC figure 10" "$(claim 0.1,1.3,1.3,1.3,1.3,1.3,1.3,1.3,9 '"paper":[1.3,1.3]')"
    assert_equal "$(page "BMC figure 10")" holds
    grep -F '| r | 1.3 | 1.3 [1.3, 1.3] | holds |' index.md
    grep -F 'with 96 %' index.md
    result bmc/fig10 "BMC figure 10" "$(claim 1.2,1.3,1.4 '"paper":[1.3,1.3]'),$(claim 0.2,0.3,0.4 '"paper":[1.3,1.3]')"
    assert_equal "$(page "BMC figure 10")" "holds in part"
}

@test "results that differ fail, and a contradiction with the index is said" {
    cd "$BATS_TEST_TMPDIR" || return 1
    result bmc/tab3 "BMC table III" '{"kind":"equal","name":"logits_hash","values":["a","a"]}'
    assert_equal "$(page "BMC table III")" "not measured"
    result bmc/tab3 "BMC table III" '{"kind":"equal","name":"logits_hash","values":["a","b"]}'
    assert_equal "$(page "BMC table III")" failed
    result bmc/fig9 "BMC figure 9" "$(claim 0.5,0.6,0.7 '"paper":[1.3,1.3]')"
    assert_equal "$(page "BMC figure 9")" "does not hold"
    grep -A 20 '^### BMC figure 9' index.md | grep 'contradicts the verdict of the index'
    grep 'a &lt;cpu&gt;' index.html
    # every item is in the index of the page, with a section
    grep -oE 'href="#[^"]+"' index.html | cut -d '"' -f 2 | tr -d '#' | sort -u >links
    [ "$(wc -l <links)" -gt 70 ]
    while read -r anchor; do grep -q "id=\"$anchor\"" index.html || fail "no section $anchor"; done <links
}

@test "results that cannot be read are one line" {
    cd "$BATS_TEST_TMPDIR" || return 1
    result bmc/fig9 "BMC figure 9" "$(claim 0.5,-1 '"paper":[1.3,1.3]')"
    run -1 "$BMC_BUILD/bench/papers/page" "$INDEX" results .
    assert_output 'papers: results/bmc-fig9.json: "r": sample 1 of a claim is not a positive number'
    result bmc/fig9 "BMC figure 9" "$(claim 0.5 '"paper":[1.3,1]')"
    run -1 "$BMC_BUILD/bench/papers/page" "$INDEX" results .
    assert_output 'papers: results/bmc-fig9.json: "r": a claim'"'"'s "paper" is not an ascending pair of positive numbers'
}

@test "make papers: budgets, entries, continued and repeated runs" {
    script=${BATS_TEST_DIRNAME%/*}/bench/papers/run.sh
    export OUT=$BATS_TEST_TMPDIR/out BUILD=$BMC_BUILD SCRIPTS=$BATS_TEST_TMPDIR/scripts
    mkdir "$SCRIPTS"
    printf '%s\n' 'bmc/fig9 | 10 | 20 | BMC figure 9' 'bmc/fig8 | 11 | 20 | BMC figure 8' 'bmc/fig7 | 12 | - | BMC figure 7' \
        'bmc/fig5 | 13 | 20 | BMC figure 5' 'htp/long | 9000 | 9000 | HTP cache buffer size' >"$SCRIPTS/entries.list"
    cat >"$SCRIPTS/bmc.sh" <<'END'
echo "$1 $PAPERS_SIZE" >>"$OUT/ran"
case $1 in
fig9) echo '{"kind":"claim","name":"r","samples":[1.2,1.3,1.4],"paper":[1.3,1.3]}' ;;
fig8) echo '{"kind":"skip","text":"no such machine"}' ;;
fig7) echo "it broke" >&2; exit 1 ;;
fig5) kill -INT "$(ps -o ppid= "$PPID")"; sleep 1 ;; # above timeout: run.sh
esac
END
    run -2 sh "$script" soon
    assert_output "papers: BUDGET=soon: needs a time, as 90s, 30m or 8h"
    run -2 sh "$script" 30m bmc/none
    assert_output "papers: ONLY=bmc/none: no such entry; there are: bmc/fig9 bmc/fig8 bmc/fig7 bmc/fig5 htp/long"
    run -1 sh "$script" 60m "bmc/fig9 bmc/fig8,bmc/fig7 htp"
    assert_line --regexp '^papers: bmc/fig9: done \('
    assert_line --regexp '^papers: bmc/fig8: skipped: no such machine \('
    assert_line --regexp '^papers: bmc/fig7: failed: it broke \('
    assert_line --partial "not in this budget: htp/long"
    assert_line "papers: failed: bmc/fig7"
    grep -A 8 '^### BMC figure 9' "$OUT/index.md" | grep -F '**Verdict of this run: holds**'
    grep -A 8 '^### BMC figure 8' "$OUT/index.md" | grep -F '**Verdict of this run: not measured**: no such machine'
    assert_equal "$(paste -sd , "$OUT/ran")" "fig9 short,fig8 short,fig7 short"
    rm "$OUT/ran"
    run -1 sh "$script" 60m "bmc/fig9 bmc/fig8 bmc/fig7" # only the failed one is repeated
    assert_equal "$(cat "$OUT/ran")" "fig7 short"
    rm "$OUT/ran"
    jq -c '.commit = "another"' "$OUT/results/bmc-fig9.json" >"$BATS_TEST_TMPDIR/old"
    mv "$BATS_TEST_TMPDIR/old" "$OUT/results/bmc-fig9.json"
    run -0 sh "$script" 60m "bmc/fig9 bmc/fig8"
    assert_equal "$(cat "$OUT/ran")" "fig9 short"
    rm "$OUT/ran"
    run -130 sh "$script" 8h bmc # the entry without any result comes first, and is interrupted
    assert_equal "$(paste -sd , "$OUT/ran")" "fig5 full"
    [ ! -e "$OUT/results/bmc-fig5.json" ]
    refute_output --partial "bmc/fig5"
    run -0 sh "$script" 8h "bmc/fig9 bmc/fig8 bmc/fig7" # at another size all are measured again; fig7 is not for this one
    assert_equal "$(paste -sd , "$OUT/ran")" "fig5 full,fig9 full,fig8 full"
    assert_line --partial "not in this budget: bmc/fig7 (another size)"
}
