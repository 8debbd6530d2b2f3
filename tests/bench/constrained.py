#!/usr/bin/env python3
"""Samples under JSON Schemas, checked by the jsonschema package.

    constrained.py MODEL.bmc [SAMPLES] [SEED]   generates SAMPLES (10,000) texts for 60 schemas with bin/bmc-gen (or
                                                $BMC_GEN) at temperature 1.5, checks each, prints a summary
    constrained.py --schemas [SEED]             prints the schemas, one per line

Of the schemas 20 are written by hand, 10 are recursive, 30 random. A text is wrong if it is not JSON, if its schema
does not allow it, or if it is not complete although the token limit did not end it.
"""
import collections
import json
import os
import random
import subprocess
import sys

S = {"type": "string"}
I = {"type": "integer"}


def obj(required=None, **properties):
    return {"type": "object", "properties": properties, "required": list(properties) if required is None else required}


BY_HAND = [
    obj(name=S, age={"type": "integer", "minimum": 0, "maximum": 150}),
    obj(["id"], id={"type": "string", "format": "uuid"}, tags={"type": "array", "items": S, "maxItems": 4}, active={"type": "boolean"}),
    obj(from_={"type": "string", "format": "email"}, at={"type": "string", "format": "date-time"}, subject={"type": "string", "maxLength": 30}),
    {"type": "array", "items": obj(x={"type": "number", "minimum": -1, "maximum": 1}, y={"type": "number", "exclusiveMinimum": 0, "maximum": 99.5}), "minItems": 1, "maxItems": 3},
    {"enum": ["red", "green", "blue", 7, None, [1, 2], {"a": "b\"c"}]},
    {"type": ["string", "null", "integer"], "maxLength": 12, "minimum": -40},
    obj([], a=S, b=I, c={"type": "number"}, d={"type": "null"}),
    dict(obj(["c"], a=S, b=S, c=I, d=S), additionalProperties=False),
    dict(obj(["k"], k=I), additionalProperties={"type": "boolean"}),
    {"type": "object", "additionalProperties": {"type": "array", "items": I, "maxItems": 2}},
    {"type": "array", "prefixItems": [S, I, {"type": "boolean"}], "items": False},
    {"type": "array", "prefixItems": [{"const": "v1"}], "items": {"type": "number"}, "minItems": 2, "maxItems": 4},
    {"anyOf": [obj(kind={"const": "a"}, v=I), obj(kind={"const": "b"}, w=S), {"type": "null"}]},
    {"oneOf": [obj(kind={"const": "circle"}, r={"type": "number", "minimum": 0}), obj(kind={"const": "rect"}, w=I, h=I), {"type": "string", "maxLength": 5}]},
    {"allOf": [obj(a=S), {"properties": {"b": {"type": "integer", "minimum": 3}}, "required": ["b"]}, {"properties": {"b": {"maximum": 30}}}]},
    obj(phone={"type": "string", "pattern": "^(\\([0-9]{3}\\) )?[0-9]{3}-[0-9]{4}$"}, code={"type": "string", "pattern": "^[A-Z]{2}\\d{1,3}[^\\s\"]$"}),
    obj(day={"type": "string", "format": "date"}, host={"type": "string", "format": "ipv4"}, clock={"type": "string", "format": "time"}),
    {"type": "string", "minLength": 10, "maxLength": 40},
    {"type": "integer", "minimum": -1234567, "maximum": 89},
    {"type": "object"},
]


def recursive():
    node = {"$ref": "#/$defs/node"}
    maybe = lambda s: {"anyOf": [s, {"type": "null"}]}
    yield {"$ref": "#/$defs/node", "$defs": {"node": obj(["v"], v=I, kids={"type": "array", "items": node, "maxItems": 2})}}
    yield dict(obj(next=maybe({"$ref": "#"}), v=S))
    yield {"$ref": "#/$defs/node", "$defs": {"node": obj(v=I, l=maybe(node), r=maybe(node))}}
    yield {"$ref": "#/$defs/e", "$defs": {"e": {"anyOf": [I, obj(op={"enum": ["+", "-", "*"]}, a={"$ref": "#/$defs/e"}, b={"$ref": "#/$defs/e"})]}}}
    yield {"anyOf": [I, {"type": "array", "items": {"$ref": "#"}, "maxItems": 3}]}
    yield {"$ref": "#/$defs/a", "$defs": {"a": obj([], b={"$ref": "#/$defs/b"}), "b": {"type": "array", "items": {"$ref": "#/$defs/a"}, "maxItems": 2}}}
    yield {"type": "object", "additionalProperties": {"anyOf": [{"type": "boolean"}, {"$ref": "#"}]}}
    yield obj(["name"], name={"type": "string", "maxLength": 8}, children={"type": "array", "items": {"$ref": "#"}, "maxItems": 2}, note=S)
    yield {"oneOf": [{"type": "string", "maxLength": 6}, {"type": "array", "prefixItems": [{"enum": ["and", "or"]}], "items": {"$ref": "#"}, "maxItems": 3}]}
    yield {"type": "array", "items": {"anyOf": [{"type": "number"}, {"$ref": "#"}]}, "maxItems": 3}


