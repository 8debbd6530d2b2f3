# Reranking (--rerank): against transformers (tests/fixtures/make_rerankers.py), batches, input and errors.
load ../helper

bring() { # NAME: NAME.bmc from the fixture
    bmc-convert -q "$FIXTURES/rerankers/$1" -o "$1.bmc"
}

@test "scores equal those of transformers: cross-encoders, a decoder with a classifier's head, Qwen3-Reranker's question" {
    want=$FIXTURES/rerankers.json
    [ "$(jq length "$want")" -eq 7 ]
    for name in $(jq -r '.[].model' "$want"); do
        bring "$name"
        jq -c --arg m "$name" '.[] | select(.model == $m) | {query, documents: [.documents[].document]}' "$want" >in
        ok bmc-gen -q -m "$name.bmc" --rerank -f in --precision f32
        jq -se --arg m "$name" --slurpfile want "$want" '.[0] as $got | ($want[0][] | select(.model == $m).documents) as $want |
            $got.tokens == ([$want[].tokens] | add) and ($got.results | length) == ($want | length) and ([$got.results[].score] | . == (sort | reverse)) and
            all($got.results[]; . as $r | $want[$r.index] | (.logit - $r.logit | fabs) < 2e-5 and (.score - $r.score | fabs) < 1e-5)' <<<"$output" >/dev/null || fail "$name: $output"
    done
}

@test "a classifier in a GGUF file scores as in its folder" {
    bring modernbert-mean
    bmc-convert -q "$FIXTURES/rerankers/modernbert-mean.gguf" -o b.bmc
    jq -c '.[] | select(.model == "modernbert-mean") | {query, documents: [.documents[].document]}' "$FIXTURES/rerankers.json" >in
    ok bmc-gen -q -m modernbert-mean.bmc --rerank -f in --precision f32
    want=$output
    ok bmc-gen -q -m b.bmc --rerank -f in --precision f32
    assert_equal "$output" "$want"
}

@test "a score does not depend on batch, chunk, threads or cache policy" {
    bring bert
    bring qwen3
    jq -nc 'range(4) as $i | {id: $i, query: "q\($i)", documents: [range(5) | "x" * (1 + . * ($i + 3))]}' >in
    for name in bert qwen3; do
        ok bmc-gen -q -m $name.bmc --rerank -f in -np 1
        want=$output
        for how in "-np 4 --chunk 61" "-np 7 --kv paged -t 1"; do
            # shellcheck disable=SC2086
            ok bmc-gen -q -m $name.bmc --rerank -f in $how
            assert_equal "$output" "$want"
        done
    done
}

@test "top_n, return_documents and instruction; what is wrong is said, in the line's result" {
    bring qwen3
    echo '{"id": "a", "query": "x", "documents": ["one", {"text": "two", "url": 1}, "three"], "top_n": 2, "return_documents": true}' >in
    ok bmc-gen -q -m qwen3.bmc --rerank -f in
    jq -e '.id == "a" and .error == null and (.results | length) == 2 and all(.results[]; .document == (["one", {text: "two", url: 1}, "three"][.index]))' <<<"$output" >/dev/null || fail "$output"
    printf '%s\n' '{"query": "x", "documents": ["y"]}' '{"query": "x", "documents": ["y"], "instruction": "other"}' >in
    ok bmc-gen -q -m qwen3.bmc --rerank -f in
    [ "$(jq -s 'map(.results[0].logit) | .[0] != .[1]' <<<"$output")" = true ]
    run_plain bmc-gen -m qwen3.bmc --rerank -f in
    assert_regex "$stderr" "bmc-gen: qwen3.bmc has no classifier's head: scores are its answers to the prompt of Qwen3-Reranker"
    cp qwen3.bmc qwen3-Reranker.bmc
    run_plain bmc-gen -m qwen3-Reranker.bmc --rerank -f in
    refute_regex "$stderr" classifier
    bring bert
    printf '%s\n' '{"query": "x", "documents": []}' '{"query": 1, "documents": ["y"]}' '{"query": "x", "documents": ["y", 5]}' '{"query": "x", "documents": ["y"], "top_n": 0}' \
        '{"query": "x", "documents": ["y"], "instruction": "z"}' '{"query": "x", "docs": []}' '{"query": "x", "documents": ["'"$(printf '%0200d' 0)"'"]}' '{"query": "x", "documents": ["y"]}' >in
    run bmc-gen -q -m bert.bmc --rerank -f in
    [ "$status" -eq 1 ]
    assert_equal "$(grep '^{' <<<"$output" | jq -r '.error // "none"' | sed 's/line [0-9]: //')" '"documents" is empty, a list of at least one text is expected
"query", a string, and "documents", a list of texts, are expected
document 1 is an integer, a string or an object with "text" is expected
"top_n" is not an integer from 1
document 0: the model has a classifier'"'"'s head, which takes no instruction
unknown member "docs" (--lenient ignores unknown ones)
document 0: the text has 204 tokens, the context holds 128: shorten it
none'
    # a long query is not encoded for each of its documents
    jq -nc '{query: ("a" * 200), documents: [range(2000) | "x"]}' >in
    run bmc-gen -q -m bert.bmc --rerank -f in
    assert_equal "$(grep '^{' <<<"$output" | jq -c '[.tokens, .error]')" '[0,"line 1: document 0: the text has 204 tokens, the context holds 128: shorten it"]'
    bmc-convert -q "$FIXTURES/encoders/bert" -o plain.bmc
    expect_error 1 "plain.bmc: cannot rerank: it has no classifier's head; use a reranker" bmc-gen -m plain.bmc --rerank -f in
    expect_error 2 'rerank excludes other jobs' bmc-gen -m bert.bmc --rerank --embed -f in
}
