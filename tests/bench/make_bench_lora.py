#!/usr/bin/env python3
"""Writes LoRA adapters of random weights as PEFT saves them, for benchmarks.

Usage: python make_bench_lora.py OUTDIR COUNT RANK HIDDEN KV FFN LAYERS      (TinyLlama: 2048 256 5632 22)
"""
import json
import os
import sys

import numpy
from safetensors.numpy import save_file

out, numbers = sys.argv[1], [int(x) for x in sys.argv[2:]]
count, rank, hidden, kv, ffn, layers = numbers
SIZES = {"self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (hidden, kv), "self_attn.v_proj": (hidden, kv), "self_attn.o_proj": (hidden, hidden),
         "mlp.gate_proj": (hidden, ffn), "mlp.up_proj": (hidden, ffn), "mlp.down_proj": (ffn, hidden)}
for n in range(count):
    random = numpy.random.default_rng(n)
    tensors = {}
    for layer in range(layers):
        for name, (inputs, outputs) in SIZES.items():
            key = f"base_model.model.model.layers.{layer}.{name}"
            tensors[f"{key}.lora_A.weight"] = (random.standard_normal((rank, inputs)) * 0.01).astype(numpy.float32)
            tensors[f"{key}.lora_B.weight"] = (random.standard_normal((outputs, rank)) * 0.01).astype(numpy.float32)
    folder = os.path.join(out, f"adapter{n}")
    os.makedirs(folder, exist_ok=True)
    save_file(tensors, os.path.join(folder, "adapter_model.safetensors"))
    with open(os.path.join(folder, "adapter_config.json"), "w") as config:
        json.dump({"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": sorted(name.split(".")[1] for name in SIZES)}, config)
