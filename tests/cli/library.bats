# The library in other programs: the examples, and the module for Python.
load ../helper

setup_file() { model grimm >/dev/null; }

setup() {
    mkdir "$BATS_TEST_TMPDIR/here" && cd "$BATS_TEST_TMPDIR/here" || return 1
    if sanitized; then skip "the library needs its sanitizer"; fi
    template=$ROOT/models.d/chat/chatml.jinja
}

example() { # NAME
    gcc -Wall -Wextra -Werror -I"$ROOT/lib" "$ROOT/tests/example/$1.c" -L"$ROOT/lib" -lbmc -ljansson -Wl,-rpath,"$ROOT/lib" -o "$1"
}

# The answer to messages by bmc-gen.
answer() { # MESSAGES N
    jq -nc --argjson m "$1" --argjson n "$2" '{messages: $m, max_tokens: $n}' | bmc-gen -q --jsonl -m "$(model grimm)" --chat-template "$template" | jq -r .text
}

@test "example chat: two turns with the answers of bmc-gen" {
    example chat
    first=$(answer '[{"role": "user", "content": "Who are you?"}]' 8)
    second=$(answer "$(jq -nc --arg a "$first" '[{role: "user", content: "Who are you?"}, {role: "assistant", content: $a}, {role: "user", content: "And?"}]')" 8)
    printf 'Who are you?\nAnd?\n' >said
    run --separate-stderr ./chat "$(model grimm)" '{"max_tokens": 8}' "$template" <said
    assert_success
    assert_equal "$output" "$first"$'\n'"$second"
    run --separate-stderr ./chat "$(model grimm)" '{"max_tokens": 8}' <said
    assert_failure 1
    assert_regex "$stderr" '^chat: .*has no chat format'
}

# Sends each line of standard input over a connection of its own, all before reading; prints the answers.
clients() { # SOCKET
    perl -MIO::Socket::UNIX -e '
        my @s = map { my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die "$!"; print $s $_; $s->flush; shutdown($s, 1); $s } <STDIN>;
        print map { my $s = $_; <$s> } @s' "$1"
}

@test "example server: requests of several clients, with the texts of bmc-gen" {
    example server
    ./server "$(model grimm)" socket 3 3>&- &
    server=$!
    wait_until test -S socket
    printf '%s\n' '{"prompt": "Once upon a time", "n": 12}' '{"prompt": "The king", "n": 7}' '{"prompt": 5}' 'no JSON' '{"prompt": "A", "n": 9}' >requests
    clients socket <requests >answers
    grep -v 'no JSON\|5}' requests | bmc-gen -q --jsonl -m "$(model grimm)" | jq -r .text >expected
    jq -r 'select(.text) | .text' answers | diff expected -
    assert_equal "$(jq -rc 'select(.error) | .error' answers | wc -l)" 2
    assert_equal "$(sed -n 3p answers)" "$(sed -n 3p requests | bmc-gen -q --jsonl -m "$(model grimm)" 2>/dev/null | jq -c '{error: (.error | sub("^line 1: "; ""))}')"
    kill "$server"
    wait "$server"
    [ ! -e socket ]
}

teardown() { [ -z "$server" ] || kill "$server" 2>/dev/null || true; }

@test "example search: lines by cosine similarity of their embeddings" {
    example search
    printf '%s\n' 'The king had a daughter.' 'A fox ran into the wood.' 'The queen and her daughter sat in the palace.' >lines
    { echo 'The queen'; cat lines; } | bmc-gen -q --embed -m "$(model grimm)" >embeddings
    jq -rs --rawfile text lines '($text | split("\n")) as $t | .[0].embedding as $q
        | [.[1:] | to_entries[] | [([.value.embedding, $q] | transpose | map(.[0] * .[1]) | add), $t[.key]]] | sort_by(-.[0])[] | .[1]' embeddings >expected
    run --separate-stderr ./search "$(model grimm)" 'The queen' 2 <lines
    assert_success
    [ -z "$stderr" ]
    cut -d' ' -f2- <<<"$output" | diff <(head -n 2 expected) -
}

python_here() {
    [ -x /usr/bin/python3 ] || skip "no /usr/bin/python3 here"
    export PYTHONPATH=$ROOT/lib/python BMC_LIBRARY=$ROOT/lib/libbmc.so PYTHONDONTWRITEBYTECODE=1
}

