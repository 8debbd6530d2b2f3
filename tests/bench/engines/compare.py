"""Alternating rounds of several engines on one model: python compare.py OUT ENGINES CELLS ROUNDS WARM MODEL TYPE VOCAB

ENGINES: a file with lines "NAME COMMAND"; CELLS: words BATCHxPROMPT+NEW, with uBATCHxPROMPT+NEW for prompts of uneven
lengths (a quarter to the whole of PROMPT) and kBEAMS after it for beam search. Drivers stay open over all cells. Each cell is
written to OUT/MODEL-TYPE-CELL.json when it is complete; a cell that has its file is skipped.
"""

import json
import os
import platform
import re
import shlex
import subprocess
import sys


def request_of(cell, vocab, turn):
    """The same ids for every engine: an arithmetic sequence per prompt, whose first id differs from that of the others and of
    earlier rounds, so that no engine finds keys and values of it."""
    uneven, batch, prompt, new, beams = re.fullmatch(r"(u?)(\d+)x(\d+)\+(\d+)(?:k(\d+))?", cell).groups()
    batch, prompt = int(batch), int(prompt)
    lengths = [max(1, prompt * (1 + (5 * i + 3) % 4) // 4) if uneven else prompt for i in range(batch)]
    prompts = [[300 + (i * 7919 + (j * j + 3) * 104729 + (turn + 9) * 1299709) % (vocab - 300) for i in range(n)]
               for j, n in enumerate(lengths)]
    return {"prompts": prompts, "new": int(new), "beams": int(beams or 1)}


class Engine:
    def __init__(self, line):
        self.name, command = line.split(None, 1)
        self.command, self.process, self.versions = shlex.split(command), None, None

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            return {"error": f"the driver has ended: status {self.process.wait()}"}
        return json.loads(line)

    def ask(self, request):
        if self.process is None:
            log = open(os.devnull if "ENGINE_LOGS" not in os.environ else os.path.join(os.environ["ENGINE_LOGS"], self.name + ".log"), "ab")
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
            self.versions = self.read()
        if self.process.poll() is not None:
            self.process = None
            return self.versions if "error" in self.versions else {"error": "the driver has ended"}
        try:
            self.process.stdin.write((json.dumps(request) + "\n").encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        answer = self.read()
        if self.process.poll() is not None:
            self.process = None
        return answer

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()


def common(a, b):
    """Tokens of all sequences before the first difference of each."""
    same = 0
    for x, y in zip(a, b):
        for left, right in zip(x, y):
            if left != right:
                break
            same += 1
    return same


def measure(engines, cell, vocab, rounds, warm):
    results = {engine.name: {"samples": [], "tokens": []} for engine in engines}
    for turn in range(-warm, rounds):
        request = request_of(cell, vocab, turn)
        for engine in engines:
            result = results[engine.name]
            if "error" in result:
                continue
            answer = engine.ask(request)
            if "error" in answer:
                result["error"] = answer["error"]
            elif turn >= 0:
                result["tokens"] += answer.pop("tokens")
                result["samples"].append(answer)
            result["versions"] = engine.versions
    return results


def main():
    out, engine_file, cells, rounds, warm, model, kind, vocab = sys.argv[1:]
    engines = [Engine(line) for line in open(engine_file) if line.strip()]
    cpu = [line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    for cell in cells.split():
        path = os.path.join(out, f"{model}-{kind}-{cell}.json")
        if os.path.exists(path):
            continue
        results, request = measure(engines, cell, int(vocab), int(rounds), int(warm)), request_of(cell, int(vocab), 0)
        reference = results[engines[0].name].get("tokens", [])
        for result in results.values():
            tokens = result.pop("tokens", None)
            if tokens:
                result["tokens"], result["equal"], result["of"] = [row[:16] for row in tokens[:4]], common(reference, tokens), sum(map(len, tokens))
        page = {"model": model, "type": kind, "cell": cell, "prompt_tokens": sum(map(len, request["prompts"])), "sequences": len(request["prompts"]),
                "new": request["new"], "beams": request["beams"], "cpu": cpu[0] if cpu else platform.processor(), "threads": os.environ.get("THREADS"),
                "load_after": os.getloadavg()[0], "engines": results}
        with open(path + ".part", "w") as file:
            json.dump(page, file)
        os.replace(path + ".part", path)
        print(f"{model} {kind} {cell}: " + ", ".join(f"{name} {'failed' if 'error' in r else str(r['equal']) + '/' + str(r['of'])}" for name, r in results.items()), flush=True)
    for engine in engines:
        engine.close()


main()
