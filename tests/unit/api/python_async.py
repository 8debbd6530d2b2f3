"""asyncio in lib/python/bmc.py: python3 python_async.py MODEL.bmc TEMPLATE. The results are those of the functions without it."""

import asyncio
import sys
import time

import bmc

model = bmc.Model(sys.argv[1], context=1024, chat_template=sys.argv[2])
messages = [{"role": "user", "content": "Who are you?"}]
text = model.generate("Once upon a time", max_tokens=12)
answer = model.chat(messages, max_tokens=10)
sampled = {"max_tokens": 20, "temp": 0.9, "seed": 3}
endless = {"ignore_eos": True, "max_tokens": 900}


async def joined(stream):
    return "".join([piece async for piece in stream])


async def raises(kind, sentence, call):
    try:
        await call
    except kind as error:
        assert sentence in str(error), error
    else:
        raise AssertionError(f"no error: {sentence}")


async def results():
    for user in (model, model.session):
        assert await user.agenerate("Once upon a time", max_tokens=12) == text
        assert await user.achat(messages, max_tokens=10) == answer
        assert await joined(user.astream("Once upon a time", max_tokens=12)) == text
        assert await joined(user.astream_chat(messages, max_tokens=10)) == answer
    made = await model.agenerate("Once upon a time", max_tokens=12)
    assert made.logits_hash == text.logits_hash and made.finish == "length"
    # Several tasks, on one session and on sessions of their own.
    found = await asyncio.gather(model.agenerate("A", **sampled), joined(model.astream("A", **sampled)),
                                 model.agenerate("Once upon a time", max_tokens=12))
    assert found == [model.generate("A", **sampled)] * 2 + [text], found
    await raises(bmc.Error, "tempo", model.agenerate("a", tempo=1))
    await raises(bmc.Error, "tempo", joined(model.astream("a", tempo=1)))
    await raises(TypeError, "no prompt", model.agenerate(None))


async def others_run():
    """Other tasks run while the library computes."""
    ticks = 0
    call = asyncio.ensure_future(model.agenerate("Once upon a time", **endless))
    while not call.done():
        await asyncio.sleep(0.001)
        ticks += 1
    assert ticks >= 5, ticks
    assert len((await call).ids) > 100


async def cancelled():
    """Cancelled tasks end their calls; what they used can be used again."""
    for call in (model.agenerate("Once upon a time", **endless), joined(model.astream("Once upon a time", **endless))):
        task = asyncio.ensure_future(call)
        await asyncio.sleep(0.02)
        task.cancel()
        begun = time.monotonic()
        await raises(asyncio.CancelledError, "", task)
        assert await model.agenerate("Once upon a time", max_tokens=12) == text
        assert time.monotonic() - begun < 5
    stream = model.astream("Once upon a time", **endless)
    async for piece in stream:
        assert text.startswith(piece)
        break
    await stream.aclose()
    assert not bmc._open_streams
    assert await joined(model.astream("Once upon a time", max_tokens=12)) == text


asyncio.run(results())
asyncio.run(others_run())
asyncio.run(cancelled())
left = model.astream("Once upon a time", **endless)
asyncio.run(left.__anext__())  # the loop ends with the stream open
model.close()
for call in (model.agenerate, model.astream, model.achat, model.astream_chat):
    try:
        made = call(messages if "chat" in call.__name__ else "x")
        asyncio.run(made)
    except ValueError as error:
        assert str(error) == "the model is closed", error
    else:
        raise AssertionError("a closed model was used")
print("passed")