@test "Python: texts, hashes, log-probabilities and errors as those of the programs" {
    python_here
    TEXT=$(bmc-gen -q -m "$(model grimm)" -p 'Once upon a time' -n 12 -c 256 --stats stats.json)
    HASH=$(jq -r .logits_hash stats.json)
    SAMPLED=$(bmc-gen -q -m "$(model grimm)" -p A -n 20 --temp 0.9 --seed 3)
    LARGE_SEED=$(bmc-gen -q -m "$(model grimm)" -p A -n 20 --temp 0.9 --seed 18446744073709551615)
    CHOICES=$(echo '{"prompt": "A", "n": 8, "temp": 0.9, "seed": 3, "n_choices": 3}' | bmc-gen -q -m "$(model grimm)" --jsonl | jq -c '[.choices[].text]')
    ANSWER=$(answer '[{"role": "user", "content": "Who are you?"}]' 10)
    SCORE=$(echo '{"prompt": "Once upon a time"}' | bmc-gen -q -m "$(model grimm)" --score --jsonl | jq -r .sum_logprob)
    BEAMS=$(echo '{"prompt": "The king", "n": 9}' | bmc-gen -q -m "$(model grimm)" --jsonl --beams 3 --length-penalty 0.5 | jq -c .beams)
    export TEXT HASH SAMPLED LARGE_SEED CHOICES ANSWER SCORE BEAMS
    run /usr/bin/python3 "$ROOT/tests/unit/api/python.py" "$(model grimm)" "$template"
    assert_success
    assert_output passed
    /usr/bin/python3 -c 'import numpy' 2>/dev/null || return 0
    mkdir without
    echo 'raise ImportError' >without/numpy.py
    PYTHONPATH=$PWD/without:$PYTHONPATH run /usr/bin/python3 "$ROOT/tests/unit/api/python.py" "$(model grimm)" "$template"
    assert_success
    assert_output passed
}

@test "Python: asyncio: the same texts, other tasks meanwhile, cancelled tasks" {
    python_here
    run /usr/bin/python3 "$ROOT/tests/unit/api/python_async.py" "$(model grimm)" "$template"
    assert_success
    assert_output passed
}

