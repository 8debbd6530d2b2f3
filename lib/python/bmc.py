"""Inference of language models on CPUs: libbmc.so for Python, without dependencies.

    import bmc

    model = bmc.Model("grimm.bmc")
    print(model.generate("Once upon a time", max_tokens=12))
    for text in model.stream("Once upon a time", max_tokens=12):
        print(text, end="", flush=True)
    adapted = bmc.Model("grimm.bmc", lora=["adapter", ("other.gguf", 0.5)])  # LoRA; per request: lora=[0]
    answer = model.chat([{"role": "user", "content": "Hello"}], json_schema={"type": "object"})
    with bmc.Batch(model, sequences=8, draft="draft.bmc") as batch:  # speculative decoding
        texts = batch.generate_all(["Once upon a time", "The king"], max_tokens=12)

    async def answer():  # agenerate, achat, astream and astream_chat are those for asyncio
        print(await model.agenerate("Once upon a time", max_tokens=12))
        async for text in model.astream("Once upon a time", max_tokens=12):
            print(text, end="", flush=True)

The library is found beside this file in a wheel, an installation or a built checkout, by the environment variable
BMC_LIBRARY, or as the system's libbmc.so.0. Lists of numbers are numpy arrays if numpy can be imported.
Settings are the members of requests of bmc-gen(1): temp, seed, stop, json_schema, regex, grammar, logprobs
and so on.

Threads may share everything: calls on one object take turns, since each computes with all cores. A stream of a model has a
session of its own, so that the model can be used while it is open; calls on a session wait until its stream has all its text.
close() ends the calls of other threads and open streams, which then fail. What nothing refers to any more is freed. Signals
are handled while the library computes, and an exception of a handler, as that of Ctrl-C, ends the call. A task of asyncio that is
cancelled ends its call, too, after the pass that is computed.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import json
import operator
import os
import queue
import signal
import threading
import weakref
from ctypes import POINTER, Structure, byref, c_char, c_char_p, c_double, c_float, c_int, c_size_t, c_uint32
from ctypes import c_uint64, c_void_p, cast, sizeof
from typing import Any, AsyncIterator, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

try:
    import numpy  # type: ignore
except ImportError:
    numpy = None

__all__ = ["Model", "Session", "Batch", "Sampler", "Completion", "Error", "version", "build"]

Path = Union[str, "os.PathLike[str]"]
Prompt = Union[str, Sequence[int]]
Messages = Sequence[Mapping[str, Any]]


class Error(Exception):
    """A failure: str() is the library's sentence, `code` a value of enum bmc_status."""

    FAILED, INVALID, NO_MEMORY, BAD_FILE, FULL, CANCELLED, BUSY = -1, -2, -3, -4, -5, -6, -7

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


# ---- the structures of bmc.h ----


class _Error(Structure):
    _fields_ = [("text", c_char * 512)]


_ProgressCallback = ctypes.CFUNCTYPE(c_int, c_void_p, c_size_t, c_size_t)
_LogCallback = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)


class _ModelOptions(Structure):
    _fields_ = [
        ("size", c_size_t), ("lora", POINTER(c_char_p)), ("n_lora", c_size_t), ("lora_scale", POINTER(c_float)),
        ("models_dir", c_char_p), ("experts", c_char_p), ("mlock", c_int), ("hugepages", c_int), ("numa", c_int),
        ("threads", c_int), ("convert_dir", c_char_p), ("convert_size", c_char_p),
    ]


class _Options(Structure):
    _fields_ = [
        ("size", c_size_t), ("context", c_size_t), ("sequences", c_size_t), ("threads", c_int),
        ("threads_batch", c_int), ("kv", c_char_p), ("cache_type", c_char_p), ("attn", c_char_p),
        ("kernels", c_char_p), ("precision", c_char_p), ("chunk", c_size_t), ("hidden_states", c_int),
        ("chat_template", c_char_p), ("models_dir", c_char_p), ("draft", c_char_p), ("drafter", c_char_p),
        ("draft_max", c_size_t), ("draft_tree", c_size_t), ("draft_always", c_int), ("prefix_cache", c_char_p),
        ("prefix_cache_bytes", c_size_t), ("progress", _ProgressCallback), ("log", _LogCallback), ("arg", c_void_p),
        ("profile", c_char_p), ("alloc", c_char_p), ("attend_valid", c_int), ("lenient", c_int), ("beams", c_size_t),
        ("n_best", c_size_t), ("length_penalty", POINTER(c_double)), ("early_stopping", c_char_p),
        ("cache_kld", c_char_p), ("backend", c_char_p),
    ]


class _Stats(Structure):
    _fields_ = [
        ("size", c_size_t), ("prompt_tokens", c_size_t), ("reused_tokens", c_size_t), ("disk_tokens", c_size_t),
        ("generated_tokens", c_size_t), ("prompt_ms", c_double), ("generate_ms", c_double),
        ("draft_steps", c_size_t), ("draft_step_tokens", c_size_t), ("draft_tokens", c_size_t),
        ("draft_accepted", c_size_t), ("draft_pauses", c_size_t), ("kv_bytes", c_size_t),
        ("kv_allocations", c_size_t),
    ]


class _Input(Structure):
    _fields_ = [
        ("size", c_size_t), ("sequence", c_size_t), ("ids", POINTER(c_uint32)), ("n_ids", c_size_t),
        ("n_outputs", c_size_t), ("output_at", POINTER(c_size_t)), ("logits", POINTER(c_float)),
        ("hidden", POINTER(c_float)),
    ]


class _Request(Structure):
    _fields_ = [
        ("size", c_size_t), ("settings", c_char_p), ("text", c_char_p), ("ids", POINTER(c_uint32)),
        ("n_ids", c_size_t),
    ]


class _Logprob(Structure):
    _fields_ = [("id", c_uint32), ("logprob", c_float)]


class _Result(Structure):
    _fields_ = [
        ("size", c_size_t), ("status", c_int), ("finish", c_int), ("n_prompt", c_size_t),
        ("ids", POINTER(c_uint32)), ("n_ids", c_size_t), ("text", POINTER(c_char)), ("text_len", c_size_t),
        ("logprobs", POINTER(_Logprob)), ("n_best", c_size_t), ("sequence", c_size_t),
        ("logits_hash", c_char * 17), ("error", _Error), ("next", c_void_p), ("score", c_double),
    ]