def any_schema(rng, depth):
    kinds = ["string", "integer", "number", "enum", "boolean", "null", "format"]
    kind = rng.choice(kinds + (["object"] * 5 + ["array"] * 3 + ["anyOf"] * 2 if depth > 0 else []))
    if kind == "string":
        low = rng.randrange(4)
        return rng.choice([S, {"type": "string", "minLength": low, "maxLength": low + rng.randrange(20)}, {"type": "string", "pattern": rng.choice(["^[a-z]+$", "[0-9]{2}", "^a|z$", "^\\w{1,8}(-\\w{1,8})*$", "é+"])}])
    if kind == "integer":
        low = rng.choice([-1, 1]) * rng.randrange(10 ** rng.randrange(1, 7))
        return rng.choice([I, {"type": "integer", "minimum": low}, {"type": "integer", "maximum": low}, {"type": "integer", "minimum": low, "maximum": low + rng.randrange(10 ** rng.randrange(1, 7))}])
    if kind == "number":
        low = round(rng.uniform(-1000, 1000), rng.randrange(4))
        return rng.choice([{"type": "number"}, {"type": "number", "minimum": low}, {"type": "number", "exclusiveMinimum": low, "exclusiveMaximum": low + rng.choice([0.5, 3, 1000.25])}])
    if kind == "enum":
        return {"enum": rng.sample(["a", "bb", "c c", 'q"', "é", 1, 2.5, -3, True, None, [], {"x": 1}], rng.randrange(1, 6))}
    if kind == "format":
        return {"type": "string", "format": rng.choice(["date", "time", "date-time", "uuid", "email", "ipv4"])}
    if kind == "object":
        names = rng.sample(["a", "b", "name", "nom é", 'say "x"', "id", "a/b", "value", "x_1", "Z"], rng.randrange(1, 6))
        made = {"type": "object", "properties": {n: any_schema(rng, depth - 1) for n in names}, "required": [n for n in names if rng.random() < 0.6]}
        if rng.random() < 0.4:
            made["additionalProperties"] = rng.choice([False, any_schema(rng, 0)])
        return made
    if kind == "array":
        low = rng.randrange(3)
        return {"type": "array", "items": any_schema(rng, depth - 1), "minItems": low, "maxItems": low + rng.randrange(3)}
    if kind == "anyOf":
        return {"anyOf": [any_schema(rng, depth - 1) for _ in range(rng.randrange(2, 4))]}
    return {"type": kind}


def schemas(seed):
    rng = random.Random(seed)
    return BY_HAND + list(recursive()) + [any_schema(rng, 3) for _ in range(30)]


def main():
    if sys.argv[1] == "--schemas":
        for s in schemas(int(sys.argv[2]) if len(sys.argv) > 2 else 1):
            print(json.dumps(s, ensure_ascii=False))
        return 0
    import jsonschema

    samples = int(sys.argv[2]) if len(sys.argv) > 2 else 10000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    all_schemas = schemas(seed)
    checks = [jsonschema.Draft202012Validator(s, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER) for s in all_schemas]
    lines = [json.dumps({"id": i, "prompt": "Once upon a time", "temperature": 1.5, "top_k": 0, "top_p": 1, "min_p": 0, "seed": i, "n": 300,
                         "json_schema": all_schemas[i % len(all_schemas)]}) for i in range(samples)]
    command = [os.environ.get("BMC_GEN", "bin/bmc-gen"), "-m", sys.argv[1], "--jsonl", "-np", "16", "-q", *sys.argv[4:]]
    run = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, encoding="utf-8")
    finish, wrong, tokens = collections.Counter(), 0, 0
    for line in run.stdout.splitlines():
        result = json.loads(line)
        finish[result["finish"]] += 1
        tokens += len(result["ids"])
        if result["finish"] == "length":
            continue
        try:
            assert result["finish"] == "eos", result["error"]
            checks[result["id"] % len(checks)].validate(json.loads(result["text"]))
        except Exception as why:  # every failure counts
            wrong += 1
            if wrong <= 5:
                print(json.dumps(all_schemas[result["id"] % len(checks)]), result["text"], str(why).splitlines()[0], sep="\n  ")
    done = sum(finish.values())
    print(f"{done} of {samples} results for {len(checks)} schemas, {tokens} tokens: {dict(finish)}, {wrong} wrong", run.stderr.strip())
    return wrong > 0 or done != samples


if __name__ == "__main__":
    sys.exit(main())
