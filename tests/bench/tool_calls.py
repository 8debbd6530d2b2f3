#!/usr/bin/env python3
"""Samples tool calls, checked by the jsonschema package.

    tool_calls.py MODEL.bmc [SAMPLES] [SEED]    with bin/bmc-gen, or $BMC_GEN
    tool_calls.py MODEL.bmc formats [NAME ..]   required calls in each format of models.d/tools, or those named

Under tool_choice "required" SAMPLES (1,000) answers to requests with some of 20 tools, at temperature 1.2: each answer has
calls of listed tools alone, with arguments that their schemas allow. Under "auto" as many answers as a tenth of that: up to
the marker of a call they are those that the same prompt has without constraint, and what follows is a valid call.
Arguments of all characters come out as they went in, and are rendered unchanged into the next prompt.
"""
import collections
import glob
import json
import os
import random
import re
import subprocess
import sys
import tempfile

import jsonschema

S, I = {"type": "string", "maxLength": 40}, {"type": "integer", "minimum": -999, "maximum": 9999}
HARD = "\"quoted\" \\ back\nline\ttab é 日本 😀 </tool_call>"


def obj(required=None, **properties):
    return {"type": "object", "properties": properties, "required": list(properties) if required is None else required}


SCHEMAS = [
    obj(city=S, days={"type": "integer", "minimum": 1, "maximum": 14}), obj(a={"type": "number", "minimum": -100, "maximum": 100}, b={"type": "number", "minimum": 0, "maximum": 1}),
    obj(path=S, mode={"enum": ["r", "w", "a"]}), obj(["to"], to={"type": "string", "format": "email"}, subject=S, cc={"type": "array", "items": S, "maxItems": 3}),
    obj(), obj([], note=S), obj(at={"type": "string", "format": "date-time"}), obj(id={"type": "string", "format": "uuid"}), obj(code={"type": "string", "pattern": "^[A-Z]{2}[0-9]{4}$"}),
    obj(on={"type": "boolean"}), obj(points={"type": "array", "items": obj(x=I, y=I), "minItems": 1, "maxItems": 3}), obj(value={"type": ["integer", "null"], "minimum": 0, "maximum": 9}),
    obj(kind={"const": "exact"}, text={"const": HARD}), obj(**{"a \"b\" \\ é": I}), obj(shape={"anyOf": [obj(kind={"const": "circle"}, r=I), obj(kind={"const": "box"}, w=I, h=I)]}),
    obj(tree={"$ref": "#/$defs/node"}) | {"$defs": {"node": obj(["v"], v=I, next={"anyOf": [{"type": "null"}, obj(v=I)]})}}, obj(matrix={"type": "array", "items": {"type": "array", "items": I, "minItems": 2, "maxItems": 2}, "minItems": 2, "maxItems": 2}),
    obj(level={"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 100}), obj(["q"], q=S, options=obj([], deep={"type": "boolean"}, top=I)), obj(day={"type": "string", "format": "date"}, host={"type": "string", "format": "ipv4"}),
]
TOOLS = [{"type": "function", "function": {"name": f"tool_{i}", "description": f"does thing {i}", "parameters": s}} for i, s in enumerate(SCHEMAS)]
BY_NAME = {t["function"]["name"]: t["function"]["parameters"] for t in TOOLS}


def run(requests, model, *options):
    done = subprocess.run([os.environ.get("BMC_GEN", "bin/bmc-gen"), "-q", "-m", model, "--jsonl", *options], input="\n".join(map(json.dumps, requests)), capture_output=True, text=True)
    return [json.loads(l) for l in done.stdout.splitlines()]


def wrong(result, names):
    """Why an answer is not made of valid calls; None: it is."""
    if result.get("error"):
        return result["error"]
    if not result.get("tool_calls"):
        return "no call"
    for call in result["tool_calls"]:
        name = call["function"]["name"]
        if name not in names:
            return "a tool that is not listed"
        try:
            jsonschema.validate(json.loads(call["function"]["arguments"]), BY_NAME[name])
        except (ValueError, jsonschema.ValidationError) as why:
            return f"{name}: {why}"
    return None


def formats(model, names):
    """Three required calls of each tool in each format, which a template with its marks has."""
    for path in sorted(glob.glob("models.d/tools/*.tools")):
        name, text = os.path.basename(path)[:-6], open(path).read()
        if names and name not in names:
            continue
        marks = "".join(json.loads(m) for m in re.findall(r'^mark +(".*")$', text, re.M))
        why = collections.Counter()
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as f:
            f.write("{%% for m in messages %%}{{ m.content }}{%% endfor %%}{%% for t in tools or [] %%}{{ t|tojson }}{%% endfor %%}{%% set marks = %s %%}" % json.dumps(marks))
            f.flush()
            requests = [{"id": i, "messages": [{"role": "user", "content": "go"}], "tools": [TOOLS[i % len(TOOLS)]], "tool_choice": "required", "max_tokens": 300,
                         "temperature": 1.2, "seed": i, "parallel_tool_calls": i % 2 == 0} for i in range(3 * len(TOOLS))]
            for r in run(requests, model, "--chat-template", f.name, "-np", "8"):
                w = wrong(r, {requests[r["id"]]["tools"][0]["function"]["name"]})
                why["cut by the limit" if w and r.get("finish") == "length" else re.sub(r"^line [0-9]+: ", "", w.splitlines()[0])[:160] if w else "valid"] += 1
        print(f"{name}: {dict(why.most_common(9))}", flush=True)


def main():
    model, n, seed = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1000, int(sys.argv[3]) if len(sys.argv) > 3 else 1
    draw = random.Random(seed)
    requests = []
    for i in range(n):
        tools = draw.sample(TOOLS, 2)
        choice = draw.choice(["required", {"type": "function", "function": {"name": tools[0]["function"]["name"]}}])
        requests.append({"messages": [{"role": "user", "content": f"Use a tool for request {i}."}], "tools": tools, "tool_choice": choice, "temperature": 1.2, "seed": seed + i, "parallel_tool_calls": i % 4 == 0, "max_tokens": 1200})
    failures, calls = collections.Counter(), 0
    for request, result in zip(requests, run(requests, model, "-np", "8", "-c", "2048"), strict=True):
        names = {t["function"]["name"] for t in request["tools"]}
        why = wrong(result, names if request["tool_choice"] == "required" else {request["tool_choice"]["function"]["name"]})
        if not why and result["finish"] == "eos" and result["text"].strip():
            why = "text beside calls"
        calls += len(result.get("tool_calls", []))
        failures[why or ("valid" if result["finish"] == "eos" else "valid, cut by the limit")] += 1
    print(f"required: {n} answers, {calls} calls:", dict(failures))

    ids = subprocess.run([os.environ.get("BMC_GEN", "bin/bmc-gen"), "-q", "-m", model, "--tokenize", "--format", "json"], input="<tool_call>", capture_output=True, text=True).stdout
    bias = {str(t["id"]): 6 for t in json.loads(ids)["rows"] if "id" in t}
    auto = [{"messages": [{"role": "user", "content": f"Call the tool tool_0 now, as <tool_call>. Number {i}."}], "tools": TOOLS[:2], "tool_choice": "auto", "logit_bias": bias, "temperature": 1.2, "seed": seed + i, "max_tokens": 96} for i in range(n // 10)]
    rendered = subprocess.run([os.environ.get("BMC_GEN", "bin/bmc-gen"), "-q", "-m", model, "--jsonl", "--render-chat"], input="\n".join(map(json.dumps, auto)), capture_output=True, text=True)
    prompts = [json.loads(l)["prompt"] for l in rendered.stdout.splitlines()]
    free = run([{"prompt": p, "logit_bias": bias, "temperature": 1.2, "seed": seed + i, "max_tokens": 96, "stop": ["<|im_end|>"]} for i, p in enumerate(prompts)], model, "-np", "8")
    equal = begun = valid = 0
    for a, b in zip(run(auto, model, "-np", "8"), free, strict=True):
        text = b["text"]
        marker = text.find("<tool_call>")
        if marker < 0:
            equal += a["ids"] == b["ids"][: len(a["ids"])] and not a.get("tool_calls")
            continue
        begun += 1
        equal += a["text"].startswith(text[:marker].strip()) or not text[:marker].strip()
        valid += wrong(a, set(BY_NAME)) is None or a["finish"] == "length"
    print(f"auto: {len(auto)} answers, {equal} equal up to the marker; {begun} reach it, of which {valid} are valid or cut by the limit")

    hard = {"text": HARD, "kind": "exact"}
    [result] = run([{"messages": [{"role": "user", "content": "x"}], "tools": [TOOLS[12]], "tool_choice": "required", "parallel_tool_calls": False}], model)
    call = result["tool_calls"][0]
    back = subprocess.run([os.environ.get("BMC_GEN", "bin/bmc-gen"), "-q", "-m", model, "--jsonl", "--render-chat"], input=json.dumps({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "tool_call_id": call["id"], "content": HARD}], "tools": [TOOLS[12]]}), capture_output=True, text=True)
    prompt = json.loads(back.stdout)["prompt"]
    decoder = json.JSONDecoder()
    there = [json.loads(a) if isinstance(a, str) else a for a in (decoder.raw_decode(prompt, i)[0].get("arguments") for i in range(len(prompt)) if prompt.startswith('{"name"', i) and '"arguments"' in prompt[i:]) if a]
    print("arguments there:", json.loads(call["function"]["arguments"]) == hard, "and back:", hard in there, "result:", HARD in prompt)


if sys.argv[2:3] == ["formats"]:
    formats(sys.argv[1], sys.argv[3:])
else:
    main()
