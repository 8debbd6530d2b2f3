"""Attention with the dynamic cache of Hugging Face transformers: ms of STEPS steps of one layer that follow FIRST entries, f32, a
JSON list of rounds.

Usage: python hf_attention.py HEADS HEAD_DIM BATCH FIRST STEPS ROUNDS THREADS

Each step appends one entry per sequence by DynamicCache.update() and attends by torch's scaled_dot_product_attention, as
transformers' models do; projections are not computed. `bmc-prof bench` measures the same steps here.
"""

import json
import sys
import time

import torch
import transformers

heads, dim, batch, first, n, rounds, threads = map(int, sys.argv[1:])
torch.set_num_threads(threads)
query, key, value = torch.randn(3, batch, heads, 1, dim)
times = []
with torch.inference_mode():
    for _ in range(rounds):
        cache = transformers.DynamicCache()
        cache.update(*torch.randn(2, batch, heads, first, dim), 0)
        start = time.perf_counter()
        for _ in range(n):
            keys, values = cache.update(key, value, 0)
            torch.nn.functional.scaled_dot_product_attention(query, keys, values)
        times.append((time.perf_counter() - start) * 1e3)
print(json.dumps({"transformers": transformers.__version__, "torch": torch.__version__, "steps": n, "ms": times}))
