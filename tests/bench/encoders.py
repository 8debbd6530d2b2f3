#!/usr/bin/env python3
"""Prints a table of encoders: how far embeddings are from those of the references in double precision, in f32 and at the default precision, and
those of llama.cpp from the same GGUF file. Differences are the largest of an element, of embeddings of unit length.

    python tests/bench/encoders.py [--llama-server PROGRAM] [FOLDER ...]

The models are those of tests/fixtures/encoders; of each real FOLDER, which has modules of sentence-transformers, the reference is computed by
transformers.
"""
import argparse
import json
import pathlib
import subprocess
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENCODERS = ROOT / "tests/fixtures/encoders"
PORT = 8233
POOLINGS = {"mean": "mean", "cls": "cls", "lasttoken": "last"}
TEXTS = ["The king had a daughter.", "What is the capital of France?", "x", "Once upon a time, in a forest far away, there lived a wolf. " * 6]


def run(program, *arguments, text=None):
    return subprocess.run([ROOT / "bin" / program, *arguments], input=text, capture_output=True, text=True, check=True,
                          env={"BMC_CONFIG": "none", "PATH": "/usr/bin:/bin", "HOME": tempfile.gettempdir()}).stdout


def embed(model, requests, *options):
    lines = "".join(json.dumps(r) + "\n" for r in requests)
    return [json.loads(line)["embedding"] for line in run("bmc-gen", "-q", "-m", model, "--embed", "--jsonl", "--embed-prompt", "", *options, text=lines).splitlines()]


def distance(got, want):
    assert [len(g) for g in got] == [len(w) for w in want]
    return max(abs(a - b) for g, w in zip(got, want) for a, b in zip(g, w))


def fixtures():
    """name, source, requests and references of each fixture."""
    entries = json.loads((ENCODERS.parent / "encoders.json").read_text(encoding="utf-8"))
    for name in dict.fromkeys(e["model"] for e in entries):
        modules = ENCODERS / name / "1_Pooling/config.json"
        pooling = POOLINGS[json.loads(modules.read_text())["pooling_mode"]] if modules.exists() else "mean"
        chosen = [e for e in entries if e["model"] == name and not e.get("prompt")]
        yield (name, ENCODERS / name, [{"ids": e["ids"]} if "ids" in e else {"text": e["text"]} for e in chosen],
               [e[pooling] if "ids" in e else e["embedding"] for e in chosen])


def real(folder):
    import torch
    from transformers import AutoModel, AutoTokenizer
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder, attn_implementation="eager").double().eval()
    config = json.loads((folder / "1_Pooling/config.json").read_text())
    mode = config.get("pooling_mode") or next(m for m in POOLINGS if config.get({"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}.get(m, "pooling_mode_lasttoken")))
    want = []
    for text in TEXTS:
        with torch.no_grad():
            states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        pooled = {"mean": states.mean(0), "cls": states[0], "lasttoken": states[-1]}[mode]
        want.append((pooled / pooled.norm()).tolist())
    return folder.name, folder, [{"text": t} for t in TEXTS], want


def of_llama_cpp(program, path, requests, want):
    """Texts are left out: llama.cpp does not normalise them to NFC."""
    server = subprocess.Popen([program, "-m", path, "--embedding", "--port", str(PORT), "-c", "64", "-b", "64", "-ub", "64", "-np", "1", "--no-warmup"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{PORT}"
    try:
        for _ in range(100):
            try:
                urllib.request.urlopen(url + "/health", timeout=5).read()
                break
            except OSError:
                time.sleep(0.2)
        got = []
        for request in (r for r in requests if "ids" in r):
            body = json.dumps({"content": request["ids"]}).encode()
            answer = json.load(urllib.request.urlopen(urllib.request.Request(url + "/embedding", body, {"Content-Type": "application/json"}), timeout=60))
            got.append(answer[0]["embedding"][0])
    finally:
        server.kill()
        server.wait()
    return distance(got, want[:len(got)])


def row(name, source, requests, want, llama_server):
    with tempfile.TemporaryDirectory() as folder:
        model = f"{folder}/a.bmc"
        run("bmc-convert", "-q", source, "-o", model)
        alone = embed(model, requests, "--precision", "f32", "-np", "1")
        cells = [f"{distance(alone, want):.1e}", f"{distance(embed(model, requests), want):.1e}"]
        gguf = source.with_suffix(".gguf") if source.parent == ENCODERS else None
        if gguf and gguf.exists():
            run("bmc-convert", "-q", gguf, "-o", model)
            cells.append("equal" if embed(model, requests, "--precision", "f32", "-np", str(len(requests))) == alone else "DIFFERENT")
            cells.append(f"{of_llama_cpp(llama_server, gguf, requests, want):.1e}" if llama_server else "")
        else:
            cells += ["", ""]
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--llama-server")
    parser.add_argument("folder", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    print("| model | f32 | default precision | GGUF in a batch, f32 | llama.cpp, the same GGUF |\n| --- | --- | --- | --- | --- |")
    for entry in [*fixtures(), *map(real, arguments.folder)]:
        row(*entry, arguments.llama_server)


if __name__ == "__main__":
    main()
