# tests/bench/passk.sh and its sandbox. Expected values are calculated by hand from the samples of
# tests/fixtures/passk.
load ../helper

PROBLEMS=$FIXTURES/passk/problems.jsonl
export TIMEOUT=20 # for an overloaded machine

setup_file() {
    mkdir "$BATS_FILE_TMPDIR/tools"
    ln -s "$(command -v gojq)" "$BATS_FILE_TMPDIR/tools/jq" # starts faster
    sh "$ROOT/tests/bench/sandbox.sh" --check 2>"$BATS_FILE_TMPDIR/refused" || true
}

sandboxed() {
    local refused
    refused=$(<"$BATS_FILE_TMPDIR/refused")
    [[ $refused != @(*"cannot be set up here"*|*needs*) ]] || skip "$refused"
    assert_equal "$refused" "" # other reasons are faults of the sandbox
}

with_python() {
    sandboxed
    [ -x /usr/bin/python3 ] || skip "no /usr/bin/python3 here"
}

sandbox() { sh "$ROOT/tests/bench/sandbox.sh" "$@"; }
passk() { BMC_BIN=$BMC_BIN PATH=$BATS_FILE_TMPDIR/tools:$PATH sh "$ROOT/tests/bench/passk.sh" "$@"; }

@test "pass@k, pass@first and pass@batch of given samples" {
    with_python
    RESULTS=results K="1 2 3" SAMPLES_FROM=$FIXTURES/passk/samples.jsonl ok passk "$PROBLEMS"
    # Of 4 samples 2, 1 and 0 are correct: pass@2 = (5/6 + 1/2) / 3, pass@3 = (1 + 3/4) / 3. Of the
    # best-ranked ones the second is correct.
    assert_line --index 2 "| temperature | batch | tasks | samples | pass@1 | pass@2 | pass@3 | pass@first | pass@batch |"
    assert_line --index 4 "| - | - | 3 | 12 | 25 % | 44.4 % | 58.3 % | 33.3 % | 66.7 % |"
    assert_equal "$(jq -r 'select(.passed) | "\(.task_id) \(.rank)"' results | paste -sd,)" "own/0 1,own/0 2,own/1 0"
    # Without log-probabilities there is no ranking, and with fewer than k samples no pass@k.
    jq -c 'select(.task_id == "own/1") | del(.mean_logprob)' "$FIXTURES/passk/samples.jsonl" | tail -n 2 >two
    K="2 3" SAMPLES_FROM=two LIMIT=2 ok passk "$PROBLEMS"
    assert_line --index 4 "| - | - | 2 | 2 | - | - | - | 0 % |"
}

@test "the problems' own solutions are correct" {
    with_python
    SAMPLES_FROM=canonical ok passk "$PROBLEMS"
    assert_line --index 4 "| - | - | 3 | 3 | 100 % | - | 100 % |"
}

@test "samples are generated, and a task without a finished one has failed" {
    with_python
    model grimm >/dev/null
    BATCHES="2" N=4 LIMIT=1 ok passk "$PROBLEMS" -m "$(model grimm)" --lookup
    assert_line --index 4 "| 0.2 | 2 | 1 | 2 | 0 % | 0 % | 0 % |"
    BATCHES="1" N=500 LIMIT=1 ok passk "$PROBLEMS" -m "$(model grimm)" --lookup --ignore-eos --budget 1ms
    assert_line --index 4 "| 0.2 | 1 | 1 | 0 | - | 0 % | 0 % |"
}

@test "hostile programs are contained, and count as failures" {
    with_python
    attack() { # NAME PROGRAM
        jq -nc --arg name "$1" --arg program "    ${2//$'\n'/$'\n'    }"$'\n' '{task_id: "own/0", name: $name, completion: $program}'
    }
    # Each would be correct if its attack succeeded.
    {
        attack loop $'while True: pass'
        attack forks $'import os\nfor i in range(100):\n    if os.fork() == 0:\n        while True: pass\nreturn sum(numbers)'
        attack file $'open("'"$PWD"$'/escaped", "w")\nreturn sum(numbers)'
        attack network $'import socket\ntry: socket.create_connection(("127.0.0.1", 9), 1)\nexcept ConnectionRefusedError: pass\nreturn sum(numbers)'
        attack output $'print("x" * 5000000)\nreturn sum(numbers)'
        attack memory $'x = bytearray(1 << 30)\nreturn sum(numbers)'
        attack exit $'import os\nos._exit(0)'
    } >attacks
    TIMEOUT=2 RESULTS=results LIMIT=1 SAMPLES_FROM=attacks ok passk "$PROBLEMS"
    assert_line --index 4 "| - | - | 1 | 7 | 0 % | - | 0 % |"
    assert_equal "$(jq -r .result results | head -n 1)" "timed out"
    assert_equal "$(jq -r .passed results | sort | uniq -c | tr -s ' ')" " 7 false"
    [ ! -e escaped ]
}

