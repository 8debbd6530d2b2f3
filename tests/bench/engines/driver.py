"""The loop that every engine's driver runs: a request per line of standard input, an answer per line of standard output.

A request is {"prompts": [[id ..] ..], "new": tokens per prompt, "beams": 1}; the answer {"tokens": [[id ..] ..], "seconds":
of the whole call, "first": seconds until every sequence had a token, or null if the engine doesn't say, "after": tokens
generated later than that}, or {"error": one line}. The first line that a driver writes has the versions.
"""

import argparse
import json
import os
import sys
import time

out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # an engine's messages are no answers


def options(*more):
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--type", choices=("f32", "bf16", "f16", "q8", "q4"), default="bf16")
    for name, value in (("threads", os.cpu_count()), ("sequences", 128), ("context", 2304)):
        parser.add_argument("--" + name, type=int, default=value)
    for name, value in more:
        parser.add_argument("--" + name, default=value)
    found = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS=str(found.threads), HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    return found


class Clock:
    """Times a call; step(n) after each forward pass that ended with n tokens in all sequences, every one of which had some."""

    def __init__(self):
        self.first, self.had, self.begin = None, 0, time.perf_counter()

    def step(self, tokens):
        if self.first is None:
            self.first, self.had = time.perf_counter() - self.begin, tokens

    def answer(self, tokens):
        seconds, total = time.perf_counter() - self.begin, sum(map(len, tokens))
        return {"seconds": seconds, "first": self.first, "after": total - self.had if self.first else None, "tokens": tokens}


def serve(versions, generate):
    print(json.dumps(versions), file=out, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = generate(request["prompts"], request["new"], request.get("beams", 1))
        except Exception as error:  # of any engine: recorded in the cell
            answer = {"error": (f"{type(error).__name__}: {error}".strip().splitlines() or ["?"])[0][:300]}
        print(json.dumps(answer), file=out, flush=True)
