"""Wrong arguments, threads, signals and lifetimes of lib/python/bmc.py: python3 python_misuse.py MODEL.bmc TEMPLATE FOLDER [CALLS]"""

import copy
import gc
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time

import bmc

path, template, folder = sys.argv[1:4]
n_calls = int(sys.argv[4]) if len(sys.argv) > 4 else 160
model = bmc.Model(path, context=128, chat_template=template, threads=2)
session = bmc.Session(model, context=64, sequences=2)
batch = bmc.Batch(model, sequences=2, context=64)
sampler = bmc.Sampler(session)
said = [{"role": "user", "content": "Who?"}]
huge = 2**64
flat = [0.0] * model.vocab

# Each call, and a part of what is said of it: always an exception of Python, or one of the library's own kind with its code.
PYTHON = (TypeError, ValueError)
wrong = [
    (lambda: bmc.Model(5), TypeError, "a string or a path is expected"),
    (lambda: bmc.Model("a\0b"), ValueError, "null character"),
    (lambda: bmc.Model(path, kv=5), TypeError, "kv is 5"),
    (lambda: bmc.Model(path, kv="bmc\0x"), ValueError, "null character"),
    (lambda: bmc.Model(path, experts=8), TypeError, "experts is 8"),
    (lambda: bmc.Model(path, lora=["a\0"]), ValueError, "null character"),
    (lambda: bmc.Model(path, lora=[5]), TypeError, "a path is expected"),
    (lambda: bmc.Model(path, lora=[("a", "b")]), TypeError, ""),
    (lambda: bmc.Model(path, mlock="yes"), TypeError, "mlock"),
    (lambda: bmc.Model(path, mlock=2**40), ValueError, "mlock"),
    (lambda: bmc.Model(path, threads=-1), ValueError, "threads is -1"),
    (lambda: bmc.Model(path, contxt=1), TypeError, "no option 'contxt'"),
    (lambda: bmc.Model(path, context=huge + 8), ValueError, "context is"),
    (lambda: bmc.Session(path), TypeError, "a bmc.Model is expected"),
    (lambda: bmc.Session(model, context=-1), ValueError, "context is -1"),
    (lambda: bmc.Session(model, context=1.5), TypeError, "context is 1.5"),
    (lambda: bmc.Session(model, context="8"), TypeError, "context is '8'"),
    (lambda: bmc.Session(model, cache_type=8), TypeError, "cache_type is 8"),
    (lambda: bmc.Session(model, progress=1), TypeError, "a function is expected"),
    (lambda: bmc.Session(model, log="stderr"), TypeError, "a function is expected"),
    (lambda: bmc.Session(model, length_penalty="1"), TypeError, ""),
    (lambda: bmc.Session(model, prefix_cache=3), TypeError, "prefix_cache is 3"),
    (lambda: bmc.Batch(model, sequences=-2), ValueError, "sequences is -2"),
    (lambda: bmc.Batch(model, sequences=0), ValueError, "sequences is 0"),
    (lambda: model.tokenize(b"x"), TypeError, "a string is expected"),
    (lambda: model.tokenize(None), TypeError, "a string is expected"),
    (lambda: model.detokenize("abc"), TypeError, "token ids are expected"),
    (lambda: model.detokenize(["5"]), TypeError, "a whole number is expected"),
    (lambda: model.detokenize([5.5]), TypeError, "a whole number is expected"),
    (lambda: model.detokenize([-1]), ValueError, "a token id is -1"),
    (lambda: model.detokenize([2**32]), ValueError, "a token id is 4294967296"),
    (lambda: model.detokenize([2**31]), bmc.Error, "outside the vocabulary"),
    (lambda: model.is_eog(2**32 + 2), ValueError, "the token is"),
    (lambda: model.is_eog("2"), TypeError, "the token is '2'"),
    (lambda: model.generate(None), TypeError, "there is no prompt"),
    (lambda: model.generate(b"x"), TypeError, "token ids are expected"),
    (lambda: model.generate({"a": 1}), TypeError, "token ids are expected"),
    (lambda: model.generate(5), TypeError, "token ids are expected, found 5"),
    (lambda: model.generate("x", max_tokens="5"), bmc.Error, "max_tokens"),
    (lambda: model.generate("x", max_tokens=1.5), bmc.Error, "max_tokens"),
    (lambda: model.generate("x", temp=float("nan")), ValueError, ""),
    (lambda: model.generate("x", stop={"a"}), TypeError, ""),
    (lambda: model.generate("x", n=2), TypeError, "n cannot be set"),
    (lambda: model.generate("x", stream=True), TypeError, "use stream()"),
    (lambda: model.generate("x", prompt_logprobs=1), TypeError, "use score()"),
    (lambda: model.generate("x", ids=[1]), bmc.Error, ""),
    (lambda: model.chat("hello"), TypeError, "messages are a list"),
    (lambda: model.chat(said[0]), TypeError, "messages are a list"),
    (lambda: model.chat(5), TypeError, "messages are a list"),
    (lambda: model.chat(["hello"]), TypeError, "a message is a dictionary"),
    (lambda: model.chat(said, n=2), TypeError, "n_choices"),
    (lambda: model.chat(said, stream=True), TypeError, "stream_chat()"),
    (lambda: model.stream("x", n_choices=2), TypeError, "of one answer"),
    (lambda: model.stream("x", logprobs=2), TypeError, "yields text"),
    (lambda: model.stream(None), TypeError, "there is no prompt"),
    (lambda: model.stream_chat("x"), TypeError, "messages are a list"),
    (lambda: list(model.stream("x", tempo=1)), bmc.Error, "tempo"),
    (lambda: session.stream(5), TypeError, "token ids are expected"),
    (lambda: session.render("x"), TypeError, "messages are a list"),
    (lambda: model.score(5), TypeError, "token ids are expected"),
    (lambda: model.score([]), bmc.Error, "empty"),
    (lambda: model.embed("x", pooling="max"), ValueError, "no pooling 'max'"),
    (lambda: model.embed(["x"]), TypeError, "a whole number is expected"),
    (lambda: session.eval([5], sequence=huge), ValueError, "the sequence is"),
    (lambda: session.eval([5], sequence=-1), ValueError, "the sequence is -1"),
    (lambda: session.eval([5], sequence=2), bmc.Error, "there is no sequence 2"),
    (lambda: session.eval([5], outputs=huge), ValueError, "outputs is"),
    (lambda: session.eval([5], outputs=-1), ValueError, "outputs is -1"),
    (lambda: session.eval([5], outputs=2), ValueError, "2 outputs are requested of 1"),
    (lambda: session.eval([5], hidden=True), bmc.Error, "hidden_states"),
    (lambda: session.eval("abc"), TypeError, "token ids are expected"),
    (lambda: session.begin(0, -1), ValueError, "the length is -1"),
    (lambda: session.set_lora(["a"]), TypeError, ""),
    (lambda: session.set_lora([1.0]), bmc.Error, "factors are given"),
    (lambda: session.tokens(2), bmc.Error, "there is no sequence 2"),
    (lambda: session.tokens("0"), TypeError, "the sequence is '0'"),
    (lambda: session.truncate(-1), ValueError, "the number of tokens is -1"),
    (lambda: session.truncate(1, 7), bmc.Error, "there is no sequence 7"),
    (lambda: session.fork(0, huge, 1), ValueError, "the sequence is"),
    (lambda: session.fork(0, 0, 1), bmc.Error, "to itself"),
    (lambda: session.save("a\0b"), ValueError, "null character"),
    (lambda: session.save(5), TypeError, "a path is expected"),
    (lambda: session.load(folder, huge), ValueError, "the sequence is"),
    (lambda: batch.generate_all("abc"), TypeError, "a list of prompts"),
    (lambda: batch.generate_all(5), TypeError, "a list of prompts"),
    (lambda: batch.run({"prompt": "x"}), TypeError, ""),
    (lambda: batch.run(["x"]), TypeError, ""),
    (lambda: batch.run([{"prompt": "x", "stream": True}]), TypeError, "stream cannot be set"),
    (lambda: batch.eval_all([5]), TypeError, "a dictionary of sequences"),
    (lambda: batch.eval_all({huge: [5]}), ValueError, "the sequence is"),
    (lambda: batch.eval_all({0: "x"}), TypeError, "token ids are expected"),
    (lambda: bmc.Sampler(model), TypeError, "a bmc.Session is expected"),
    (lambda: bmc.Sampler(session, stream=huge), ValueError, "the stream is"),
    (lambda: bmc.Sampler(session, temp="hot"), bmc.Error, "temp"),
    (lambda: sampler.sample([0.0], [5]), ValueError, "the vocabulary has"),
    (lambda: sampler.sample(flat, "x"), TypeError, "token ids are expected"),
    (lambda: sampler.sample([flat], [5]), PYTHON, ""),
    (lambda: sampler.sample(["a"] * model.vocab, [5]), PYTHON, ""),
] + [(lambda f=f, o=o: f(o), TypeError, "cannot be copied or pickled") for f in (copy.copy, copy.deepcopy, pickle.dumps) for o in (model, session, batch, sampler)]

