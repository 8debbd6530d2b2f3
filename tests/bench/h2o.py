"""Heavy-Hitter Oracle (H2O; Zhang and others, 2023), which evicts KV entries by attention scores, over transformers.

    python h2o.py MODEL.gguf SHARE THREADS <REQUESTS >ANSWERS

Requests (prompt, n) and answers (text) are those of `bmc-gen --jsonl --temp 0`. Each KV head keeps SHARE of the prompt's entries:
half of them the last ones, the others those with the largest sums of attention probabilities, over all queries of its group
so far. Entries are evicted after every 16 tokens of the prompt and every generated one; keys stay rotated by their
positions. Needs torch, transformers, gguf; models of the llama family.
"""

import json
import sys
from pathlib import Path

import torch
import transformers

CHUNK = 16


def evict(cache, scores, budget):
    for i, (layer, score) in enumerate(zip(cache.layers, scores)):
        entries, recent = score.shape[1], budget // 2
        if entries > budget:
            heavy = score[:, :entries - recent].topk(budget - recent).indices.sort().values
            keep = torch.cat([heavy, torch.arange(entries - recent, entries).expand(len(score), -1)], 1)
            rows = keep[None, :, :, None].expand(-1, -1, -1, layer.keys.shape[-1])
            layer.keys, layer.values, scores[i] = layer.keys.gather(2, rows), layer.values.gather(2, rows), score.gather(1, keep)


def answer(model, ids, n, share):
    cache, scores, out = transformers.DynamicCache(), [], []
    chunks = [ids[at:at + CHUNK] for at in range(0, len(ids), CHUNK)]
    position = 0
    while len(out) < n:
        chunk = chunks.pop(0) if chunks else out[-1:]
        past = scores[0].shape[1] if scores else 0
        mask = torch.zeros(len(chunk), past + len(chunk))
        mask[:, past:] = torch.full((len(chunk), len(chunk)), float("-inf")).triu(1)
        positions = torch.arange(position, position + len(chunk))
        step = model(torch.tensor([chunk]), past_key_values=cache, attention_mask=mask[None, None], position_ids=positions[None], output_attentions=True)
        sums = [p[0].sum(1).view(model.config.num_key_value_heads, -1, past + len(chunk)).sum(1) for p in step.attentions]
        scores = [now + torch.nn.functional.pad(before, (0, len(chunk))) for now, before in zip(sums, scores)] if scores else sums
        evict(cache, scores, max(2, int(share * len(ids))))
        position += len(chunk)
        if not chunks:
            out.append(int(step.logits[0, -1].argmax()))
    return out


def main():
    path, share = Path(sys.argv[1]), float(sys.argv[2])
    torch.set_num_threads(int(sys.argv[3]))
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager")
    with torch.inference_mode():
        for line in sys.stdin:
            request = json.loads(line)
            tokens = answer(model, tokenizer(request["prompt"]).input_ids, request["n"], share)
            print(json.dumps({"id": request["id"], "ids": tokens, "text": tokenizer.decode(tokens)}), flush=True)


main()
