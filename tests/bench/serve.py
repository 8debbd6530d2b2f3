#!/usr/bin/env python3
"""bmc-serve and OpenAI's form, checked by OpenAI's own package and against bmc-gen.

    serve.py shapes MODEL               results of bmc-gen --jsonl --openai, and of batch files, by the types of the package openai
    serve.py equal MODEL [N] [SEED]     N (500) requests in random interleavings, some cancelled, against bmc-gen: texts and hashes
    serve.py clients MODEL              the package openai, and an agent that calls two tools
    serve.py load MODEL [SECONDS]       64 clients, slow readers, half-open connections, long bodies, bad HTTP, clients that are killed
    serve.py speed URL NAME [N] [CLIENTS] [TOKENS]   tokens per second of a server: N (96) requests of CLIENTS (32) clients
    serve.py gen MODEL [N] [NP] [TOKENS]             the same requests by bmc-gen --jsonl -np NP (32)
    serve.py ttft MODEL [TOKENS]        time to first token with a cached prefix of TOKENS (4000), against none

BMC_BIN is the folder of the programs (default bin), CHAT_TEMPLATE a chat format (default chatml for grimm, else the model's).
"""
import atexit
import concurrent.futures
import http.client
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

BIN = os.environ.get("BMC_BIN", "bin")
ENV = dict(os.environ, BMC_CONFIG="none")
OURS = {"logits_hash", "seed", "reasoning_content"}  # members that are not OpenAI's


def template(model):
    name = os.environ.get("CHAT_TEMPLATE", "chatml" if "grimm" in model else "")
    return ["--chat-template", name] if name else []


def generate(model, requests, *options):
    lines = "".join(json.dumps(r) + "\n" for r in requests)
    run = subprocess.run([f"{BIN}/bmc-gen", "-q", "-m", model, "--jsonl", *template(model), *options], input=lines, text=True,
                         capture_output=True, env=ENV)
    return [json.loads(line) for line in run.stdout.splitlines()]


