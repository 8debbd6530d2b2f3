"""Tests of lib/python/bmc.py: python3 python.py MODEL.bmc TEMPLATE, with the results of bmc-gen in environment variables."""

import json
import math
import os
import signal
import sys
import tempfile
import threading
import time

import bmc

model_path, template = sys.argv[1:]
model = bmc.Model(model_path, context=256, chat_template=template)
messages = [{"role": "user", "content": "Who are you?"}]


def expect(found, wanted):
    if found != wanted:
        raise AssertionError(f"{found!r}, expected {wanted!r}")


def fails(code, sentence, function, *args, **settings):
    try:
        function(*args, **settings)
    except bmc.Error as error:
        expect(error.code, code)
        assert sentence in str(error), str(error)
    else:
        raise AssertionError(f"no error: {sentence}")


made = model.generate("Once upon a time", max_tokens=12)
expect(made, os.environ["TEXT"])
expect(made.logits_hash, os.environ["HASH"])
expect((made.finish, len(made.ids), made.n_prompt), ("length", 12, len(model.tokenize("Once upon a time"))))
expect(model.detokenize(made.ids), made)
expect(model.generate(model.tokenize("Once upon a time"), max_tokens=12), made)
expect("".join(model.stream("Once upon a time", max_tokens=12)), made)
expect(model.generate("A", max_tokens=20, temp=0.9, seed=3), os.environ["SAMPLED"])
expect(model.chat(messages, max_tokens=10), os.environ["ANSWER"])
expect("".join(model.session.stream_chat(messages, max_tokens=10)), os.environ["ANSWER"])
assert "Who are you?" in model.session.render(messages)
expect(model.generate("A", max_tokens=20, temp=0.9, seed=2**64 - 1), os.environ["LARGE_SEED"])
expect(model.chat(messages, grammar='root ::= "abcdef"', stop=["bc"]), "a")
expect(model.chat(messages, json_schema={"enum": ["yes"]}), '"yes"')

stream = model.session.stream("Once upon a time")
first = next(stream)
stream.close()
assert made.startswith(first) and len(model.session.tokens()) < 200, "closing the iterator cancels"

with bmc.Model(model_path, context=256) as closed:
    stream = closed.stream("Once upon a time", ignore_eos=True)
    assert made.startswith(next(stream))
    closed.close()
    try:
        raise AssertionError(f"a stream of a closed model ended: {list(stream)}")
    except ValueError as error:
        assert str(error) == "the model is closed", error

for wrong in ("contxt", "size"):
    try:
        bmc.Model(model_path, **{wrong: 1})
    except TypeError as error:
        assert wrong in str(error)
    else:
        raise AssertionError(f"{wrong} is an option")

logprobs = list(model.score("Once upon a time"))
assert math.isnan(logprobs[0])
assert abs(sum(logprobs[1:]) - float(os.environ["SCORE"])) < 1e-3, logprobs
embedding = [float(x) for x in model.embed("Once upon a time")]
expect(len(embedding), model.hidden)
assert abs(sum(x * x for x in embedding) - 1) < 1e-5

chosen = model.generate("A", max_tokens=8, temp=0.9, seed=3, n_choices=3)
expect([chosen] + chosen.others, json.loads(os.environ["CHOICES"]))
expect(model.generate("A", max_tokens=8).others, [])

with bmc.Session(model, context=256, beams=3, length_penalty=0.5) as session:
    best = session.generate("The king", max_tokens=9)
    beams = json.loads(os.environ["BEAMS"])
    expect([(str(b), b.ids) for b in [best] + best.others], [(b["text"], b["ids"]) for b in beams])
    assert all(abs(b.score - wanted["score"]) < 1e-7 for b, wanted in zip([best] + best.others, beams)), beams
    expect("".join(session.stream("The king", max_tokens=9)), best)
    expect(session.tokens(), [])
fails(bmc.Error.INVALID, "n_best is 4 of 3", bmc.Session, model, beams=3, n_best=4)

with bmc.Model(model_path, context=256, threads=2, numa=True) as placed:
    expect(placed.generate("Once upon a time", max_tokens=12), made)
    fails(bmc.Error.INVALID, "`numa` for 2 `threads`", bmc.Session, placed, threads=3)

scored = model.generate("Once upon a time", max_tokens=3, logprobs=2)
expect([step[0][0] for step in scored.logprobs], scored.ids)
expect([len(step) for step in scored.logprobs], [3, 3, 3])

with tempfile.TemporaryDirectory() as folder, bmc.Session(model, context=64) as session, bmc.Session(model, context=64) as other:
    path = os.path.join(folder, "a.kv")
    whole = session.generate("Once upon a time", max_tokens=16)
    session.generate("Once upon a time", max_tokens=8)
    session.save(path)
    tokens = other.load(path)
    expect(tokens, session.tokens())
    rest = other.generate(tokens + whole.ids[7:8], max_tokens=8)
    expect(rest.ids, whole.ids[8:])
    expect(other.truncate(4), 4)
    fails(bmc.Error.BAD_FILE, "missing.kv", other.load, os.path.join(folder, "missing.kv"))
    expect(other.tokens(), [])