@test "Python: a wheel has the library and what models need; a source distribution has what the library is made of" {
    python_here
    if sanitized; then skip "the library needs its sanitizer"; fi
    unset BMC_LIBRARY
    made() { MAKEFLAGS= /usr/bin/python3 -c "import build_backend; print(build_backend.$1('.'))" | tail -n 1; }
    wheel=$(made build_wheel)
    [[ $wheel =~ ^bmc-[0-9.]+-py3-none-linux_[a-z0-9_]+\.whl$ ]] || fail "$wheel"
    /usr/bin/python3 -m zipfile -e "$wheel" site
    while IFS=, read -r name hash size; do
        assert_equal "$name $hash $size" "$name sha256=$(sha256sum <"site/$name" | cut -c 1-64 | tr a-f A-F | basenc -d --base16 | basenc --base64url | tr -d =) $(stat -c %s "site/$name")"
    done < <(head -n 4 site/*.dist-info/RECORD)
    assert_equal "$(cut -d, -f 1 site/*.dist-info/RECORD | sort)" "$(cd site && find . -type f | cut -c 3- | sort)"
    cp site/bmc/libbmc.so own.so
    PYTHONPATH=$PWD/site run /usr/bin/python3 -c 'import bmc, sys; print(bmc.Model(sys.argv[1]).generate("Once upon a time", max_tokens=12)); print([l.split()[-1] for l in open("/proc/self/maps") if "libbmc" in l][0])' "$(model grimm)"
    assert_success
    assert_output "$(bmc-gen -q -m "$(model grimm)" -p 'Once upon a time' -n 12)
$PWD/site/bmc/libbmc.so"
    assert_equal "$(find site/bmc/models.d -name '*.jinja' | wc -l)" "$(ls "$ROOT"/models.d/chat/*.jinja | wc -l)"
    sdist=$(made build_sdist)
    tar -xf "$sdist"
    [ -s "${sdist%.tar.gz}/PKG-INFO" ]
    # What make would compile is there.
    assert_equal "$(make -C "${sdist%.tar.gz}/src" -s --no-print-directory -n lib/libbmc.so BUILD=b CC=gcc 2>&1 | grep -oE 'lib/[a-z0-9_/]+\.(c|proto)' | sort -u)" \
        "$(make -C "$ROOT" -s --no-print-directory -n lib/libbmc.so BUILD="$PWD/b" LIBBMC="$PWD/libbmc.a" CC=gcc 2>&1 | grep -oE 'lib/[a-z0-9_/]+\.(c|proto)' | sort -u)"
}

@test "Python: pip installs it into a new virtual environment" {
    [ -n "$BMC_FULL" ] || skip "BMC_FULL=1 runs pip"
    python_here
    if sanitized; then skip "the library needs its sanitizer"; fi
    /usr/bin/python3 -m pip --version >/dev/null 2>&1 || skip "no pip here"
    unset BMC_LIBRARY PYTHONPATH
    /usr/bin/python3 -m venv --without-pip env
    MAKEFLAGS= /usr/bin/python3 -m pip -q --disable-pip-version-check --python env/bin/python install "$ROOT/lib/python"
    run env/bin/python -c 'import bmc, sys; print(bmc.__file__); print(bmc.Model(sys.argv[1]).generate("Once upon a time", max_tokens=12))' "$(model grimm)"
    assert_output --regexp "^$PWD/env/lib/python3[^/]*/site-packages/bmc/__init__.py
$(bmc-gen -q -m "$(model grimm)" -p 'Once upon a time' -n 12)\$"
}

@test "Python: wrong arguments, threads, signals, models that are dropped, the end of the process" {
    python_here
    run /usr/bin/python3 "$ROOT/tests/unit/api/python_misuse.py" "$(model grimm)" "$template" "$PWD"
    assert_success
    assert_output passed
}

@test "Python: LoRA adapters of a model, of requests and of sequences, with the ids of PEFT" {
    python_here
    bmc-convert "$FIXTURES/families/llama-yarn" -o model.bmc >/dev/null 2>&1
    run /usr/bin/python3 - "$FIXTURES/lora" <<'END'
import json, sys, bmc
folder = sys.argv[1]
cases = json.load(open(f"{folder}/reference.json"))
model = bmc.Model("model.bmc", lora=[f"{folder}/llama", (f"{folder}/second/adapter_model.safetensors", -0.75)], precision="f32")
for one, all_of in zip(cases["llama"]["cases"], cases["both"]["cases"]):
    n = len(one["greedy"])
    assert model.generate(all_of["ids"], max_tokens=n, ignore_eos=True).ids == all_of["greedy"]
    assert model.generate(one["ids"], max_tokens=n, ignore_eos=True, lora=[0]).ids == one["greedy"]
    model.session.set_lora([1, 0])
    model.session.truncate(0)
    logits = model.session.eval(one["ids"])[0]
    assert max(abs(float(a) - b) for a, b in zip(logits, one["last_logits"])) < 5e-5
    model.session.set_lora(None)
    assert model.session.tokens() == []
assert model.lora == 2 and bmc.Model("model.bmc", lora=f"{folder}/llama").lora == 1
END
    assert_success
    assert_output ''
}

@test "Python: GGUF files and folders are converted on first use into the folder that the programs share" {
    python_here
    export XDG_CACHE_HOME=$PWD/cache
    expected=$(bmc-gen -q -m "$(model grimm)" -p 'The king' -n 4)
    run /usr/bin/python3 - "$(folder grimm)" "$FIXTURES/gguf/qwen2-like.gguf" <<'END'
import os, sys, bmc
for _ in range(2):
    with bmc.Model(sys.argv[1]) as model:
        text = str(model.generate("The king", 4))
        assert [name for name in os.listdir("cache/bmc") if name != "lock"][0].startswith("grimm-")
for options, sentence in (({"convert_dir": ""}, "is a GGUF file"), ({"convert_dir": "/proc/none"}, "cannot create the folder"),
                          ({"convert_dir": "cache/bmc"}, None)):
    try:
        bmc.Model(sys.argv[2], **options).close()
        assert not sentence
    except bmc.Error as error:
        assert sentence and sentence in str(error), error
os.environ["BMC_CACHE_SIZE"] = "little"
try:
    bmc.Model(sys.argv[2])
    raise AssertionError
except bmc.Error as error:
    assert "`convert_size`" in str(error), error
print(text)
END
    assert_success
    assert_output "$expected"
    ok bmc-gen -q -m "$(folder grimm)" -p 'The king' -n 4
}

@test "Python: the example script plots the time of generation against T" {
    python_here
    run /usr/bin/python3 "$ROOT/tests/example/plot_allocations.py" "$(model grimm)" chart.svg 24
    assert_success
    assert_equal "$(cut -f1 <<<"$output" | paste -sd' ')" 'T 1 2 4 8 16'
    grep -q '^<svg .*</svg>$' chart.svg
}

@test "bmc.py has the members of the structures of bmc.h, in their order" {
    python_here
    for name in model_options options stats input request result callbacks; do
        sed -n "/^struct bmc_$name {/,/^};/p" "$ROOT/lib/bmc.h" | perl -0pe 's{/\*.*?\*/}{}gs' |
            perl -ne 'if (/\(\*(\w+)\)\(/) { print "$1\n" } elsif (!/\(|\)/) { print "$1\n" while /(\w+)(\[\d+\])?[;,]/g }' >"$name.header"
        /usr/bin/python3 -c "import bmc; print(*[f[0] for f in bmc._$(sed -E "s,(^|_)(.),\U\2,g" <<<"$name")._fields_], sep='\n')" | diff "$name.header" -
    done
}