_PrefillCallback = ctypes.CFUNCTYPE(None, c_void_p, c_size_t, c_size_t)
_ChoiceCallback = ctypes.CFUNCTYPE(c_int, c_void_p, c_size_t, c_size_t, POINTER(c_char), c_size_t, POINTER(c_uint32), c_size_t)
_TextCallback = ctypes.CFUNCTYPE(c_int, c_void_p, c_size_t, POINTER(c_char), c_size_t, POINTER(c_uint32), c_size_t)


class _Callbacks(Structure):
    _fields_ = [
        ("size", c_size_t), ("arg", c_void_p), ("text", _TextCallback), ("prefill", _PrefillCallback),
        ("cancelled", POINTER(c_int)), ("choice_text", _ChoiceCallback),
    ]


_FINISH = ("length", "eos", "stop", "cancelled", "error")


def _find_library() -> str:
    here = os.path.dirname(os.path.abspath(__file__))
    beside = [os.path.join(here, *parts) for parts in (("libbmc.so",), ("..", "libbmc.so"), ("..", "..", "libbmc.so.0"))]
    given = os.environ.get("BMC_LIBRARY")
    if given:
        return given
    for path in beside:
        if os.path.exists(path):
            return path
    return "libbmc.so.0"


def _models_dir() -> Optional[str]:
    """The folder with model families and chat formats of the wheel, the checkout or the installation that has this file."""
    here = os.path.dirname(os.path.abspath(__file__))
    for parts in (("models.d",), ("..", "..", "models.d"), ("..", "..", "..", "share", "bmc")):
        path = os.path.normpath(os.path.join(here, *parts))
        if os.path.isdir(path):
            return path
    return None


def _convert_dir() -> Optional[str]:
    """The folder of converted models that the programs use; None: there is no home folder."""
    for variable, inner in (("XDG_CACHE_HOME", "bmc"), ("HOME", ".cache/bmc")):
        base = os.environ.get(variable, "")
        if base.startswith("/"):
            return os.path.join(base, inner)
    return None


def _load() -> ctypes.CDLL:
    lib = ctypes.CDLL(_find_library())
    error = POINTER(_Error)
    ids, ids_out, size_out = POINTER(c_uint32), POINTER(POINTER(c_uint32)), POINTER(c_size_t)
    functions = {
        "bmc_version": (c_char_p, []),
        "bmc_build": (c_char_p, []),
        "bmc_model_open_with": (c_int, [POINTER(c_void_p), c_char_p, POINTER(_ModelOptions), error]),
        "bmc_model_close": (None, [c_void_p]),
        "bmc_model_vocab": (c_size_t, [c_void_p]),
        "bmc_model_context": (c_size_t, [c_void_p]),
        "bmc_model_hidden": (c_size_t, [c_void_p]),
        "bmc_model_embedding": (c_size_t, [c_void_p]),
        "bmc_model_lora": (c_size_t, [c_void_p]),
        "bmc_set_lora": (c_int, [c_void_p, c_size_t, POINTER(c_float), c_size_t, error]),
        "bmc_is_eog": (c_int, [c_void_p, c_uint32]),
        "bmc_tokenize_flags": (c_int, [c_void_p, c_char_p, c_size_t, ctypes.c_uint, ids_out, size_out, error]),
        "bmc_detokenize": (c_int, [c_void_p, ids, c_size_t, POINTER(c_void_p), error]),
        "bmc_context_open": (c_int, [POINTER(c_void_p), c_void_p, POINTER(_Options), error]),
        "bmc_context_close": (None, [c_void_p]),
        "bmc_context_size": (c_size_t, [c_void_p]),
        "bmc_context_sequences": (c_size_t, [c_void_p]),
        "bmc_context_stats": (c_int, [c_void_p, POINTER(_Stats), error]),
        "bmc_begin": (c_int, [c_void_p, c_size_t, c_size_t, error]),
        "bmc_sampler_open": (c_int, [POINTER(c_void_p), c_void_p, c_char_p, c_uint64, error]),
        "bmc_sampler_close": (None, [c_void_p]),
        "bmc_sample": (c_int, [c_void_p, c_void_p, ids, c_size_t, ids, error]),
        "bmc_eval": (c_int, [c_void_p, POINTER(_Input), c_size_t, error]),
        "bmc_length": (c_size_t, [c_void_p, c_size_t]),
        "bmc_tokens": (ids, [c_void_p, c_size_t]),
        "bmc_truncate": (c_size_t, [c_void_p, c_size_t, c_size_t]),
        "bmc_fork": (c_int, [c_void_p, c_size_t, c_size_t, c_size_t, size_out, error]),
        "bmc_generate": (c_int, [c_void_p, POINTER(_Request), POINTER(_Result), c_size_t, POINTER(_Callbacks), error]),
        "bmc_result_release": (None, [POINTER(_Result)]),
        "bmc_chat_render": (c_int, [c_void_p, c_char_p, ids_out, size_out, POINTER(c_void_p), error]),
        "bmc_score": (c_int, [c_void_p, ids, c_size_t, POINTER(c_double), error]),
        "bmc_embed": (c_int, [c_void_p, ids, c_size_t, c_int, c_int, POINTER(c_float), error]),
        "bmc_rerank": (c_int, [c_void_p, c_char_p, c_char_p, c_size_t, c_char_p, c_size_t, POINTER(c_double), error]),
        "bmc_save": (c_int, [c_void_p, c_size_t, c_char_p, error]),
        "bmc_load": (c_int, [c_void_p, c_size_t, c_char_p, error]),
    }
    for name, (result, arguments) in functions.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


_lib = _load()
_free = ctypes.CDLL(None).free
_free.restype, _free.argtypes = None, [c_void_p]


def version() -> str:
    """The version of the library."""
    return _lib.bmc_version().decode()


def build() -> str:
    """The compiler and the flags that the library was built with."""
    return _lib.bmc_build().decode()