with bmc.Batch(model, sequences=3, context=64, chat_template=template) as batch:
    prompts = ["Once upon a time", "The king", "A", "The queen"]
    expect(batch.generate_all(prompts, max_tokens=6), [model.generate(p, max_tokens=6) for p in prompts])
    expect(batch.run([{"prompt": "A", "n": 3}, {"messages": messages, "max_tokens": 10}])[1], os.environ["ANSWER"])
    for i in range(3):
        batch.truncate(0, i)
    logits = batch.eval_all({0: [5, 6, 7], 2: [8]})
    expect(batch.fork(1, 0, 2), 2)
    again = batch.eval_all({1: [7]})
    expect([float(x) for x in again[1]], [float(x) for x in logits[0]])
    fails(bmc.Error.FULL, "is full", batch.eval_all, {0: [5] * 100})
    expect(batch.tokens(0), [5, 6, 7])

heard, seen = [], []
with bmc.Session(model, context=128, chunk=16, drafter="lookup", draft_always=1, hidden_states=1, log=lambda level, text: heard.append((level, text)),
                 progress=lambda done, total: seen.append((done, total))) as session:
    assert heard[0][0] == 0 and heard[0][1].endswith("drafter lookup"), heard
    expect(session.generate("Once upon a time", max_tokens=12), made)
    stats = session.stats()
    assert stats["draft_tokens"] >= stats["draft_accepted"] and stats["generated_tokens"] >= 12 and stats["kv_bytes"] > 0, stats
    session.begin()
    logits, states = session.eval([5] * 40, outputs=2, hidden=True)
    expect(seen, [(16, 40), (32, 40), (40, 40)])
    expect([len(logits), len(logits[0]), len(states[1])], [2, model.vocab, model.hidden])
    state = [float(x) for x in states[1]]
    expect([float(x) for x in session.embed([5] * 40, "last", normalize=False)], state)

with bmc.Session(model, context=256, alloc="mmap", attend_valid=1, lenient=1) as session:
    again = session.generate("Once upon a time", max_tokens=12, tempo=1)
    expect((again, again.logits_hash), (made, made.logits_hash))
fails(bmc.Error.INVALID, "there are pool, malloc, mmap and thp", bmc.Session, model, alloc="calloc")

prompt = model.tokenize("Once upon a time")
sampled = model.generate(prompt, max_tokens=20, temp=0.9, seed=3, regex="[a-z ,]*")
with bmc.Session(model, context=128) as session, bmc.Sampler(session, temp=0.9, seed=3, regex="[a-z ,]*") as sampler:
    ids, logits = list(prompt), session.eval(prompt)
    for _ in range(20):
        ids.append(sampler.sample(logits[0], ids))
        logits = session.eval(ids[-1:])
    expect(ids[len(prompt):], sampled.ids)
    fails(bmc.Error.INVALID, "outside the vocabulary", sampler.sample, logits[0], [model.vocab])


signal.signal(signal.SIGINT, signal.default_int_handler)  # also as a background process


def interrupted(function, *args, **settings):
    """Ctrl-C while the library computes ends the call."""
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        function(*args, **settings)
        time.sleep(60)  # the call was too fast
    except KeyboardInterrupt:
        timer.join()
        return True
    return False


with bmc.Session(model, context=1024, chunk=1) as session:
    assert interrupted(session.generate, "Once upon a time", ignore_eos=True)
    session.begin()
    assert interrupted(session.eval, [5] * 900) and len(session.tokens()) < 900
    expect((len(session.eval(prompt)), session.tokens()[-len(prompt):]), (1, prompt))


def refuse(done, total):
    raise RuntimeError("enough")


with bmc.Session(model, context=64, progress=refuse) as session:
    try:
        session.eval([5, 6])
    except RuntimeError as error:
        expect((str(error), session.tokens()), ("enough", []))
    else:
        raise AssertionError("the exception is lost")

fails(bmc.Error.INVALID, "no drafter", bmc.Session, model, drafter="oracle")
fails(bmc.Error.BAD_FILE, "no such file.bmc", bmc.Model, "no such file.bmc")
fails(bmc.Error.INVALID, "tempo", model.generate, "a", tempo=1)
fails(bmc.Error.INVALID, "none", bmc.Session, model, kv="none")
try:
    bmc.Session(model, size=1)
except TypeError as error:
    assert "no option 'size'" in str(error)
else:
    raise AssertionError("an unknown option")
session = bmc.Session(model)
model.close()
for call in (lambda: model.generate("x"), lambda: model.tokenize("x"), lambda: bmc.Session(model), lambda: session.eval([5])):
    try:
        call()
    except ValueError as error:
        assert str(error) == "the model is closed", error
    else:
        raise AssertionError("a closed model was used")
print("passed")
