#!/bin/sh
# Decoding 32 ragged sequences by bmc_eval() against the loop of bmc-gen --jsonl, in turn; and what the Python
# module costs per token of one sequence.
#   MODEL=tinyllama-q4_0.bmc [ROUNDS=10] [TOKENS=12] [THREADS=2] sh tests/bench/api.sh
set -eu
export BMC_CONFIG=none # no defaults of this account
cd "$(dirname "$0")/../.."
: "${MODEL:?a model file}" "${ROUNDS:=10}" "${TOKENS:=12}" "${THREADS:=2}"
[ -n "${BUILT:-}" ] || make -s all build/gcc/bench/api_eval
echo "bmc_eval tok/s, bmc-gen's loop tok/s, ratio"
build/gcc/bench/api_eval "$MODEL" 32 "$TOKENS" "$THREADS" "$ROUNDS" | awk '{ print; print | "cat 1>&2" }' | sort -k3n |
    awk '{ r[NR] = $3 } END { printf "median ratio %.3f\n", (r[int((NR + 1) / 2)] + r[int(NR / 2) + 1]) / 2 }'
[ -z "${PYTHON-python}" ] || PYTHONPATH=lib/python BMC_LIBRARY=$PWD/lib/libbmc.so PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 - "$MODEL" "$THREADS" <<'END'
import sys, time, bmc
model = bmc.Model(sys.argv[1], threads=int(sys.argv[2]), context=256)
for name, run in (("generate", lambda: model.generate([1, 100, 200], max_tokens=33, ignore_eos=True)),
                  ("stream", lambda: list(model.stream([1, 100, 200], max_tokens=33, ignore_eos=True)))):
    run()
    found = []
    for _ in range(5):
        model.session.truncate(0)
        before, start = model.session.stats(), time.perf_counter()
        run()
        wall, after = 1e3 * (time.perf_counter() - start), model.session.stats()
        inside = after["prompt_ms"] + after["generate_ms"] - before["prompt_ms"] - before["generate_ms"]
        found.append(((wall - inside) / wall, wall / 33, (wall - inside) / 33))
    share, wall, outside = sorted(found)[2]
    print(f"Python {name}(): {wall:.2f} ms per token, {1e3 * outside:.0f} us of them outside forward passes and sampling: {100 * share:.2f} % (median of 5)")
END