@test "the sandbox has no network, files, environment or processes of its caller" {
    sandboxed
    SECRET=x ok sandbox sh -c 'ls -a / /old /proc /tmp /dev; env; id -u'
    refute_output --regexp 'SECRET|etc|home|root|work|[1-9][0-9]{2}'
    assert_line usr
    echo input >file
    run sandbox cat "$PWD/file"
    assert_failure 1
    run sandbox bash -c 'echo >/dev/tcp/127.0.0.1/9'
    assert_output --partial "Network is unreachable"
    run sandbox sh -c 'unshare -Um mount -t tmpfs none /usr; mount -o remount,rw /usr; kill -9 1; touch /usr/x'
    assert_failure
    refute [ -e /usr/x ]
    # Processes left behind end.
    ok sandbox sh -c 'sleep 98.7654 >/dev/null 2>&1 &'
    run pgrep -f '^sleep 98.7654'
    assert_failure 1
}

@test "the sandbox limits time, processes, memory and files" {
    sandboxed
    TIMEOUT=0.3 run sandbox sleep 9
    assert_equal "$status" 137
    PROCESSES=8 run sandbox sh -c 'for i in 1 2 3 4 5 6 7 8; do sleep 1 & done; kill 0'
    assert_failure 2
    assert_output --partial "Cannot fork"
    MEMORY_MB=64 run sandbox dd if=/dev/null bs=128M
    assert_failure 1 # not by TIMEOUT
    status=0
    sandbox sh -c 'cat /usr/bin/* /usr/bin/*' >out 2>err || status=$?
    [ "$status" -ne 0 ]
    assert_equal "$(stat -c %s out)" $((1 << 20))
    # The exit status of the command, but for the one that reports the sandbox itself.
    run sandbox sh -c 'exit 7'
    assert_failure 7
    run sandbox sh -c 'exit 125'
    assert_failure 1
}

@test "without a sandbox nothing is run" {
    mkdir fake
    printf '#!/bin/sh\necho "unshare: Operation not permitted" >&2\nexit 1\n' >fake/unshare
    chmod +x fake/unshare
    PATH=$PWD/fake:$PATH run --separate-stderr sandbox touch "$PWD/ran"
    assert_failure 125
    assert_regex "$stderr" 'sandbox: cannot be set up here .*: nothing is run$'
    PATH=$PWD/fake:$PATH SAMPLES_FROM=canonical PYTHON=/usr/bin/env run --separate-stderr passk "$PROBLEMS"
    assert_failure 1
    assert_output ""
    assert_regex "$stderr" 'nothing is run$'
}

@test "unusable problems and samples are refused with their place" {
    refused() { # REGEX FILE
        PYTHON=/usr/bin/env run --separate-stderr passk "$2"
        assert_failure 1
        assert_output ""
        assert_regex "$stderr" "^passk: $1\$"
    }
    refused 'no: no such file' no
    : >problems
    refused '.*/problems: no problem' problems
    jq -c 'if .task_id == "own/1" then del(.test) else . end' "$PROBLEMS" >problems
    refused '.*/problems: problem 2 needs "test", a string' problems
    jq -c '.entry_point = "x);("' "$PROBLEMS" >problems
    refused '.*/problems: own/0: entry_point is no name: x\);\(' problems
    jq -c '.task_id = "x"' "$PROBLEMS" >problems
    refused '.*/problems: x is there twice' problems
    echo '{"task_id": "own/0"}' >samples
    SAMPLES_FROM=samples refused 'sample: needs .*; found: \{"task_id":"own/0"\}' "$PROBLEMS"
}
