"""Our library through its Python package: --kv as in bmc-gen; --type is that of the cache, and f32 or bf16 the precision, too."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../lib/python"))
import driver  # noqa: E402

options = driver.options(("kv", "bmc"))
import bmc  # noqa: E402

model = bmc.Model(options.model)
sessions = {}


def session(sequences, beams):
    if (sequences, beams) not in sessions:
        for old in sessions.values():
            old.close()
        sessions.clear()
        more = {"beams": beams} if beams > 1 else {"drafter": "none"}
        sessions[sequences, beams] = bmc.Batch(model, sequences * beams, threads=options.threads, context=options.context, kv=options.kv,
                                               cache_type=options.type, precision=options.type if options.type in ("f32", "bf16") else "", prefix_cache_bytes=0, **more)
    return sessions[sequences, beams]


def generate(prompts, new, beams):
    batch = session(len(prompts), beams)
    before, clock = batch.stats(), driver.Clock()
    answers = batch.run([{"ids": p, "n": new, "ignore_eos": True, "temp": 0} for p in prompts])
    answer, after = clock.answer([list(one.ids) for one in answers]), batch.stats()
    if after["reused_tokens"] != before["reused_tokens"]:
        return {"error": f"{after['reused_tokens'] - before['reused_tokens']} tokens of prompts were not computed"}
    if beams == 1:
        answer["first"] = (after["prompt_ms"] - before["prompt_ms"]) / 1000
        answer["after"] = sum(len(row) - 1 for row in answer["tokens"])
    return answer


driver.serve({"bmc": bmc.version()}, generate)