class Server:
    def __init__(self, model, *options):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.log = open("/dev/null" if "LOG" not in os.environ else os.environ["LOG"], "w")
        self.process = subprocess.Popen([f"{BIN}/bmc-serve", "-m", model, "--port", str(self.port), *template(model), *options],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.log, env=ENV)
        atexit.register(self.process.kill)
        while True:
            try:
                if self.ask("GET", "/health")[0] == 200:
                    return
            except OSError:
                time.sleep(0.05)
            if self.process.poll() is not None:
                sys.exit("bmc-serve has ended")

    def connect(self, timeout=600):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(self, method, url, body=None):
        c = self.connect()
        c.request(method, url, None if body is None else json.dumps(body), {"Content-Type": "application/json"} if body else {})
        r = c.getresponse()
        text = r.read()
        c.close()
        return r.status, json.loads(text) if r.getheader("Content-Type") == "application/json" else text.decode()

    def stream(self, url, body, stop_after=None):
        """Chunks of an answer; after `stop_after` of them the connection is closed."""
        c = self.connect()
        c.request("POST", url, json.dumps(dict(body, stream=True)))
        r = c.getresponse()
        chunks = []
        for line in r:
            if not line.startswith(b"data: "):
                continue
            if line.strip() == b"data: [DONE]":
                break
            chunks.append(json.loads(line[6:]))
            if stop_after is not None and len(chunks) >= stop_after:
                break
        c.close()
        return chunks

    def metric(self, name):
        return float(re.search(rf"^{re.escape(name)} (\S+)", self.ask("GET", "/metrics")[1], re.M).group(1))

    def rss(self):
        with open(f"/proc/{self.process.pid}/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        if code != -signal.SIGTERM:
            sys.exit(f"bmc-serve ended with {code}")


# ---- requests ----

WORDS = "The king wolf fox once upon a time there was old woman forest gold child went into house and said".split()
SCHEMAS = [{"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}, "required": ["name", "n"]},
           {"type": "array", "items": {"enum": ["a", "b", "c"]}, "minItems": 1, "maxItems": 5}]


def random_request(rng):
    r = {"max_tokens": rng.choice([1, 3, 8, 20, 40]), "seed": rng.randrange(1 << 40)}
    words = " ".join(rng.choices(WORDS, k=rng.choice([2, 5, 30])))
    if rng.random() < 0.5:
        r["messages"] = [{"role": "user", "content": words}]
        if rng.random() < 0.3:
            r.update(logprobs=True, top_logprobs=rng.randrange(4))
    else:
        r["prompt"] = words
    if rng.random() < 0.7:
        r["temperature"] = rng.choice([0, 0.7, 1.5])
    kind = rng.random()
    if kind < 0.15:
        r["response_format"] = {"type": "json_schema", "json_schema": {"name": "x", "schema": rng.choice(SCHEMAS)}}
    elif kind < 0.25:
        r["regex"] = "[a-z]+( [a-z]+){1,4}"
    elif kind < 0.35:
        r["stop"] = [rng.choice(["e", " the", "."])]
    if rng.random() < 0.15:
        r["n"] = rng.randrange(2, 4)
    return r


def url_of(request):
    return "/v1/chat/completions" if "messages" in request else "/v1/completions"


def said(answer):
    """What does not depend on when and where a request is answered."""
    return {"choices": [(c["index"], (c["message"]["content"] if "message" in c else c["text"]), c["finish_reason"], json.dumps(c["logprobs"]))
                        for c in answer["choices"]],
            "hash": answer["logits_hash"], "tokens": [answer["usage"][k] for k in ("prompt_tokens", "completion_tokens")]}


def said_by(chunks):
    """The same of a stream."""
    choices = {}
    for chunk in chunks:
        for c in chunk["choices"]:
            one = choices.setdefault(c["index"], {"text": "", "finish": None, "logprobs": None})
            one["text"] += c["delta"].get("content", "") if "delta" in c else c["text"]
            one["finish"] = c["finish_reason"] or one["finish"]
            if c["logprobs"]:
                one["logprobs"] = one["logprobs"] or {"content": []}
                one["logprobs"]["content"] += c["logprobs"]["content"]
    last = chunks[-1]
    return {"choices": [(i, c["text"], c["finish"], json.dumps(c["logprobs"])) for i, c in sorted(choices.items())],
            "hash": last["logits_hash"], "tokens": [last["usage"][k] for k in ("prompt_tokens", "completion_tokens")]}


def equal(model, n=500, seed=1):
    rng = random.Random(int(seed))
    requests = [random_request(rng) for _ in range(int(n))]
    want = [said(a) for a in generate(model, requests, "--openai", "-np", "5", "--precision", "f32")]
    counts, wrong = {"answers": 0, "streams": 0, "cancelled": 0}, []
    server = Server(model, "-np", "7", "--precision", "f32", "--kv", "segment")

    def one(i):
        request, how = requests[i], rng.random()
        time.sleep(rng.random() * 0.05)
        if how < 0.15:
            c = server.connect()
            c.request("POST", url_of(request), json.dumps(dict(request, max_tokens=200, ignore_eos=True)))
            time.sleep(rng.random() * 0.03)
            c.close()
            counts["cancelled"] += 1
        if how < 0.5:
            got = said_by(server.stream(url_of(request), dict(request, stream_options={"include_usage": True})))
            counts["streams"] += 1
        else:
            got = said(server.ask("POST", url_of(request), request)[1])
            counts["answers"] += 1
        if got != want[i]:
            wrong.append((i, requests[i], want[i], got))

    order = list(range(len(requests)))
    rng.shuffle(order)
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        for done in [pool.submit(one, i) for i in order]:
            done.result()
    server.end()
    for i, request, w, got in wrong[:3]:
        print(f"request {i}: {json.dumps(request)}\n  bmc-gen:   {w}\n  bmc-serve: {got}")
    print(f"{len(requests)} requests, {counts}: {len(requests) - len(wrong)} equal to bmc-gen's, text and hash")
    return not wrong


# ---- OpenAI's types ----

def check(kind, value):
    """Validates by a type of the package openai; members that it does not know must be ours."""
    made = kind.model_validate(value)

    def extras(m):
        if isinstance(m, list):
            return set().union(*map(extras, m)) if m else set()
        if not hasattr(type(m), "model_fields"):
            return set()
        found = set(m.model_extra or {})
        for name in type(m).model_fields:
            found |= extras(getattr(m, name))
        return found

    unknown = extras(made) - OURS
    assert not unknown, f"{kind.__name__} has unknown members {unknown}"
    return made


def shapes(model):
    from openai.types import Completion, CreateEmbeddingResponse, Embedding, Model
    from openai.types.chat import ChatCompletion, ChatCompletionChunk
    from openai.types.batch import Batch  # noqa: F401 (files of batches have no type of their own)
    from openai.types.shared import ErrorObject
    rng = random.Random(5)
    requests = [random_request(rng) for _ in range(60)]
    requests.append({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": {"name": "f"}}],
                     "choice": ['<think>\nhm\n</think>\nWell. <tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>']})
    counts = {}

    def count(kind, value):
        made = check(kind, value)
        counts[kind.__name__] = counts.get(kind.__name__, 0) + 1
        return made

    for request, answer in zip(requests, generate(model, requests, "--openai")):
        count(ChatCompletion if "messages" in request else Completion, answer)
    call = answer["choices"][0]
    assert call["finish_reason"] == "tool_calls" and call["message"]["reasoning_content"] == "hm", answer
    for i, request in enumerate(requests):
        for chunk in generate(model, [dict(request, stream=True, stream_options={"include_usage": i % 2 == 0})], "--openai") if i < 12 or i == 60 else []:
            for choice in chunk["choices"] if "prompt" in request else []:
                choice["finish_reason"] = choice["finish_reason"] or "stop"  # OpenAI sends null here, which its type has not
            count(ChatCompletionChunk if "messages" in request else Completion, chunk)
    for answer in generate(model, [{"input": ["a", "b"]}, {"input": "a"}, {"input": [5, 6]}], "--openai", "--embed"):
        count(CreateEmbeddingResponse, answer)
        for one in answer["data"]:
            count(Embedding, one)
    for answer in generate(model, [{"prompt": ""}, {"promt": 1}, 5], "--openai"):
        count(ErrorObject, answer["error"])
    batch = [{"custom_id": f"r{i}", "method": "POST", "url": url_of(r), "body": r} for i, r in enumerate(requests)]
    batch.append({"custom_id": "bad", "method": "POST", "url": "/v1/completions", "body": {}})
    for line, answer in zip(batch, generate(model, batch, "--unordered")):
        assert set(answer) == {"id", "custom_id", "response", "error"} and set(answer["response"]) == {"status_code", "request_id", "body"}
        body = answer["response"]["body"]
        if answer["response"]["status_code"] == 200:
            count(ChatCompletion if body["object"] == "chat.completion" else Completion, body)
        else:
            count(ErrorObject, body["error"])
    server = Server(model)
    for one in server.ask("GET", "/v1/models")[1]["data"]:
        count(Model, one)
    server.end()
    print("valid: " + ", ".join(f"{n} {name}" for name, n in sorted(counts.items())))
    return True


# ---- clients ----

def clients(model):
    import openai
    server = Server(model)
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
    hello = [{"role": "user", "content": "Say hello."}]
    whole = client.chat.completions.create(model="any", messages=hello, max_tokens=20, seed=1, temperature=1)
    pieces = [c.choices[0].delta.content or "" for c in
              client.chat.completions.create(model="any", messages=hello, max_tokens=20, seed=1, temperature=1, stream=True)]
    assert "".join(pieces) == whole.choices[0].message.content, (pieces, whole)
    with client.chat.completions.stream(model="any", messages=hello, extra_body={"choice": ["Hello, \"you\"."]}) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.content == 'Hello, "you".'
    assert client.completions.create(model="any", prompt="Once upon", max_tokens=5).usage.completion_tokens <= 5
    assert len(client.embeddings.create(model="any", input=["a", "b"]).data) == 2
    assert len(client.models.list().data) == 1
    parsed = client.chat.completions.create(model="any", messages=hello, max_tokens=200, response_format={
        "type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMAS[1]}})
    json.loads(parsed.choices[0].message.content)
    try:
        client.completions.create(model="any", prompt="x", max_tokens=-5)
        raise AssertionError("no error")
    except openai.BadRequestError as e:
        assert e.body["type"] == "invalid_request_error", e.body

    async def both():
        one = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none")
        return await asyncio.gather(*[one.completions.create(model="any", prompt="Once", max_tokens=5, seed=i) for i in range(8)])

    import asyncio
    assert len(asyncio.run(both())) == 8
    print("openai: completions, chats, streams, embeddings, models, schemas, errors, 8 requests of asyncio")
    agent(client)
    server.end()
    return True


def agent(client):
    """Calls two tools until the model has answered, each call forced, as small models do not call by themselves."""
    tools = [{"type": "function", "function": {"name": name, "description": what, "parameters": {
        "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}}}
        for name, what in (("add", "adds two numbers"), ("multiply", "multiplies two numbers"))]
    run = {"add": lambda a, b: a + b, "multiply": lambda a, b: a * b}
    messages, calls = [{"role": "user", "content": "What is 2 + 3, times 4?"}], 0
    for name in ("add", "multiply", None):
        choice = {"type": "function", "function": {"name": name}} if name else "none"
        try:
            answer = client.chat.completions.create(model="any", messages=messages, tools=tools, max_tokens=120, seed=3, temperature=0.5,
                                                    tool_choice=choice, **({"parallel_tool_calls": False} if name else {}))
        except Exception as e:  # noqa: BLE001
            print(f"agent: tool_choice {choice}: {e}")
            return
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls or []:
            assert call.function.name == name, call
            result = run[name](**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": str(result)})
            calls += 1
    assert calls == 2 and not message.tool_calls, messages
    print(f"agent: 2 tools called; the answer is {message.content[:60]!r}")


# ---- load ----

def load(model, seconds=600):
    seconds = float(seconds)
    server = Server(model, "-np", "16", "--max-requests", "100", "--max-connections", "200", "-n", "64")
    end, rng = time.time() + seconds, random.Random(3)
    counts, lock, rss = {}, threading.Lock(), []

    def count(what):
        with lock:
            counts[what] = counts.get(what, 0) + 1

    def raw(data, wait=0.0):
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as s:
            s.sendall(data)
            time.sleep(wait)
            try:
                return s.recv(4096)
            except OSError:
                return b""

    def good():
        r = random_request(rng)
        if rng.random() < 0.5:
            count("streamed" if server.stream(url_of(r), r) else "empty")
        else:
            count(f"status {server.ask('POST', url_of(r), r)[0]}")

    def slow_reader():
        body = json.dumps({"prompt": "Once", "max_tokens": 60, "ignore_eos": True, "stream": True}).encode()
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            stop = min(end, time.time() + 5)
            while time.time() < stop and s.recv(64):
                time.sleep(0.05)
        count("slow reader")

    def half_open():
        raw(rng.choice([b"POST /v1/completions HT", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{", b""]), 1)
        count("half-open")

    def long_body():
        data = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n"
        chunked = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        try:
            with socket.create_connection(("127.0.0.1", server.port), timeout=30) as s:
                if rng.random() < 0.5:
                    s.sendall(data)
                    for _ in range(100):
                        s.sendall(b"x" * 1000000)
                else:
                    s.sendall(chunked)
                    for _ in range(100):
                        s.sendall(b"f4240\r\n" + b" " * 1000000 + b"\r\n")
        except OSError:
            pass
        count("body of 100 MB")

    def malformed():
        raw(rng.choice([b"\0" * 500, b"GET\r\n\r\n", b"POST /v1/completions HTTP/9.9\r\nContent-Length: -5\r\n\r\n", b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\n\r\n",
                        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n{\"p", b"X: y\r\n" * 3000 + b"\r\n", os.urandom(3000)]))
        count("malformed")

    def killed():
        body = json.dumps({"prompt": "Once", "max_tokens": 900, "ignore_eos": True, "stream": rng.random() < 0.5}).encode()
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as s:
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            time.sleep(rng.random() * 0.3)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        count("killed")

    def client(i):
        kinds = [good] * 4 if i % 2 else [good, slow_reader, half_open, long_body, malformed, killed]
        while time.time() < end:
            try:
                rng.choice(kinds)()
            except (OSError, http.client.HTTPException) as e:
                count(type(e).__name__)
                time.sleep(0.1)

    threads = [threading.Thread(target=client, args=(i,), daemon=True) for i in range(64)]
    for t in threads:
        t.start()
    while time.time() < end:
        time.sleep(max(1, min(10, seconds / 20)))
        assert server.process.poll() is None, "bmc-serve has ended"
        rss.append(server.rss() >> 20)
    for t in threads:
        t.join(60)
    time.sleep(1)
    status, answer = server.ask("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 4})
    while server.metric("bmc_requests_in_progress") > 0 and time.time() < end + 90:
        time.sleep(0.5)
    left = server.metric("bmc_requests_in_progress")
    server.end()
    print(f"{seconds:.0f} s: {dict(sorted(counts.items()))}\nresident MiB: first {rss[0]}, half {rss[len(rss) // 2]}, last {rss[-1]}, most {max(rss)}; requests left {left:.0f}; afterwards status {status}")
    return status == 200 and left == 0


# ---- speed ----

def speed_requests(n, tokens):
    rng = random.Random(1)
    return [{"prompt": " ".join(rng.choices(WORDS, k=40)), "max_tokens": int(tokens), "temperature": 0, "ignore_eos": True} for _ in range(int(n))]


def gen(model, n=96, n_clients=32, tokens=64):
    """The requests of speed() by bmc-gen --jsonl, without the time of opening the model."""
    requests = speed_requests(n, tokens)
    with tempfile.TemporaryDirectory() as folder:
        stats, start = f"{folder}/stats.json", time.perf_counter()
        answers = generate(model, requests, "-np", str(n_clients), "--stats", stats)
        seconds = time.perf_counter() - start
        with open(stats) as f:
            seconds -= json.load(f)["load_ms"] / 1e3
    made = sum(len(a["ids"]) for a in answers)
    print(f"{made / seconds:.1f} tokens/s; {made} tokens")
    return True


def speed(url, name, n=96, n_clients=32, tokens=64):
    """Tokens per second, and the median time to the first token."""
    host, port = re.match(r"http://([^:/]+):(\d+)", url).groups()
    requests, first, made = speed_requests(n, tokens), [], []

    def one(request):
        c = http.client.HTTPConnection(host, int(port), timeout=600)
        start = time.perf_counter()
        body = dict(request, model=name, stream=True, stream_options={"include_usage": True})
        c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        seen, count, usage = None, 0, None
        for line in c.getresponse():
            if line.startswith(b"data: {"):
                seen = seen or time.perf_counter()
                chunk = json.loads(line[6:])
                count += bool(chunk["choices"])
                usage = chunk.get("usage") or usage
        first.append((seen or start) - start)
        made.append(usage["completion_tokens"] if usage else count)
        c.close()

    for request in requests[:2]:
        one(dict(request, prompt="warm up " + request["prompt"]))
    first.clear(), made.clear()
    start = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(int(n_clients)) as pool:
        list(pool.map(one, requests))
    seconds = time.perf_counter() - start
    print(f"{sum(made) / seconds:.1f} tokens/s; {sum(made)} tokens; median time to first token {1e3 * statistics.median(first):.0f} ms")
    return True


def ttft(model, tokens=4000):
    """Time to the first event, with and without the prompt's KV entries of an earlier request."""
    server = Server(model, "-c", "0", "-np", "2")
    rng, ms, cached = random.Random(2), {"computed": [], "cached": []}, 0
    for _ in range(4):
        prompt = " ".join(rng.choices(["the", "of", "and", "to", "in", "is"], k=int(tokens)))
        for kind in ms:
            c = server.connect()
            start = time.perf_counter()
            c.request("POST", "/v1/completions", json.dumps({"prompt": prompt + f" {kind}", "max_tokens": 4, "stream": True,
                                                             "stream_options": {"include_usage": True}}))
            r = c.getresponse()
            r.readline()
            ms[kind].append(1e3 * (time.perf_counter() - start))
            usage = [json.loads(line[6:]).get("usage") for line in r if line.startswith(b"data: {")][-1]
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            c.close()
    server.end()
    computed, again = (statistics.median(ms[k]) for k in ms)
    print(f"time to first token {computed:.1f} ms, with {cached} cached tokens {again:.1f} ms: {100 * again / computed:.1f} %")
    return True


if __name__ == "__main__":
    jobs = {f.__name__: f for f in (shapes, equal, clients, load, speed, gen, ttft)}
    if len(sys.argv) < 3 or sys.argv[1] not in jobs:
        sys.exit(__doc__)
    sys.exit(0 if jobs[sys.argv[1]](*sys.argv[2:]) else 1)