def _check(status: int, error: _Error) -> None:
    if status < 0:
        raise Error(status, error.text.decode("utf-8", "replace"))


# ---- arguments: ctypes would cut numbers to their lowest bits, take them for addresses, and end texts at zero bytes ----


def _whole(value: Any, name: str, most: int = (1 << 64) - 1) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}, a whole number is expected") from None
    if not 0 <= number <= most:
        raise ValueError(f"{name} is {number}, at least 0 and at most {most} is expected")
    return number


def _bytes(value: Any, name: str) -> bytes:
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise TypeError(f"{name} is {value!r}, a string or a path is expected")
    data = os.fsencode(value)
    if b"\0" in data:
        raise ValueError(f"{name} has a null character: {value!r}")
    return data


def _path(path: Path) -> bytes:
    return _bytes(path, "the path")


def _is_list(value: Any) -> bool:
    """Whether a value has items, and is neither a string nor a dictionary."""
    return not isinstance(value, (str, bytes, Mapping)) and (hasattr(value, "__iter__") or hasattr(value, "__getitem__"))


def _ids(ids: Sequence[int]) -> Any:
    if not _is_list(ids):
        raise TypeError(f"token ids are expected, found {ids!r}")
    numbers = [_whole(i, "a token id", (1 << 32) - 1) for i in ids]
    return (c_uint32 * len(numbers))(*numbers)


def _messages(messages: Any) -> List[Mapping[str, Any]]:
    if not _is_list(messages):
        raise TypeError(f"messages are a list of dictionaries, found {messages!r}")
    found = list(messages)
    for message in found:
        if not isinstance(message, Mapping):
            raise TypeError(f"a message is a dictionary with role and content, found {message!r}")
    return found


# Members of requests that have no effect on what the functions return, or another one than their name says.
_REFUSED = {
    "n": "max_tokens is the number of tokens, n_choices that of answers",
    "stream": "use stream() or stream_chat()",
    "prompt_logprobs": "use score()",
    "id": "results have no ids",
    "cancel": "close the iterator of a stream",
}


def _request(prompt: Any, max_tokens: Optional[int], settings: Mapping[str, Any], stream: bool = False) -> Mapping[str, Any]:
    """A request with a prompt, a string or token ids, or without one: None."""
    for name in settings:
        if name in _REFUSED:
            raise TypeError(f"{name} cannot be set: {_REFUSED[name]}")
        if stream and (name in ("logprobs", "top_logprobs", "n_probs") or (name in ("n_choices", "n_cmpl") and settings[name] != 1)):
            raise TypeError(f"{name} cannot be set: a stream yields text, of one answer")
    request = dict(settings)
    if isinstance(prompt, str):
        request["prompt"] = prompt
    elif prompt is not None:
        request["ids"] = _ids(prompt)
    if max_tokens is not None:
        request["max_tokens"] = max_tokens
    return request


def _prompted(prompt: Any, max_tokens: Optional[int], settings: Mapping[str, Any], stream: bool = True) -> Mapping[str, Any]:
    if prompt is None:
        raise TypeError("there is no prompt")
    return _request(prompt, max_tokens, settings, stream)


def _asked(messages: Any, max_tokens: Optional[int], settings: Mapping[str, Any], stream: bool = True) -> Mapping[str, Any]:
    return _request(None, max_tokens, {**settings, "messages": _messages(messages)}, stream)


def _given(request: Mapping[str, Any]) -> _Request:
    """The structure of a request, which borrows an array of token ids; all else is JSON."""
    ids = request.get("ids")
    typed = isinstance(ids, ctypes.Array)
    settings = {name: value for name, value in request.items() if name != "ids" or not typed}
    made = _Request(size=sizeof(_Request), settings=json.dumps(settings, allow_nan=False).encode())
    if typed:
        made.ids, made.n_ids = ids, len(ids)
    return made


def _numbers(array: Any, width: int = 0) -> Any:
    """A ctypes array as a numpy array or a list, in rows of `width` numbers unless that is 0."""
    if numpy is not None:
        flat = numpy.ctypeslib.as_array(array) if len(array) else numpy.zeros(0, "float32")
        return flat.reshape(-1, width) if width else flat
    return [array[i:i + width] for i in range(0, len(array), width)] if width else list(array)


class Completion(str):
    """Generated text. `ids` are its tokens; `finish` is length, eos, stop or cancelled; `n_prompt` the number
    of prompt tokens; `logprobs` for each token a list of (id, natural logarithm): its own, then the most likely
    ones, if the setting `logprobs` asks for them; `logits_hash` that of bmc-gen --stats. `others` are, with the
    setting n_choices, the choices after this one, and with beam search the next best beams, of which each has a
    `score`."""

    ids: List[int]
    finish: str
    n_prompt: int
    logprobs: List[List[Tuple[int, float]]]
    logits_hash: str
    others: List["Completion"]
    score: float


def _completion(result: _Result) -> Completion:
    made, more = _choice(result), result.next
    while more:
        other = cast(more, POINTER(_Result)).contents
        made.others.append(_choice(other))
        more = other.next
    return made


def _choice(result: _Result) -> Completion:
    text = ctypes.string_at(result.text, result.text_len).decode() if result.text else ""
    made = Completion(text)
    width = 1 + result.n_best
    made.ids = result.ids[:result.n_ids] if result.ids else []
    made.finish = _FINISH[result.finish]
    made.n_prompt = result.n_prompt
    made.logits_hash = result.logits_hash.decode()
    made.score = result.score
    made.logprobs = [[(result.logprobs[i * width + j].id, result.logprobs[i * width + j].logprob)
                      for j in range(width)] for i in range(result.n_ids)] if result.logprobs else []
    made.others = []
    return made


_Opened = TypeVar("_Opened", bound="_Handle")

_LIMITS = {c_size_t: (1 << 64) - 1, c_int: (1 << 31) - 1}