failed = []
for number, (call, kinds, sentence) in enumerate(wrong):
    try:
        found = f"returned {call()!r}"
    except kinds as error:
        if sentence in str(error) and type(error).__module__ != "ctypes":
            continue
        found = repr(error)
    except BaseException as error:
        found = repr(error)
    failed.append(f"wrong[{number}] ({sentence}): {found}")
assert len(wrong) > 100 and not failed, "\n".join(failed)


# ---- four threads on one model: the results of one ----

prompts = ["Once upon a time", "The king", "A fox"]


def call(i):
    prompt = prompts[i // 6 % 3]
    return [lambda: model.generate(prompt, max_tokens=2 + i % 3), lambda: "".join(model.stream(prompt, max_tokens=3, temp=0.8, seed=i % 4)),
            lambda: model.chat([{"role": "user", "content": prompt}], max_tokens=2), lambda: [float(x) for x in model.embed(prompt)],
            lambda: [float(x) for x in model.score(prompt)][1:], lambda: model.tokenize(prompt)][i % 6]()


alone = [call(i) for i in range(36)]
differing = []


def work(seed):
    try:
        chosen = random.Random(seed)
        for _ in range(n_calls // 4):
            i = chosen.randrange(len(alone))
            if call(i) != alone[i]:
                differing.append(i)
    except BaseException as error:
        differing.append(error)


threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not differing, differing

# ---- an open stream, and other uses meanwhile ----

stream = model.stream(prompts[0], max_tokens=12)
first = next(stream)
expected = model.generate(prompts[0], max_tokens=12)
assert first + "".join(stream) == expected
open_stream = session.stream(prompts[0], max_tokens=12)
first = next(open_stream)
assert len(session.score("The king")) == len(model.tokenize("The king")), "waits for the stream's text"
assert first + "".join(open_stream) == expected

# ---- close() and callbacks during a call ----

closing = bmc.Session(model, context=1024)
ended = []


def endless():
    try:
        ended.append(closing.generate(prompts[0], ignore_eos=True))
    except ValueError as error:
        ended.append(str(error))


thread = threading.Thread(target=endless)
thread.start()
time.sleep(0.1)
closing.close()
thread.join()
assert ended == ["the session is closed"], ended

# Streams that close() cuts off fail, so that their text is not taken for all of it; a reader that closes a stream hears nothing.
for name in ("model", "session"):
    for elsewhere in (False, True):
        owner = bmc.Model(path, context=1024, chat_template=template)
        closed = owner if name == "model" else bmc.Session(owner, context=1024, chat_template=template)
        cut = closed.stream_chat(said, ignore_eos=True) if elsewhere else closed.stream(prompts[0], ignore_eos=True)
        next(cut)
        thread = threading.Thread(target=closed.close)
        thread.start()
        if not elsewhere:
            thread.join()
        try:
            raise AssertionError(f"ended as if complete: {list(cut)}")
        except ValueError as error:
            assert str(error) == f"the {name} is closed", error
        thread.join()
owner = bmc.Model(path, context=1024)
for end in (lambda: None, owner.close):
    cut = owner.stream(prompts[0], ignore_eos=True)
    next(cut)
    end()
    cut.close()
    assert list(cut) == []

told = []


def progress(done, total):
    for use in (inner.tokens, lambda: inner.eval([5]), lambda: inner.truncate(0), lambda: inner.generate("x", max_tokens=1)):
        try:
            told.append(use())
        except bmc.Error as error:
            told.append(error.code)
    told.append(len(model.generate("x", max_tokens=2).ids))


inner = bmc.Session(model, context=64, progress=progress)
inner.eval([5, 6])
assert told == [bmc.Error.BUSY] * 4 + [2], told
last = bmc.Session(model, context=64, progress=lambda done, total: last.close())
try:
    last.eval([5, 6])
    raise AssertionError("used after close()")
except ValueError as error:
    assert str(error) == "the session is closed", error

# ---- signals ----


class Alarm(Exception):
    pass


def raise_alarm(*_):
    raise Alarm


handled = []
signal.signal(signal.SIGUSR1, lambda *_: handled.append(1))
signal.signal(signal.SIGALRM, raise_alarm)
with bmc.Session(model, context=1024, chunk=1) as long, bmc.Session(model, context=1024, beams=2) as beams:
    for function, settings in ((lambda: long.generate(prompts[0], ignore_eos=True), {}), (lambda: list(long.stream(prompts[0], ignore_eos=True)), {}),
                               (lambda: long.eval([5] * 1000), {}), (lambda: long.score([5] * 1000), {}), (lambda: long.embed([5] * 1000), {}),
                               (lambda: beams.generate(prompts[0], ignore_eos=True), {})):
        long.begin()
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        begun = time.monotonic()
        try:
            function()
            raise AssertionError("the call was too fast, or the exception is lost")
        except Alarm:
            assert time.monotonic() - begun < 2, time.monotonic() - begun
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    long.begin()
    long.eval([5] * 200)
    timer.join()
assert handled == [1] and signal.getsignal(signal.SIGALRM) is raise_alarm

# ---- what is dropped is unmapped, without the garbage collector ----

gc.disable()


def mapped():
    with open("/proc/self/maps") as maps:
        return sum(line.rstrip().endswith(os.path.realpath(path)) for line in maps)


before = mapped()
for i in range(5):
    dropped = bmc.Model(path, context=64)
    dropped.generate("x", max_tokens=1)
    next(dropped.stream("x", max_tokens=9))
    own = dropped.session
    held = bmc.Sampler(bmc.Session(dropped, context=64))
    assert own.model.tokenize("x") == dropped.tokenize("x")
    assert mapped() > before
    del dropped
    assert len(own.embed("x")) == model.hidden, "a session holds its model"
    del own, held
    assert mapped() == before, f"{mapped()} mappings, {before} before"
gc.enable()

# ---- the end of the process ----

script = f"""
import sys, bmc
model = bmc.Model({path!r}, context=1024)
stream = model.stream("Once upon a time", ignore_eos=True)
next(stream)
other = bmc.Session(model, context=64).stream("x", ignore_eos=True)
next(other)
sys.exit(3)
"""
begun = time.monotonic()
assert subprocess.run([sys.executable, "-c", script]).returncode == 3
assert time.monotonic() - begun < 5, time.monotonic() - begun
print("passed")
