# bmc-serve: answers over HTTP, which are those of bmc-gen --jsonl --openai, --embed and --rerank; limits, keys, cancellation, the end.
load ../helper

setup_file() {
    [ -x "$BMC_BIN/bmc-serve" ] || skip "bmc-serve is not built: libmicrohttpd is missing"
    model grimm >/dev/null
    cd "$BATS_FILE_TMPDIR" || return 1
    serve --socket ./socket --max-body 64K -np 4 2>log &
    echo $! >pid
    wait_until curl -sf --unix-socket socket http://localhost/health -o /dev/null
}

teardown_file() {
    [ ! -e "$BATS_FILE_TMPDIR/pid" ] || kill "$(<"$BATS_FILE_TMPDIR/pid")"
}

serve() { exec "$BMC_BIN/bmc-serve" -m "$(model grimm)" --chat-template chatml -t 1 "$@"; }

# ask URL [CURL-OPTION..]: of the server of this file.
ask() { curl -sS --unix-socket "$BATS_FILE_TMPDIR/socket" "http://localhost$1" "${@:2}"; }
status_of() { ask "$@" -o /dev/null -w '%{http_code}'; }

chat='{"messages": [{"role": "user", "content": "Once upon a time"}], "max_tokens": 12, "temperature": 1, "seed": 7}'

@test "answers and hashes are those of bmc-gen --jsonl --openai, however requests interleave" {
    jq -c '., . + {seed: 8, n: 3}, . + {logprobs: true, top_logprobs: 2}, . + {temperature: 0, response_format: {type: "json_object"}}' <<<"$chat" >in
    jq -c 'del(.messages) + {prompt: "The wolf", stop: "the", max_tokens: (10, 30), logprobs: 1}' <<<"$chat" >>in
    ok bmc-gen -q -m "$(model grimm)" --chat-template chatml --jsonl --openai -np 3 <in
    jq -c 'del(.id, .created, .model, .usage.prompt_tokens_details)' <<<"$output" >want
    n=0
    while read -r body; do
        url=/v1/chat/completions
        [[ $body == *messages* ]] || url=/v1/completions
        for stream in false true; do
            ask $url -d "$(jq -c ". + {stream: $stream, stream_options: {include_usage: true}}" <<<"$body")" >got-$n-$stream &
        done
        n=$((n + 1))
    done <in
    wait
    for ((i = 0; i < n; i++)); do
        sed -n "$((i + 1))p" want >one
        jq -c 'del(.id, .created, .model, .usage.prompt_tokens_details)' "got-$i-false" | diff one -
        # A stream has the same text, numbers of tokens and hash.
        sed -n 's/^data: {/{/p' "got-$i-true" | jq -sc '[(map(.choices[]) | group_by(.index) | map([(map(.delta.content // .text // "") | add), last.finish_reason, (map(.logprobs.content[]?, .logprobs.tokens[]?) | length)])), (map(.logits_hash // empty) | unique), (last.usage | del(.prompt_tokens_details))]' >streamed
        jq -c '[(.choices | map([(.message.content // .text), .finish_reason, ([.logprobs.content[]?, .logprobs.tokens[]?] | length)])), [.logits_hash], .usage]' one | diff - streamed
        assert_equal "$(grep . "got-$i-true" | tail -n 1)" 'data: [DONE]'
    done
}

@test "what cannot be answered has a status and a reason" {
    assert_equal "$(ask /v1/completions -d '{"promt": 1}' | jq -r '.error | .type, .message')" $'invalid_request_error\nunknown member "promt"; did you mean "prompt"? (--lenient ignores unknown ones)'
    assert_equal "$(ask /v1/chat/completions -d '{"prompt": "x"}' | jq -r .error.message)" 'there is no "messages", which /v1/chat/completions needs'
    assert_equal "$(status_of /v1/completions -d '{"prompt"')" 400
    assert_equal "$(ask /v1/embeddings -d '{"input": ["a", "b"], "model": "any"}' | jq -c '[.data[].embedding | length > 9]')" '[true,true]'
    assert_equal "$(status_of /v1/nothing)" 404
    assert_equal "$(status_of /v1/models/other)" 404
    assert_equal "$(status_of /v1/completions)" 405
    head -c 70000 /dev/zero | tr '\0' ' ' >long
    assert_equal "$(status_of /v1/completions -d @long)" 413
    assert_equal "$(status_of /v1/models -H 'Origin: https://example.org')" 403
    assert_equal "$(ask /v1/models | jq -r '.data[].id')" grimm
    assert_equal "$(ask /metrics | sed -n 's/^bmc_requests_total{status="4xx"} //p')" 8
    refute grep -q 'Once\|promt' "$BATS_FILE_TMPDIR/log"
}