def _set_options(to: Structure, options: Mapping[str, Any], refused: Sequence[str] = ("size", "arg")) -> None:
    """Sets members of a structure of options; None is their default."""
    kinds = dict(to._fields_)
    for name, value in options.items():
        if name in refused or name not in kinds:
            raise TypeError(f"there is no option {name!r}")
        if value is None:
            continue
        if kinds[name] is c_char_p:
            value = _bytes(value, name)
        elif kinds[name] in _LIMITS:
            value = _whole(value, name, _LIMITS[kinds[name]])
        elif kinds[name] is POINTER(c_double):
            value = ctypes.pointer(c_double(value))
        setattr(to, name, value)


class _Object:
    """What the library opened, freed by close() or when nothing refers to it any more. Calls of threads take turns here, and not only
    in the library, so that a thread that waits handles signals; `turns`: with the calls on another object."""

    def __init__(self, pointer: c_void_p, close: Callable[[c_void_p], None], turns: Optional["_Object"] = None) -> None:
        self.pointer = pointer
        self.with_other = turns
        self.lock = threading.RLock()
        self.busy = self.closing = False
        self.close = weakref.finalize(self, close, pointer)
        self.close.atexit = False  # the system frees all memory

    @property
    def turns(self) -> "_Object":
        return self.with_other or self


class _Handle:
    """What the library opened, until close()."""

    _object: _Object

    def _parent(self) -> Optional["_Handle"]:
        return None

    @property
    def _handle(self) -> c_void_p:
        parent = self._parent()
        if parent is not None:
            parent._handle  # is open
        if self._object.closing:
            raise ValueError(f"the {type(self).__name__.lower()} is closed")
        return self._object.pointer

    def _open(self, function: Callable[..., int], close: Callable[[c_void_p], None], *arguments: Any, turns: Optional[_Object] = None) -> None:
        pointer, error = c_void_p(), _Error()
        _check(function(byref(pointer), *arguments, byref(error)), error)
        self._object = _Object(pointer, close, turns)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls the library, after the calls of other threads."""
        turns = self._object.turns
        with turns.lock:
            handle = self._handle
            if turns.busy:
                raise Error(Error.BUSY, f"the {type(self).__name__.lower()} is in use by the call that runs this function")
            try:
                turns.busy = True
                return function(handle, *arguments)
            finally:
                turns.busy = False

    def _checked(self, function: Callable[..., int], *arguments: Any) -> None:
        error = _Error()
        _check(self._call(function, *arguments, byref(error)), error)

    def close(self) -> None:
        """Frees it; a second call does nothing."""
        self._object.closing = True
        with self._object.turns.lock:
            self._object.close()

    def __enter__(self: _Opened) -> _Opened:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __reduce_ex__(self, _: Any) -> Any:
        raise TypeError(f"a {type(self).__name__.lower()} cannot be copied or pickled: open another one")


class _Handlers:
    """While the library computes in the main thread, Python runs handlers of signals in callbacks, where their exceptions would be
    lost: the session keeps them, and they end its call."""

    def __init__(self, session: "Session") -> None:
        self.session = session
        self.replaced: List[Tuple[int, Any, Any]] = []

    def _keeping(self, handler: Callable[..., Any]) -> Callable[..., None]:
        def keep(*arguments: Any) -> None:
            try:
                handler(*arguments)
            except BaseException as raised:
                self.session._raised = raised

        return keep

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            if callable(handler):
                keeping = self._keeping(handler)
                self.replaced.append((number, handler, keeping))
                signal.signal(number, keeping)

    def __exit__(self, *_: Any) -> None:
        for number, handler, keeping in self.replaced:
            if signal.getsignal(number) is keeping:  # the handler may have set another one
                signal.signal(number, handler)
        self.replaced.clear()  # which refers to this object


class Model(_Handle):
    """A model: a .bmc file, or a GGUF file or Hugging Face folder, which is converted on first use into `convert_dir`, by default
    the folder that the programs share (BMC_CACHE_SIZE limits it); convert_dir="" only opens .bmc files. `lora` are adapters: paths, or pairs of a path and a scale. experts="ram=8G" limits the
    memory for the weights of experts; mlock, hugepages and numa as of bmc-gen. Other options are those of the default
    session, see Session, of which numa uses `threads`; it binds this thread, not those in which streams compute."""

    def __init__(self, path: Path, lora: Sequence[Union[Path, Tuple[Path, float]]] = (), experts: Optional[str] = None,
                 mlock: bool = False, hugepages: bool = False, numa: bool = False, convert_dir: Optional[Path] = None,
                 **options: Any) -> None:
        pairs = [one if isinstance(one, tuple) else (one, 1.0) for one in ([lora] if isinstance(lora, (str, os.PathLike)) else lora)]
        paths = [_bytes(one, "the path of an adapter") for one, _ in pairs]
        options.setdefault("models_dir", _models_dir())
        _set_options(_Options(), {name: value for name, value in options.items() if name not in ("progress", "log")})
        o = _ModelOptions(size=sizeof(_ModelOptions))
        _set_options(o, {"experts": experts, "mlock": mlock, "hugepages": hugepages, "numa": numa,
                         "convert_dir": _convert_dir() if convert_dir is None else convert_dir or None,
                         "convert_size": os.environ.get("BMC_CACHE_SIZE") or None, "threads": options.get("threads"), "models_dir": options["models_dir"]})
        o.lora, o.n_lora = (c_char_p * len(pairs))(*paths), len(pairs)
        o.lora_scale = (c_float * len(pairs))(*[scale for _, scale in pairs])
        self._open(_lib.bmc_model_open_with, _lib.bmc_model_close, _path(path), byref(o))
        self._options = options
        self._session: Optional[Session] = None
        self._idle: List[Session] = []  # of streams that have ended
        self._sessions: "weakref.WeakSet[Session]" = weakref.WeakSet()
        self.vocab: int = _lib.bmc_model_vocab(self._handle)
        self.context: int = _lib.bmc_model_context(self._handle)
        self.hidden: int = _lib.bmc_model_hidden(self._handle)
        self.embedding: int = _lib.bmc_model_embedding(self._handle)
        self.lora: int = _lib.bmc_model_lora(self._handle)

    def close(self) -> None:
        """Closes the model and its sessions."""
        self._object.closing = True
        with self._object.lock:
            sessions = list(self._sessions)
        for session in sessions:
            session.close()
        self._session = None
        self._idle.clear()
        super().close()

    def _new_session(self) -> "Session":
        """A session for the model's own functions. It refers to a twin of the model, which has the same object: it would keep
        the model open, in a circle."""
        twin = object.__new__(Model)
        twin.__dict__.update(self.__dict__, _session=None, _idle=[])
        return Session(twin, **self._options)

    @property
    def session(self) -> "Session":
        """The session that the functions of the model use, except streams."""
        self._handle  # the model is open
        with self._object.lock:
            if not self._session:
                self._session = self._new_session()
            return self._session

    def is_eog(self, token: int) -> bool:
        """Whether a token ends a text."""
        return bool(self._call(_lib.bmc_is_eog, _whole(token, "the token", (1 << 32) - 1)))

    def tokenize(self, text: str, special: bool = True, parse_special: bool = True) -> List[int]:
        """Token ids; `special`: with BOS and EOS as the model's tokenizer adds them; `parse_special`: special
        tokens spelled in the text are parsed."""
        if not isinstance(text, str):
            raise TypeError(f"a string is expected, found {text!r}")
        ids, n = POINTER(c_uint32)(), c_size_t()
        flags = (0 if special else 1) | (0 if parse_special else 2)
        data = text.encode()
        self._checked(_lib.bmc_tokenize_flags, data, len(data), flags, byref(ids), byref(n))
        found = ids[:n.value]
        _free(cast(ids, c_void_p))
        return found

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text of token ids, without special tokens."""
        text, array = c_void_p(), _ids(ids)
        self._checked(_lib.bmc_detokenize, array, len(array), byref(text))
        found = ctypes.string_at(text).decode()
        _free(text)
        return found

    def generate(self, prompt: Prompt, max_tokens: Optional[int] = None, **settings: Any) -> Completion:
        """The continuation of a text or of token ids, see Session.generate()."""
        return self.session.generate(prompt, max_tokens, **settings)

    def stream(self, prompt: Prompt, max_tokens: Optional[int] = None, **settings: Any) -> Iterator[str]:
        """Yields the continuation as it is generated, see Session.stream()."""
        return self._stream(_prompted(prompt, max_tokens, settings))

    def _stream(self, request: Mapping[str, Any]) -> Iterator[str]:
        """Has a session until the stream is closed, since the model may be used meanwhile."""
        self._handle  # the model is open
        return self._streamed(request)

    def _streamed(self, request: Mapping[str, Any]) -> Iterator[str]:
        session = self._idle_session()
        try:
            yield from session._stream(request)
        finally:
            self._done_with(session)

    def _idle_session(self) -> "Session":
        try:
            return self._idle.pop()
        except IndexError:
            return self._new_session()

    def _done_with(self, session: "Session") -> None:
        if not self._object.closing:
            self._idle.append(session)

    async def agenerate(self, prompt: Prompt, max_tokens: Optional[int] = None, **settings: Any) -> Completion:
        """generate() for asyncio, see Session.agenerate()."""
        return await self.session.agenerate(prompt, max_tokens, **settings)

    async def achat(self, messages: Messages, max_tokens: Optional[int] = None, **settings: Any) -> Completion:
        """chat() for asyncio, see Session.agenerate()."""
        return await self.session.achat(messages, max_tokens, **settings)

    def astream(self, prompt: Prompt, max_tokens: Optional[int] = None, **settings: Any) -> AsyncIterator[str]:
        """stream() for asyncio."""
        return self._astream(_prompted(prompt, max_tokens, settings))

    def astream_chat(self, messages: Messages, max_tokens: Optional[int] = None, **settings: Any) -> AsyncIterator[str]:
        """stream_chat() for asyncio."""
        return self._astream(_asked(messages, max_tokens, settings))

    def _astream(self, request: Mapping[str, Any]) -> AsyncIterator[str]:
        self._handle  # the model is open
        return self._astreamed(request)

    async def _astreamed(self, request: Mapping[str, Any]) -> AsyncIterator[str]:
        session = self._idle_session()
        stream = session._astream(request)
        try:
            async for piece in stream:
                yield piece
        finally:
            await stream.aclose()
            self._done_with(session)

    def chat(self, messages: Messages, max_tokens: Optional[int] = None, **settings: Any) -> Completion:
        """The answer to a conversation, see Session.chat()."""
        return self.session.chat(messages, max_tokens, **settings)

    def stream_chat(self, messages: Messages, max_tokens: Optional[int] = None, **settings: Any) -> Iterator[str]:
        """Yields the text of chat() as it is generated."""
        return self._stream(_asked(messages, max_tokens, settings))

    def score(self, text: Prompt) -> Any:
        """Natural logarithms of the probabilities of the tokens; NaN for the first one."""
        return self.session.score(text)

    def embed(self, text: Prompt, pooling: str = "model", normalize: bool = True) -> Any:
        """The pooled hidden states of a text: mean, last or first, by default as the model declares, or their mean."""
        return self.session.embed(text, pooling, normalize)

    def rerank(self, query: str, documents: Sequence[str], instruction: Optional[str] = None) -> List[float]:
        """The relevance of each document for a query, from 0 to 1, see Session.rerank()."""
        return self.session.rerank(query, documents, instruction)


