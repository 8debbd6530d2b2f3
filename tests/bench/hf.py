"""Decoding by Hugging Face transformers and by bmc-gen, in turns, on the same weights and threads.

Usage: python hf.py SHAPE LAYERS [--batch 8] [--prompt 128] [--new 128] [--lengths FILE] [--rounds 5]
                    [--caches dynamic,static,iterative,paged:16,bmc] [--threads N] [--bin bin] [--type bf16]

A model of SHAPE (a name of models.d/shapes with family opt or llama) with LAYERS layers and random bf16 weights is made by
transformers and converted by bmc-convert. Caches are dynamic and static, those of transformers, and policies of bmc-gen;
deepspeed is DeepSpeed's engine, without its kernels, which are for GPUs. With each of them the same number of greedy tokens
is generated for the same ids once per round. Prints a JSON object: tokens per second of every round by cache (prompt and
answer; load and start excluded), versions, and for each cache the share of tokens that equal those of the first one: bf16
arithmetic differs, and logits of random weights are close together, so the share may be below 1.

--lengths: a line "PROMPT ANSWER" per sequence; transformers pads prompts on the left, and generates until the longest
answer is complete, as it does for a batch. Only the wanted tokens count.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("shape")
    parser.add_argument("layers", type=int)
    for name, value in (("batch", 8), ("prompt", 128), ("new", 128), ("rounds", 5), ("threads", os.cpu_count())):
        parser.add_argument("--" + name, type=int, default=value)
    for name, value in (("caches", "dynamic,static,iterative,paged:16,bmc"), ("bin", "bin"), ("lengths", None)):
        parser.add_argument("--" + name, default=value)
    return parser.parse_args()


def shape_of(name):
    lines = (Path("models.d/shapes") / f"{name}.shape").read_text().splitlines()
    return dict(line.split(None, 1) for line in lines if line and not line.startswith("#"))


def build(shape, layers):
    import transformers

    def number(key, default=None):
        return int(shape.get(key, default))

    hidden, heads, context = number("hidden"), number("heads"), number("context")
    common = {"vocab_size": number("vocab"), "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
              "max_position_embeddings": context, "torch_dtype": "bfloat16", "bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1}
    if shape["family"] == "opt":
        embed = number("embed", hidden)
        config = transformers.OPTConfig(ffn_dim=number("ffn", 4 * hidden), word_embed_proj_dim=embed, do_layer_norm_before=embed == hidden,
                                        **common)
    elif shape["family"] == "llama":
        config = transformers.LlamaConfig(intermediate_size=number("ffn"), num_key_value_heads=number("kv_heads", heads),
                                          rope_theta=float(shape.get("rope_theta", 10000)), tie_word_embeddings=False, **common)
    else:
        sys.exit(f"hf: {shape['family']}: no such family here; opt and llama")
    return transformers.AutoModelForCausalLM.from_config(config)


def tokenizer():
    """One token per byte."""
    letters = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters += range(256, 512 - len(letters))
    return {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "vocab": {chr(c): i for i, c in enumerate(letters)}, "merges": []}}


def main():
    options = arguments()
    try:
        import torch
        import transformers
    except ImportError as error:
        sys.exit(f"hf: {error}")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model = build(shape_of(options.shape), options.layers).to(torch.bfloat16).eval()
    if options.lengths:
        sizes = [tuple(map(int, line.split())) for line in Path(options.lengths).read_text().splitlines()]
    else:
        sizes = [(options.prompt, options.new)] * options.batch
    vocab = model.config.vocab_size
    prompts = [[40 + (7 * i + 31 * j) % min(250, vocab - 40) for i in range(p)] for j, (p, _) in enumerate(sizes)]
    longest, answer = max(p for p, _ in sizes), max(n for _, n in sizes)
    ids = torch.tensor([[1] * (longest - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    wanted = sum(n for _, n in sizes)

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder + "/model")
        Path(folder + "/model/tokenizer.json").write_text(json.dumps(tokenizer()))
        converted = subprocess.run([options.bin + "/bmc-convert", "-q", folder + "/model", "-o", folder + "/model.bmc"], capture_output=True, text=True)
        if converted.returncode:
            sys.exit("hf: " + converted.stderr.splitlines()[0])
        lines = [json.dumps({"ids": p, "n": n}) for p, (_, n) in zip(prompts, sizes)]
        Path(folder + "/in").write_text("\n".join(lines) + "\n")

        def transformers_cache(cache):
            begin = time.perf_counter()
            with torch.inference_mode():
                out = (served if cache == "deepspeed" else model).generate(ids, attention_mask=mask, max_new_tokens=answer, min_new_tokens=answer, do_sample=False,
                                     cache_implementation="static" if cache == "static" else None, disable_compile=True)
            seconds = time.perf_counter() - begin
            return seconds, [row[longest:longest + n].tolist() for row, (_, n) in zip(out, sizes)]

        def bmc_cache(cache):
            command = [options.bin + "/bmc-gen", "--no-spec", "-q", "-m", folder + "/model.bmc", "--jsonl", "-np", str(len(sizes)), "-t", str(options.threads),
                       "--ignore-eos", "--temp", "0", "--profile", "none", "--prefix-cache-mb", "0", "--kv", cache, "--cache-type", "bf16",
                       "-f", folder + "/in", "--stats", folder + "/stats"]
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode:
                sys.exit("hf: " + run.stderr.splitlines()[0])
            stats = json.loads(Path(folder + "/stats").read_text())
            return (stats["prefill_ms"] + stats["decode_ms"] + stats["sample_ms"]) / 1000, [json.loads(line)["ids"] for line in run.stdout.splitlines()]

        served = model
        if "deepspeed" in options.caches:
            import deepspeed

            served = deepspeed.init_inference(model, dtype=torch.bfloat16, replace_with_kernel_inject=False).module

        rates, first, same = {cache: [] for cache in options.caches.split(",")}, None, {}
        for turn in range(options.rounds):
            for cache in rates:
                seconds, tokens = (transformers_cache if cache in ("dynamic", "static", "deepspeed") else bmc_cache)(cache)
                rates[cache].append(wanted / seconds)
                if first is None:
                    first = tokens
                if turn == 0:
                    same[cache] = sum(a == b for x, y in zip(first, tokens) for a, b in zip(x, y)) / wanted
    print(json.dumps({"tok_s": rates, "same": same, "transformers": transformers.__version__, "torch": torch.__version__}))


main()