@test "a client that goes away cancels its request" {
    counted() { ask /metrics | grep -qx "bmc_requests_$1 $2"; }
    for stream in true false; do
        wait_until counted in_progress 0
        curl -sS --unix-socket "$BATS_FILE_TMPDIR/socket" http://x/v1/completions -o out \
            -d '{"prompt": "Once", "ignore_eos": true, "max_tokens": 100000, "stream": '$stream'}' &
        wait_until counted in_progress 1
        kill $!
        wait $! || true
    done
    wait_until counted cancelled_total 2
    wait_until counted in_progress 0
}

# with_server COMMAND OPTION..: runs it with a server at ./other.
with_server() {
    local pid rc=0
    "$BMC_BIN/bmc-serve" --socket ./other -t 1 ${quiet--q} "${@:2}" 2>>other.log &
    pid=$!
    wait_until curl -sf --unix-socket other http://x/health -o /dev/null
    $1 || rc=$?
    kill $pid
    wait $pid || assert_equal $? 143
    return $rc
}
other() { curl -sS --unix-socket other "http://x$1" -d "$2"; }

@test "a model without an LM head answers requests for embeddings" {
    bmc-convert -q "$FIXTURES/encoders/nomic-bert" -o nomic.bmc
    embeds() {
        other /v1/embeddings '{"input": ["a", "the king"]}' | jq -c '[.data[].embedding]' >got
        assert_equal "$(other /v1/completions '{"prompt": "x"}' | jq -r .error.message)" 'the model nomic has no LM head: it answers /v1/embeddings only'
    }
    with_server embeds -m nomic.bmc --memory 4M
    bmc-gen -q -m nomic.bmc --embed --jsonl <<<'{"text": "a"}
{"text": "the king"}' | jq -sc 'map(.embedding)' | diff - got
}

@test "rerankers answer /v1/rerank, as Jina's and Cohere's servers do, with the scores of bmc-gen --rerank; other models say that they cannot" {
    ranks() {
        bmc-gen -q -m "$name.bmc" --rerank <<<"$body" >one
        other /v1/rerank "$(jq -c '. + {model: "any"}' <<<"$body")" >got
        jq -c '{object: "list", results: [.results[] | {index, relevance_score: .score, document: (.document | if type == "string" then {text: .} else . end)}],
            model: "any", usage: {prompt_tokens: .tokens, total_tokens: .tokens}}' one | diff - <(jq -c . got) || return 1
        assert_equal "$(jq '.results | length' got)" 2
        assert_equal "$(other /v1/rerank '{"query": "x", "documents": ["y", 5]}' | jq -r .error.message)" 'document 1 is an integer, a string or an object with "text" is expected'
        assert_equal "$(other /v1/rerank "$(jq -nc '{query: "x", documents: ["y", "a " * 999]}')" | jq -r '.error | .code, .message' | sed 's/[0-9]\+ tokens/N tokens/')" \
            $'context_length_exceeded\ndocument 1: the text has N tokens, the context holds '"$context: shorten it"
        assert_equal "$(other /v1/rerank '{"prompt": "x"}' | jq -r .error.message)" 'unknown member "prompt" (--lenient ignores unknown ones)'
    }
    body='{"query": "what is a cat", "documents": ["a ship", {"text": "an animal", "url": 1}, "a cat is"], "top_n": 2, "return_documents": true}'
    quiet=
    for name in bert qwen3; do
        context=128
        [ $name = bert ] || context=512
        bmc-convert -q "$FIXTURES/rerankers/$name" -o $name.bmc
        with_server ranks -m $name.bmc --memory 64M
        assert_equal "$name $(grep -c "has no classifier.s head: scores are its answers" other.log)" "$name $([ $name = bert ]; echo $?)"
    done
    assert_equal "$(ask /v1/rerank -d "$body" | jq -r .error.message | sed 's/^the model [^:]*: //')" "cannot rerank: it has no classifier's head, and no token \"yes\"; use a reranker"
}