def _caught(session: Optional["Session"], function: Optional[Callable[..., Any]], *arguments: Any) -> int:
    """What a callback returns: not 0 ends the call of the library. So does an exception, which the session then raises."""
    if session is None:
        return 1
    ends = None
    try:
        if function is not None and session._raised is None:
            ends = function(*arguments)
    except BaseException as raised:
        session._raised = raised
    closing = "_object" in session.__dict__ and session._object.closing
    return int(bool(ends) or closing or session._raised is not None)


_Stream = Tuple[c_int, threading.Thread]  # the flag that ends it, and the thread that generates
_open_streams: List[_Stream] = []


def _end_stream(stream: _Stream) -> threading.Thread:
    """Ends a stream; its thread returns soon."""
    cancelled, worker = stream
    cancelled.value = 1
    _open_streams.remove(stream)
    return worker


@atexit.register
def _end_streams() -> None:
    """Ends open streams at the end of the process, which would otherwise wait for all their text."""
    for cancelled, worker in list(_open_streams):
        cancelled.value = 1
        worker.join()


class Session(_Handle):
    """A context of a model: KV caches of one or more sequences. Options as in struct bmc_options: context,
    sequences, threads, threads_batch, kv, cache_type, cache_kld, backend, attn, kernels, precision, chunk, chat_template,
    models_dir, hidden_states, profile, alloc, attend_valid, lenient; speculative decoding: draft, drafter, draft_max,
    draft_tree, draft_always; beam search: beams, n_best, length_penalty (a number), early_stopping;
    prefix_cache (a folder), prefix_cache_bytes; progress(done, total), called after each forward pass of
    eval(), score() and embed(); log(level, sentence), level 1 for warnings. Prompts that begin as earlier
    ones reuse their KV entries. Ctrl-C, and exceptions of these functions, end a call between two passes."""

    def __init__(self, model: Model, progress: Optional[Callable[[int, int], Any]] = None,
                 log: Optional[Callable[[int, str], Any]] = None, **options: Any) -> None:
        if not isinstance(model, Model):
            raise TypeError(f"a bmc.Model is expected, found {model!r}")
        for function in (progress, log):
            if function is not None and not callable(function):
                raise TypeError(f"a function is expected, found {function!r}")
        o = _Options(size=sizeof(_Options))
        options.setdefault("models_dir", _models_dir())
        _set_options(o, options)
        self.model = model
        self._raised: Optional[BaseException] = None
        self._cancels: List[c_int] = []  # of the calls and streams that run
        own = weakref.ref(self)  # `self` would keep the session open, in a circle
        o.progress = _ProgressCallback(lambda _arg, done, total: _caught(own(), progress, done, total))
        if log:
            o.log = _LogCallback(lambda _arg, level, sentence: _caught(own(), log, level, sentence.decode("utf-8", "replace")))
        self._callbacks = (o.progress, o.log)
        with model._object.lock:
            self._open(_lib.bmc_context_open, _lib.bmc_context_close, model._handle, byref(o))
            model._sessions.add(self)
        self._raise()
        self.context: int = _lib.bmc_context_size(self._handle)
        self.sequences: int = _lib.bmc_context_sequences(self._handle)

    def _parent(self) -> Optional[_Handle]:
        return self.model

    def close(self) -> None:
        """Frees the caches; calls of other threads and open streams fail."""
        self._object.closing = True
        for cancelled in list(self._cancels):
            cancelled.value = 1
        super().close()

    def _raise(self) -> None:
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised

    def _compute(self, function: Callable[..., int], *arguments: Any) -> None:
        """Calls a function that takes its time, and raises what its callbacks and the handlers of signals have raised."""
        with self._object.lock:
            error = _Error()
            try:
                with _Handlers(self):
                    status = self._call(function, *arguments, byref(error))
            finally:
                if not self._object.busy:
                    self._raise()
            if self._object.closing and status == Error.CANCELLED:
                self._handle  # says so: another thread has closed it
            _check(status, error)

    def _sequence(self, sequence: int) -> int:
        found = _whole(sequence, "the sequence")
        if found >= self.sequences:
            raise Error(Error.INVALID, f"there is no sequence {found}: the session has {self.sequences}")
        return found

    def _ids_of(self, text: Prompt) -> Any:
        return _ids(self.model.tokenize(text) if isinstance(text, str) else text)

    def _run(self, requests: Sequence[Mapping[str, Any]], take: Optional[Callable[..., int]] = None,
             cancelled: Optional[c_int] = None) -> List[Completion]:
        n, flag = len(requests), c_int(0) if cancelled is None else cancelled

        def handle(*_: Any) -> int:  # Python handles signals here
            flag.value |= _caught(self, None)
            return flag.value

        callbacks = _Callbacks(size=sizeof(_Callbacks), cancelled=ctypes.pointer(flag), text=_TextCallback(take or handle),
                               prefill=_PrefillCallback(lambda *_: None if handle() else None))
        given = (_Request * n)(*[_given(r) for r in requests])
        results = (_Result * n)(*[_Result(size=sizeof(_Result)) for _ in requests])
        self._cancels.append(flag)
        try:
            self._compute(_lib.bmc_generate, given, results, n, byref(callbacks))
            if self._object.closing and flag.value:
                self._handle  # as above
            return [_completion(r) for r in results]
        finally:
            self._cancels.remove(flag)
            for r in results:
                _lib.bmc_result_release(byref(r))

    def generate(self, prompt: Prompt, max_tokens: Optional[int] = None, **settings: Any) -> Completion:
        """The continuation of a text or of token ids, greedy unless settings say otherwise; without max_tokens
        up to an EOS token or a full context."""
        return self._run([_prompted(prompt, max_tokens, settings, False)])[0]

    def chat(self, messages: Messages, max_tokens: Optional[int] = None, **settings: Any) -> Completion:
        """The answer to a conversation: messages with role and content, rendered by the model's template."""
        return self._run([_asked(messages, max_tokens, settings, False)])[0]

    def stream(self, prompt: Prompt, max_tokens: Optional[int] = None, **settings: Any) -> Iterator[str]:
        """Yields the text of generate() as it is generated; characters are complete. Closing the iterator
        cancels the rest. Other calls on the session wait until all text is there."""
        return self._stream(_prompted(prompt, max_tokens, settings))

    def stream_chat(self, messages: Messages, max_tokens: Optional[int] = None, **settings: Any) -> Iterator[str]:
        """Yields the text of chat() as it is generated."""
        return self._stream(_asked(messages, max_tokens, settings))

    def _stream(self, request: Mapping[str, Any]) -> Iterator[str]:
        self._handle  # is open
        return self._streamed(request)

    def _streamed(self, request: Mapping[str, Any]) -> Iterator[str]:
        pieces: "queue.SimpleQueue[Union[str, BaseException, None]]" = queue.SimpleQueue()
        stream = self._start(request, c_int(0), pieces.put)
        try:
            while True:
                piece = pieces.get()
                if piece is None:
                    return
                if isinstance(piece, BaseException):
                    raise piece
                yield piece
        finally:
            _end_stream(stream).join()

    def _start(self, request: Mapping[str, Any], cancelled: c_int, put: Callable[[Any], Any]) -> _Stream:
        """Generates in a thread, which gives its text to `put` piece by piece, then None or an exception."""
        def take(_arg: Any, _request: int, text: Any, length: int, _ids: Any, _n: int) -> int:
            if length:
                put(ctypes.string_at(text, length).decode())
            return cancelled.value

        def run() -> None:
            lock = self._object.lock
            try:
                while not lock.acquire(timeout=0.05):  # whoever has it may wait for this thread
                    if cancelled.value:
                        return put(None)
                try:
                    self._run([request], take, cancelled)
                finally:
                    lock.release()
                put(None)
            except BaseException as error:  # for the thread that reads
                ended = cancelled.value and not self._object.closing  # by the reader or the end of the process, not by close()
                put(None if ended else error)

        worker = threading.Thread(target=run, daemon=True)
        stream = (cancelled, worker)
        _open_streams.append(stream)
        worker.start()
        return stream

    async def agenerate(self, prompt: Prompt, max_tokens: Optional[int] = None, **settings: Any) -> Completion:
        """generate() for asyncio: other tasks run meanwhile. If the task is cancelled, so is the call, after the pass that is
        computed. Calls on one session take turns, also those of tasks: Batch.run() computes several together."""
        return await self._arun(_prompted(prompt, max_tokens, settings, False))

    async def achat(self, messages: Messages, max_tokens: Optional[int] = None, **settings: Any) -> Completion:
        """chat() for asyncio, as agenerate()."""
        return await self._arun(_asked(messages, max_tokens, settings, False))

    async def _arun(self, request: Mapping[str, Any]) -> Completion:
        cancelled = c_int(0)
        call = asyncio.get_running_loop().run_in_executor(None, self._run, [request], None, cancelled)
        try:
            return (await asyncio.shield(call))[0]
        except asyncio.CancelledError:
            cancelled.value = 1
            call.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody waits for it
            raise

    def astream(self, prompt: Prompt, max_tokens: Optional[int] = None, **settings: Any) -> AsyncIterator[str]:
        """stream() for asyncio: `async for text in session.astream(..)`."""
        return self._astream(_prompted(prompt, max_tokens, settings))

    def astream_chat(self, messages: Messages, max_tokens: Optional[int] = None, **settings: Any) -> AsyncIterator[str]:
        """stream_chat() for asyncio."""
        return self._astream(_asked(messages, max_tokens, settings))

    def _astream(self, request: Mapping[str, Any]) -> AsyncIterator[str]:
        self._handle  # is open
        return self._astreamed(request)

    async def _astreamed(self, request: Mapping[str, Any]) -> AsyncIterator[str]:
        loop, cancelled = asyncio.get_running_loop(), c_int(0)
        pieces: "asyncio.Queue[Union[str, BaseException, None]]" = asyncio.Queue()

        def put(piece: Union[str, BaseException, None]) -> None:
            try:
                loop.call_soon_threadsafe(pieces.put_nowait, piece)
            except RuntimeError:  # the loop is closed
                cancelled.value = 1

        stream = self._start(request, cancelled, put)
        try:
            while True:
                piece = await pieces.get()
                if piece is None:
                    return
                if isinstance(piece, BaseException):
                    raise piece
                yield piece
        finally:
            await loop.run_in_executor(None, _end_stream(stream).join)

    def render(self, messages: Messages, **settings: Any) -> str:
        """The text of a conversation, as the model's chat template writes it."""
        ids, n, text = POINTER(c_uint32)(), c_size_t(), c_void_p()
        conversation = json.dumps({**settings, "messages": _messages(messages)}, allow_nan=False).encode()
        self._checked(_lib.bmc_chat_render, conversation, byref(ids), byref(n), byref(text))
        found = ctypes.string_at(text).decode()
        _free(text)
        _free(cast(ids, c_void_p))
        return found

    def score(self, text: Prompt) -> Any:
        """Natural logarithms of the probabilities of the tokens; NaN for the first one. Empties sequence 0."""
        ids = self._ids_of(text)
        logprobs = (c_double * len(ids))()
        self._compute(_lib.bmc_score, ids, len(ids), logprobs)
        return _numbers(logprobs)

    def embed(self, text: Prompt, pooling: str = "model", normalize: bool = True) -> Any:
        """The pooled hidden states of a text, by default of unit length. Empties sequence 0."""
        ids, poolings = self._ids_of(text), {"mean": 0, "last": 1, "first": 2, "model": 3}
        if pooling not in poolings:
            raise ValueError(f"there is no pooling {pooling!r}: use mean, last, first or model")
        embedding = (c_float * self.model.embedding)()
        self._compute(_lib.bmc_embed, ids, len(ids), poolings[pooling], bool(normalize), embedding)
        return _numbers(embedding)

    def rerank(self, query: str, documents: Sequence[str], instruction: Optional[str] = None) -> List[float]:
        """The relevance of each document for a query, from 0 to 1: by a cross-encoder, or a language model such as Qwen3-Reranker. Empties sequence 0."""
        scores, score, asked = [], c_double(), query.encode()
        for document in documents:
            text = document.encode()
            self._compute(_lib.bmc_rerank, instruction.encode() if instruction else None, asked, len(asked), text, len(text), byref(score))
            scores.append(score.value)
        return scores

    def eval(self, ids: Sequence[int], sequence: int = 0, outputs: int = 1, hidden: bool = False) -> Any:
        """Appends tokens to a sequence; returns the logits that follow the last `outputs` of them, one row for
        each. `hidden`: a pair of logits and hidden states, of a session with the option hidden_states."""
        array, vocab, width = _ids(ids), self.model.vocab, self.model.hidden
        rows = _whole(outputs, "outputs")
        if rows > len(array):
            raise ValueError(f"{rows} outputs are requested of {len(array)} tokens")
        logits = (c_float * (vocab * rows))()
        states = (c_float * (width * rows))() if hidden else None
        given = _Input(size=sizeof(_Input), sequence=self._sequence(sequence), ids=array, n_ids=len(array), n_outputs=rows, logits=logits)
        if states is not None:
            given.hidden = cast(states, POINTER(c_float))
        self._compute(_lib.bmc_eval, byref(given), 1)
        return (_numbers(logits, vocab), _numbers(states, width)) if hidden else _numbers(logits, vocab)

    def begin(self, sequence: int = 0, length: int = 0) -> None:
        """Empties a sequence and announces its length, on which rotary frequencies of some models depend."""
        self._checked(_lib.bmc_begin, self._sequence(sequence), _whole(length, "the length"))

    def set_lora(self, factors: Optional[Sequence[float]], sequence: int = 0) -> None:
        """Factors of the model's LoRA adapters for a sequence, None: 1 each. Empties it if that changes any."""
        n = 0 if factors is None else len(factors)
        array = None if factors is None else (c_float * max(n, 1))(*factors)
        self._checked(_lib.bmc_set_lora, self._sequence(sequence), array, n)

    def stats(self) -> Mapping[str, Any]:
        """What the session has done so far: the members of struct bmc_stats."""
        stats = _Stats(size=sizeof(_Stats))
        self._checked(_lib.bmc_context_stats, byref(stats))
        return {name: getattr(stats, name) for name, _ in _Stats._fields_[1:]}

    def tokens(self, sequence: int = 0) -> List[int]:
        """The tokens whose KV entries a sequence has."""
        at = self._sequence(sequence)
        with self._object.lock:
            n = self._call(_lib.bmc_length, at)
            return self._call(_lib.bmc_tokens, at)[:n] if n else []

    def truncate(self, n: int, sequence: int = 0) -> int:
        """Keeps the first n tokens of a sequence; returns the number that remains."""
        return self._call(_lib.bmc_truncate, self._sequence(sequence), _whole(n, "the number of tokens"))

    def fork(self, to: int, source: int, n: int) -> int:
        """Lets sequence `to` begin with the first n tokens of another one; returns their number."""
        forked = c_size_t()
        self._checked(_lib.bmc_fork, self._sequence(to), self._sequence(source), _whole(n, "the number of tokens"), byref(forked))
        return forked.value

    def save(self, path: Path, sequence: int = 0) -> None:
        """Writes a sequence's tokens and KV entries to a snapshot, bmc-kv(5)."""
        self._compute(_lib.bmc_save, self._sequence(sequence), _path(path))

    def load(self, path: Path, sequence: int = 0) -> List[int]:
        """Replaces a sequence by that of a snapshot; returns its tokens, to continue with."""
        self._compute(_lib.bmc_load, self._sequence(sequence), _path(path))
        return self.tokens(sequence)


