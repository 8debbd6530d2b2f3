#!/usr/bin/env bash
# Tokens per second of servers with 32 clients, in turns: bmc-serve beside bmc-gen --jsonl -np 32, and other engines' servers; and
# bmc-serve's time to first token with a cached prefix of 4,000 tokens.
#
#   MODEL           of bmc: a .bmc or GGUF file, or a folder (default: models.d/real's)
#   LLAMA_PYTHON    a Python with llama-cpp-python's server; GGUF: its model (default MODEL)
#   LLAMA_SERVER    llama-server of llama.cpp, with the same model; LLAMA_OPTIONS: further options of it
#   VLLM_PYTHON     a Python with vLLM; VLLM_MODEL: its model, a folder (default MODEL)
#   ROUNDS (3), N (96) requests, TOKENS (64) of each, THREADS (all cores), NP (32)
#
# Engines whose variables are not set are left out.
set -euo pipefail
cd "$(dirname "$0")/../.."

MODEL=${MODEL:-models.d/real/SmolLM2-135M-Instruct.Q4_1.bmc}
ROUNDS=${ROUNDS:-3} N=${N:-96} TOKENS=${TOKENS:-64} THREADS=${THREADS:-$(nproc)} NP=${NP:-32}
PYTHON=${PYTHON:-python3}
export BMC_CONFIG=none
scratch=$(mktemp -d)
pid=
stop() {
    [ -z "$pid" ] || { kill "$pid" && wait "$pid"; } 2>/dev/null || true
    pid=
}
trap 'stop; rm -rf "$scratch"' EXIT

free_port() { $PYTHON -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# measure NAME MODEL-NAME URL-THAT-ANSWERS COMMAND.. : starts a server at $port, and measures it.
measure() {
    "${@:4}" >"$scratch/log" 2>&1 &
    pid=$!
    for ((i = 0; i < 1800; i++)); do
        if curl -sf -o /dev/null "http://127.0.0.1:$port$3"; then break; fi
        kill -0 $pid || { tail "$scratch/log" >&2; exit 1; }
        sleep 0.1
    done
    echo "$1: $($PYTHON tests/bench/serve.py speed "http://127.0.0.1:$port" "$2" "$N" 32 "$TOKENS")"
    stop
}

for ((round = 1; round <= ROUNDS; round++)); do
    echo "bmc-gen --jsonl: $($PYTHON tests/bench/serve.py gen "$MODEL" "$N" "$NP" "$TOKENS")"
    port=$(free_port)
    measure bmc-serve bmc /health bin/bmc-serve -q -m "$MODEL" --port "$port" -np "$NP" -t "$THREADS"
    port=$(free_port)
    [ -z "${LLAMA_PYTHON:-}" ] || measure llama-cpp-python m /v1/models "$LLAMA_PYTHON" -m llama_cpp.server --model "${GGUF:-$MODEL}" --host 127.0.0.1 --port "$port" --n_ctx 2048 --n_threads "$THREADS"
    # shellcheck disable=SC2086 # words
    [ -z "${LLAMA_SERVER:-}" ] || measure llama-server m /health "$LLAMA_SERVER" -m "${GGUF:-$MODEL}" --host 127.0.0.1 --port "$port" -np "$NP" -c $((NP * 512)) -t "$THREADS" ${LLAMA_OPTIONS:-}
    [ -z "${VLLM_PYTHON:-}" ] || measure vllm "${VLLM_MODEL:-$MODEL}" /health "$VLLM_PYTHON" -m vllm.entrypoints.openai.api_server --model "${VLLM_MODEL:-$MODEL}" --host 127.0.0.1 --port "$port" --max-model-len 2048 --max-num-seqs "$NP"
done
$PYTHON tests/bench/serve.py ttft "$MODEL"