@test "--memory and --time-limit hold for embeddings, too" {
    expect_error 1 '--memory 9K leaves 8064 bytes for requests, and the KV cache of one has at least [0-9]+: raise it' \
        "$BMC_BIN/bmc-serve" -m "$(model grimm)" --socket ./other --memory 9K
    limits() {
        assert_equal "$(other /v1/embeddings "$(jq -nc '{input: ("a " * 900)}')" | jq -r .error.message | sed 's/[0-9]\+/N/g')" 'the text has N tokens, the context holds N: shorten it'
        embeds() { other /v1/embeddings '{"input": "a"}' | jq -e '.data | length == 1'; }
        wait_until embeds # a busy machine may need longer than the limit
        jq -nc '{input: [range(2000) | "a " * 200]}' >long
        assert_equal "$(other /v1/embeddings @long | jq -r .error.message)" 'the request took longer than --time-limit allows, or was cancelled'
    }
    with_server limits -m "$(model grimm)" --memory 16M --time-limit 1
    # of a model whose cache has recurrent states only, too
    bmc-convert -q "$FIXTURES/families/mamba2" -o mamba2.bmc
    answers() { assert_equal "$(other /v1/completions '{"prompt": "a", "max_tokens": 2, "ignore_eos": true}' | jq .usage.completion_tokens)" 2; }
    with_server answers -m mamba2.bmc --memory 16M
}

@test "keys, and the addresses that need them" {
    expect_serve() { expect_error 2 "$1" "$BMC_BIN/bmc-serve" -m "$(model grimm)" "${@:2}"; }
    expect_serve '--listen needs --api-key-file' --listen 0.0.0.0
    : >none
    expect_error 1 'has no key' "$BMC_BIN/bmc-serve" -m "$(model grimm)" --api-key-file none --port 0
    printf 'first\nsecond\n' >keys
    serve --socket ./other --api-key-file keys -q &
    pid=$!
    code() { curl -s --unix-socket other http://x/v1/models -o /dev/null -w '%{http_code}' "$@"; }
    wait_until code
    assert_equal "$(code) $(code -H 'Authorization: Bearer second') $(code -H 'Authorization: Bearer secon')" '401 200 401'
    kill $pid
    wait $pid || assert_equal $? 143
    [ ! -e other ]
}

@test "systemd's socket and notes; SIGTERM lets requests end, for --drain seconds" {
    cat >activate.pl <<'END'
use Socket;
use POSIX ();
my ($notes, $listen);
socket($notes, AF_UNIX, SOCK_DGRAM, 0) && bind($notes, pack_sockaddr_un("notes")) or die;
$^F = 10;
socket($listen, AF_UNIX, SOCK_STREAM, 0) && bind($listen, pack_sockaddr_un("passed")) && listen($listen, 9) or die;
my $child = fork;
if (!$child) {
    POSIX::dup2(fileno $listen, 3);
    ($ENV{LISTEN_PID}, $ENV{LISTEN_FDS}, $ENV{NOTIFY_SOCKET}) = ($$, 1, "$ENV{PWD}/notes");
    exec @ARGV;
}
$SIG{TERM} = sub { kill TERM => $child };
$| = 1;
for (1, 2) { undef $!; redo if !defined recv($notes, my $state, 99, 0); print "$state\n" }
waitpid $child, 0;
END
    for drain in 3000 0; do
        rm -f notes passed out states
        perl activate.pl "$BMC_BIN/bmc-serve" -m "$(model grimm)" -q --drain $drain >states &
        pid=$!
        wait_until grep -q READY=1 states
        curl -sN --unix-socket passed http://x/v1/completions -d '{"prompt": "Once", "ignore_eos": true, "max_tokens": 900, "stream": true}' >out &
        client=$!
        wait_until test -s out
        kill $pid
        wait $client $pid
        assert_equal "$(paste -sd ' ' states)" 'READY=1 STOPPING=1'
        sed -n 's/^data: {/{/p' out | tail -n 1 | jq -c '.choices[0].finish_reason // .error.code' >end
        assert_equal "$(<end)" "$([ $drain = 0 ] && echo '"server_error"' || echo '"length"')"
    done
}