class Batch(Session):
    """A session of several sequences, `sequences` by default 8."""

    def __init__(self, model: Model, sequences: int = 8, **options: Any) -> None:
        if sequences == 0:  # of a session the default
            raise ValueError("sequences is 0, at least 1 is expected")
        super().__init__(model, sequences=sequences, **options)

    def generate_all(self, prompts: Iterable[Prompt], max_tokens: Optional[int] = None, **settings: Any) -> List[Completion]:
        """The continuations of all prompts, computed together."""
        if not _is_list(prompts):
            raise TypeError(f"a list of prompts is expected, found {prompts!r}")
        return self._run([_request(p, max_tokens, settings) for p in prompts])

    def run(self, requests: Iterable[Mapping[str, Any]]) -> List[Completion]:
        """Results of requests as lines of bmc-gen --jsonl have them: dictionaries with prompt, ids or messages."""
        given = _messages(requests)
        for name in (name for request in given for name in request):
            if name in ("stream", "cancel", "prompt_logprobs"):
                raise TypeError(f"{name} cannot be set: {_REFUSED[name]}")
        return self._run(given)

    def eval_all(self, tokens: Mapping[int, Sequence[int]]) -> Mapping[int, Any]:
        """Appends tokens to sequences, {sequence: ids}, in one call; returns the logits after the last of each."""
        if not isinstance(tokens, Mapping):
            raise TypeError(f"a dictionary of sequences and their token ids is expected, found {tokens!r}")
        vocab = self.model.vocab
        arrays = [_ids(ids) for ids in tokens.values()]
        inputs = (_Input * len(tokens))()
        logits = (c_float * (vocab * len(tokens)))()
        for i, sequence in enumerate(tokens):
            at = cast(ctypes.byref(logits, i * vocab * sizeof(c_float)), POINTER(c_float))
            inputs[i] = _Input(size=sizeof(_Input), sequence=self._sequence(sequence), ids=arrays[i], n_ids=len(arrays[i]), n_outputs=1, logits=at)
        self._compute(_lib.bmc_eval, inputs, len(tokens))
        return dict(zip(tokens, _numbers(logits, vocab)))


