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
        $6 ~ /^(holds|does not hold)/ && ($4 == "" || $5 == "" || $5 !~ /\((any|[EXQS][),; ])/) { print "no script, or no figure with its machine: " $0 }
        $6 ~ /^(drawing|not measured)$/ && $5 != "" { print "a figure, but not measured: " $0 }' <(rows)
    assert_output ""
}

@test "scripts named in the index exist" {
    cd "$BATS_TEST_TMPDIR" || return 1
    grep -oE 'tests/[a-z_]+(/[a-z_]+)?\.(sh|bats)' "$INDEX" | sort -u >named
    [ "$(wc -l <named)" -gt 15 ]
    while read -r script; do
        [ -e "${BATS_TEST_DIRNAME%/tests/*}/$script" ] || fail "$script does not exist"
    done <named
}
