"""Perplexity with quantised K and V whose scales are shared by all entries, as in the HTP note, against scales per entry.

Usage: python shared_scales.py MODEL CALIBRATION TEXT ..

MODEL is a folder of Hugging Face's layout; the texts are files of token ids. K (after RoPE) and V are quantised before
attention as bmc-gen --cache-type q8 and q4 do: 8 bits, symmetric integers, with one scale per entry and head; 4 bits, 16 levels
from the minimum, with a scale and a minimum, as f16, per 32 elements. Shared ones follow from the smallest and the largest value of each layer,
head and K or V in the calibration text; larger magnitudes saturate. Prints a JSON object: perplexity by "BITS WHICH", of each
text, too, and the share of values that saturate.
"""

import json
import math
import sys
from pathlib import Path

import torch
import transformers
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

state = {"bits": 0, "shared": None, "range": {}, "cut": 0, "count": 0}


def half(x):
    return x.half().float()


def quantised(x, scale, least, low, high):
    """Rounds x to multiples q of the scale, low <= q <= high, beyond `least`."""
    q = torch.round((x - least) / scale.clamp(min=1e-12))
    state["cut"] += ((q < low) | (q > high)).sum().item()
    state["count"] += q.numel()
    return q.clamp(low, high) * scale + least


def rounded(module, which, x):
    """x is [batch][heads][entries][size]."""
    name = (module.layer_idx, which)
    if state["shared"] == "calibrate":
        state["range"][name] = x.amin((0, 2, 3), keepdim=True), x.amax((0, 2, 3), keepdim=True)
        return x
    if not state["bits"]:
        return x
    if state["bits"] == 8:
        low, high = state["range"][name] if state["shared"] else (x.amin(-1, keepdim=True), x.amax(-1, keepdim=True))
        return quantised(x, torch.maximum(low.abs(), high.abs()) / 127, 0, -127, 127)
    x = x.unflatten(-1, (-1, 32))
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    if state["shared"]:
        low, high = (edge.unsqueeze(-1) for edge in state["range"][name])
    return quantised(x, half((high - low) / 15), half(low), 0, 15).flatten(-2)


def attention(module, query, key, value, attention_mask, scaling=None, **options):
    key, value = rounded(module, "K", key), rounded(module, "V", value)
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    out = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling)
    return out.transpose(1, 2).contiguous(), None


def main():
    folder, calibration, *texts = sys.argv[1:]
    ALL_ATTENTION_FUNCTIONS.register("rounded", attention)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="rounded").eval()

    def loss(path):
        ids = torch.tensor([list(map(int, Path(path).read_text().split()))])
        with torch.inference_mode():
            logits = model(ids).logits[0, :-1]
        return torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum").item(), ids.shape[1] - 1

    state["shared"] = "calibrate"
    loss(calibration)
    result = {}
    for bits, shared in ((0, False), (8, False), (8, True), (4, False), (4, True)):
        state.update(bits=bits, shared=shared, cut=0, count=0)
        sums = [loss(path) for path in texts]
        name = f"{bits} {'shared' if shared else 'entry'}" if bits else "exact"
        result[name] = math.exp(sum(s for s, _ in sums) / sum(n for _, n in sums))
        result[name + " texts"] = [math.exp(s / n) for s, n in sums]
        if bits:
            result[name + " saturated"] = state["cut"] / state["count"]
    print(json.dumps(result))


main()