class Sampler(_Handle):
    """Samples tokens from logits, for loops over Session.eval(). Settings are those of samplers, seed,
    ignore_eos and constraints; random numbers depend on the seed, `stream` and the position."""

    def __init__(self, session: Session, stream: int = 0, **settings: Any) -> None:
        if not isinstance(session, Session):
            raise TypeError(f"a bmc.Session is expected, found {session!r}")
        self.session = session
        self._open(lambda pointer, *rest: session._call(lambda context, *last: _lib.bmc_sampler_open(pointer, context, *last), *rest),
                   _lib.bmc_sampler_close, json.dumps(settings, allow_nan=False).encode(), _whole(stream, "the stream"), turns=session._object)

    def _parent(self) -> Optional[_Handle]:
        return self.session

    def sample(self, logits: Any, ids: Sequence[int]) -> int:
        """The token after `ids`, the whole text so far; `logits` is a row that eval() has returned."""
        chosen, array = c_uint32(), _ids(ids)
        if numpy is not None:
            row = numpy.ascontiguousarray(logits, dtype="float32")
            if row.ndim != 1:
                raise ValueError(f"logits have {row.ndim} dimensions: one row of them is expected")
            at = row.ctypes.data
        else:
            row = (c_float * len(logits))(*logits)
            at = ctypes.addressof(row)
        if len(row) != self.session.model.vocab:
            raise ValueError(f"{len(row)} logits, the vocabulary has {self.session.model.vocab}")
        self._checked(_lib.bmc_sample, at, array, len(array), byref(chosen))
        return chosen.value
