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

The library is found beside this file in an installation or a built checkout, by the environment variable
BMC_LIBRARY, or as the system's libbmc.so.0. Lists of numbers are numpy arrays if numpy can be imported.
Settings are the members of requests of bmc-gen(1): temp, seed, stop, json_schema, regex, grammar, logprobs
and so on. Objects belong to one thread at a time; models may be shared.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import json
import os
import queue
import signal
import threading
import weakref
from ctypes import POINTER, Structure, byref, c_char, c_char_p, c_double, c_float, c_int, c_size_t, c_uint32
from ctypes import c_uint64, c_void_p, cast, sizeof
from typing import Any, Callable, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

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

    FAILED, INVALID, NO_MEMORY, BAD_FILE, FULL, CANCELLED = -1, -2, -3, -4, -5, -6

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
        ("threads", c_int),
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
    beside = [os.path.join(here, *parts) for parts in (("..", "libbmc.so"), ("..", "..", "libbmc.so.0"))]
    given = os.environ.get("BMC_LIBRARY")
    if given:
        return given
    for path in beside:
        if os.path.exists(path):
            return path
    return ctypes.util.find_library("bmc") or "libbmc.so.0"


def _models_dir() -> Optional[str]:
    """The folder with model families and chat formats of the checkout or the installation that has this file."""
    here = os.path.dirname(os.path.abspath(__file__))
    for parts in (("..", "..", "models.d"), ("..", "..", "..", "share", "bmc")):
        path = os.path.normpath(os.path.join(here, *parts))
        if os.path.isdir(path):
            return path
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


def _path(path: Path) -> bytes:
    return os.fsencode(path)


def _ids(ids: Sequence[int]) -> Any:
    for i in ids:
        if not 0 <= int(i) < 1 << 32:
            raise ValueError(f"{i} is not a token id")
    return (c_uint32 * len(ids))(*[int(i) for i in ids])


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


def _check_options(options: Mapping[str, Any]) -> None:
    for name in options:
        if name in ("size", "arg") or name not in dict(_Options._fields_):
            raise TypeError(f"there is no option {name!r}")


class _Handle:
    """What the library opened, until close()."""

    _pointer: c_void_p

    def _parent(self) -> Optional["_Handle"]:
        return None

    @property
    def _handle(self) -> c_void_p:
        parent = self._parent()
        if (parent is not None and not parent._handle) or not self._pointer:
            raise ValueError(f"the {type(self).__name__.lower()} is closed")
        return self._pointer

    def close(self) -> None:
        """Frees it; a second call does nothing."""

    def __enter__(self: _Opened) -> _Opened:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_pointer", None):
            parent = self._parent()
            if parent is not None and parent._pointer:
                self.close()


class Model(_Handle):
    """A model file. `lora` are adapters: paths, or pairs of a path and a scale. experts="ram=8G" limits the
    memory for the weights of experts; mlock, hugepages and numa as of bmc-gen. Other options are those of the default
    session, see Session, of which numa uses `threads`; it binds this thread, not those in which streams compute."""

    def __init__(self, path: Path, lora: Sequence[Union[Path, Tuple[Path, float]]] = (), experts: Optional[str] = None,
                 mlock: bool = False, hugepages: bool = False, numa: bool = False, **options: Any) -> None:
        error, o = _Error(), _ModelOptions(size=sizeof(_ModelOptions), mlock=mlock, hugepages=hugepages, numa=numa)
        o.threads = int(options.get("threads") or 0)
        pairs = [one if isinstance(one, tuple) else (one, 1.0) for one in ([lora] if isinstance(lora, (str, os.PathLike)) else lora)]
        o.lora = (c_char_p * len(pairs))(*[_path(one) for one, _ in pairs])
        o.lora_scale = (c_float * len(pairs))(*[scale for _, scale in pairs])
        o.n_lora = len(pairs)
        o.experts = experts.encode() if experts is not None else None
        options.setdefault("models_dir", _models_dir())
        o.models_dir = _path(options["models_dir"]) if options["models_dir"] else None
        self._pointer = c_void_p()
        self._options = options
        self._session: Optional[Session] = None
        self._sessions: "weakref.WeakSet[Session]" = weakref.WeakSet()
        _check_options(options)
        _check(_lib.bmc_model_open_with(byref(self._pointer), _path(path), byref(o), byref(error)), error)
        self.vocab: int = _lib.bmc_model_vocab(self._handle)
        self.context: int = _lib.bmc_model_context(self._handle)
        self.hidden: int = _lib.bmc_model_hidden(self._handle)
        self.lora: int = _lib.bmc_model_lora(self._handle)

    def close(self) -> None:
        """Closes the model and its sessions."""
        for session in list(self._sessions):
            session.close()
        self._session = None
        if self._pointer:
            _lib.bmc_model_close(self._pointer)
        self._pointer = c_void_p()

    @property
    def session(self) -> "Session":
        """The session that the functions of the model use."""
        if not self._session:
            self._session = Session(self, **self._options)
        return self._session

    def is_eog(self, token: int) -> bool:
        """Whether a token ends a text."""
        return bool(_lib.bmc_is_eog(self._handle, token))

    def tokenize(self, text: str, special: bool = True, parse_special: bool = True) -> List[int]:
        """Token ids; `special`: with BOS and EOS as the model's tokenizer adds them; `parse_special`: special
        tokens spelled in the text are parsed."""
        error, ids, n = _Error(), POINTER(c_uint32)(), c_size_t()
        flags = (0 if special else 1) | (0 if parse_special else 2)
        data = text.encode()
        _check(_lib.bmc_tokenize_flags(self._handle, data, len(data), flags, byref(ids), byref(n), byref(error)), error)
        found = ids[:n.value]
        _free(cast(ids, c_void_p))
        return found

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text of token ids, without special tokens."""
        error, text = _Error(), c_void_p()
        _check(_lib.bmc_detokenize(self._handle, _ids(ids), len(ids), byref(text), byref(error)), error)
        found = ctypes.string_at(text).decode()
        _free(text)
        return found

    def generate(self, prompt: Prompt, max_tokens: Optional[int] = None, **settings: Any) -> Completion:
        """The continuation of a text or of token ids, see Session.generate()."""
        return self.session.generate(prompt, max_tokens, **settings)

    def stream(self, prompt: Prompt, max_tokens: Optional[int] = None, **settings: Any) -> Iterator[str]:
        """Yields the continuation as it is generated, see Session.stream()."""
        return self.session.stream(prompt, max_tokens, **settings)

    def chat(self, messages: Messages, max_tokens: Optional[int] = None, **settings: Any) -> Completion:
        """The answer to a conversation, see Session.chat()."""
        return self.session.chat(messages, max_tokens, **settings)

    def score(self, text: Prompt) -> Any:
        """Natural logarithms of the probabilities of the tokens; NaN for the first one."""
        return self.session.score(text)

    def embed(self, text: Prompt, pooling: str = "model", normalize: bool = True) -> Any:
        """The pooled hidden states of a text: mean, last or first, by default as the model declares, or their mean."""
        return self.session.embed(text, pooling, normalize)


class Session(_Handle):
    """A context of a model: KV caches of one or more sequences. Options as in struct bmc_options: context,
    sequences, threads, threads_batch, kv, cache_type, attn, kernels, precision, chunk, chat_template,
    models_dir, hidden_states, profile, alloc, attend_valid, lenient; speculative decoding: draft, drafter, draft_max,
    draft_tree, draft_always; beam search: beams, n_best, length_penalty (a number), early_stopping;
    prefix_cache (a folder), prefix_cache_bytes; progress(done, total), called after each forward pass of
    eval(), score() and embed(); log(level, sentence), level 1 for warnings. Prompts that begin as earlier
    ones reuse their KV entries. Ctrl-C, and exceptions of these functions, end a call between two passes."""

    def __init__(self, model: Model, progress: Optional[Callable[[int, int], Any]] = None,
                 log: Optional[Callable[[int, str], Any]] = None, **options: Any) -> None:
        error, o = _Error(), _Options(size=sizeof(_Options))
        self.model = model
        self._pointer = c_void_p()
        self._raised: Optional[BaseException] = None
        self._streams: List[Tuple[c_int, threading.Thread]] = []
        options.setdefault("models_dir", _models_dir())
        _check_options(options)
        for name, value in options.items():
            if name == "length_penalty" and value is not None:
                value = ctypes.pointer(c_double(value))
            setattr(o, name, _path(value) if isinstance(value, (str, os.PathLike)) else value)
        # Python handles signals in these functions, which the library calls between forward passes.
        o.progress = _ProgressCallback(self._caught(lambda _arg, done, total: progress(done, total) if progress else None))
        if log:
            o.log = _LogCallback(self._caught(lambda _arg, level, sentence: log(level, sentence.decode("utf-8", "replace"))))
        self._callbacks = (o.progress, o.log)
        _check(_lib.bmc_context_open(byref(self._pointer), model._handle, byref(o), byref(error)), error)
        model._sessions.add(self)
        self.context: int = _lib.bmc_context_size(self._handle)
        self.sequences: int = _lib.bmc_context_sequences(self._handle)

    def _parent(self) -> Optional[_Handle]:
        return self.model

    def close(self) -> None:
        """Frees the caches; open streams end."""
        for cancelled, worker in list(getattr(self, "_streams", [])):  # their consumers remove them
            cancelled.value = 1
            worker.join()
        if self._pointer:
            _lib.bmc_context_close(self._pointer)
        self._pointer = c_void_p()

    def _caught(self, function: Callable[..., Any]) -> Callable[..., int]:
        """A callback whose exception cancels the call of the library; _check() then raises it."""

        def call(*arguments: Any) -> int:
            try:
                return int(function(*arguments) or 0) if self._raised is None else 1
            except BaseException as raised:
                self._raised = raised
                return 1

        return call

    def _interrupt(self, *_: Any) -> None:
        self._raised = KeyboardInterrupt()

    def _call(self, function: Callable[..., int], *arguments: Any) -> int:
        """Calls the library. Ctrl-C ends the call between two forward passes, when Python handles signals in a
        callback; an exception raised there would be lost."""
        ours = (threading.current_thread() is threading.main_thread()
                and signal.getsignal(signal.SIGINT) is signal.default_int_handler)
        if ours:
            signal.signal(signal.SIGINT, self._interrupt)
        try:
            return function(self._handle, *arguments)
        finally:
            if ours:
                signal.signal(signal.SIGINT, signal.default_int_handler)

    def _check(self, status: int, error: _Error) -> None:
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised
        _check(status, error)

    def _ids_of(self, text: Prompt) -> Sequence[int]:
        return self.model.tokenize(text) if isinstance(text, str) else text

    def _run(self, requests: Sequence[Mapping[str, Any]], callbacks: Optional[_Callbacks] = None) -> List[Completion]:
        error, n = _Error(), len(requests)
        if callbacks is None:
            cancelled = c_int(0)

            def prefill(*_: Any) -> None:
                if self._caught(lambda: 0)():
                    cancelled.value = 1

            callbacks = _Callbacks(size=sizeof(_Callbacks), text=_TextCallback(self._caught(lambda *_: 0)),
                                   prefill=_PrefillCallback(prefill), cancelled=ctypes.pointer(cancelled))
        given = (_Request * n)(*[_Request(size=sizeof(_Request), settings=json.dumps(r).encode()) for r in requests])
        results = (_Result * n)(*[_Result(size=sizeof(_Result)) for _ in requests])
        status = self._call(_lib.bmc_generate, given, results, n, byref(callbacks), byref(error))
        try:
            self._check(status, error)
            return [_completion(r) for r in results]
        finally:
            for r in results:
                _lib.bmc_result_release(byref(r))

    @staticmethod
    def _request(prompt: Optional[Prompt], max_tokens: Optional[int], settings: Mapping[str, Any]) -> Mapping[str, Any]:
        request = dict(settings)
        if isinstance(prompt, str):
            request["prompt"] = prompt
        elif prompt is not None:
            request["ids"] = [int(i) for i in prompt]
        if max_tokens is not None:
            request["max_tokens"] = max_tokens
        return request

    def generate(self, prompt: Prompt, max_tokens: Optional[int] = None, **settings: Any) -> Completion:
        """The continuation of a text or of token ids, greedy unless settings say otherwise; without max_tokens
        up to an EOS token or a full context."""
        return self._run([self._request(prompt, max_tokens, settings)])[0]

    def chat(self, messages: Messages, max_tokens: Optional[int] = None, **settings: Any) -> Completion:
        """The answer to a conversation: messages with role and content, rendered by the model's template."""
        return self._run([self._request(None, max_tokens, {**settings, "messages": list(messages)})])[0]

    def stream(self, prompt: Prompt, max_tokens: Optional[int] = None, **settings: Any) -> Iterator[str]:
        """Yields the text of generate() as it is generated; characters are complete. Closing the iterator
        cancels the rest."""
        return self._stream(self._request(prompt, max_tokens, settings))

    def stream_chat(self, messages: Messages, max_tokens: Optional[int] = None, **settings: Any) -> Iterator[str]:
        """Yields the text of chat() as it is generated."""
        return self._stream(self._request(None, max_tokens, {**settings, "messages": list(messages)}))

    def _stream(self, request: Mapping[str, Any]) -> Iterator[str]:
        pieces: "queue.SimpleQueue[Union[str, BaseException, None]]" = queue.SimpleQueue()
        cancelled = c_int(0)

        def take(_arg: Any, _request: int, text: Any, length: int, _ids: Any, _n: int) -> int:
            if length:
                pieces.put(ctypes.string_at(text, length).decode())
            return cancelled.value

        callbacks = _Callbacks(size=sizeof(_Callbacks), text=_TextCallback(take), cancelled=ctypes.pointer(cancelled))

        def run() -> None:
            try:
                self._run([request], callbacks)
                pieces.put(None)
            except BaseException as error:  # for the thread that reads
                pieces.put(error)

        worker = threading.Thread(target=run)
        stream = (cancelled, worker)
        self._streams.append(stream)
        worker.start()
        try:
            while True:
                piece = pieces.get()
                if piece is None:
                    return
                if isinstance(piece, BaseException):
                    raise piece
                yield piece
        finally:
            cancelled.value = 1
            worker.join()
            self._streams.remove(stream)

    def render(self, messages: Messages, **settings: Any) -> str:
        """The text of a conversation, as the model's chat template writes it."""
        error, ids, n, text = _Error(), POINTER(c_uint32)(), c_size_t(), c_void_p()
        conversation = json.dumps({**settings, "messages": list(messages)}).encode()
        self._check(_lib.bmc_chat_render(self._handle, conversation, byref(ids), byref(n), byref(text), byref(error)), error)
        found = ctypes.string_at(text).decode()
        _free(text)
        _free(cast(ids, c_void_p))
        return found

    def score(self, text: Prompt) -> Any:
        """Natural logarithms of the probabilities of the tokens; NaN for the first one. Empties sequence 0."""
        ids, error = self._ids_of(text), _Error()
        logprobs = (c_double * len(ids))()
        self._check(self._call(_lib.bmc_score, _ids(ids), len(ids), logprobs, byref(error)), error)
        return _numbers(logprobs)

    def embed(self, text: Prompt, pooling: str = "model", normalize: bool = True) -> Any:
        """The pooled hidden states of a text, by default of unit length. Empties sequence 0."""
        ids, error = self._ids_of(text), _Error()
        poolings = {"mean": 0, "last": 1, "first": 2, "model": 3}
        if pooling not in poolings:
            raise ValueError(f"there is no pooling {pooling!r}: use mean, last, first or model")
        embedding = (c_float * self.model.hidden)()
        self._check(self._call(_lib.bmc_embed, _ids(ids), len(ids), poolings[pooling], normalize, embedding, byref(error)), error)
        return _numbers(embedding)

    def eval(self, ids: Sequence[int], sequence: int = 0, outputs: int = 1, hidden: bool = False) -> Any:
        """Appends tokens to a sequence; returns the logits that follow the last `outputs` of them, one row for
        each. `hidden`: a pair of logits and hidden states, of a session with the option hidden_states."""
        error, vocab, width = _Error(), self.model.vocab, self.model.hidden
        array = _ids(ids)
        logits = (c_float * (vocab * outputs))()
        states = (c_float * (width * outputs))() if hidden else None
        given = _Input(size=sizeof(_Input), sequence=sequence, ids=array, n_ids=len(array), n_outputs=outputs, logits=logits)
        if states is not None:
            given.hidden = cast(states, POINTER(c_float))
        self._check(self._call(_lib.bmc_eval, byref(given), 1, byref(error)), error)
        return (_numbers(logits, vocab), _numbers(states, width)) if hidden else _numbers(logits, vocab)

    def begin(self, sequence: int = 0, length: int = 0) -> None:
        """Empties a sequence and announces its length, on which rotary frequencies of some models depend."""
        error = _Error()
        self._check(_lib.bmc_begin(self._handle, sequence, length, byref(error)), error)

    def set_lora(self, factors: Optional[Sequence[float]], sequence: int = 0) -> None:
        """Factors of the model's LoRA adapters for a sequence, None: 1 each. Empties it if that changes any."""
        error, n = _Error(), 0 if factors is None else len(factors)
        array = None if factors is None else (c_float * max(n, 1))(*factors)
        self._check(_lib.bmc_set_lora(self._handle, sequence, array, n, byref(error)), error)

    def stats(self) -> Mapping[str, Any]:
        """What the session has done so far: the members of struct bmc_stats."""
        error, stats = _Error(), _Stats(size=sizeof(_Stats))
        self._check(_lib.bmc_context_stats(self._handle, byref(stats), byref(error)), error)
        return {name: getattr(stats, name) for name, _ in _Stats._fields_[1:]}

    def tokens(self, sequence: int = 0) -> List[int]:
        """The tokens whose KV entries a sequence has."""
        n = _lib.bmc_length(self._handle, sequence)
        return _lib.bmc_tokens(self._handle, sequence)[:n] if n else []

    def truncate(self, n: int, sequence: int = 0) -> int:
        """Keeps the first n tokens of a sequence; returns the number that remains."""
        return _lib.bmc_truncate(self._handle, sequence, n)

    def fork(self, to: int, source: int, n: int) -> int:
        """Lets sequence `to` begin with the first n tokens of another one; returns their number."""
        error, forked = _Error(), c_size_t()
        self._check(_lib.bmc_fork(self._handle, to, source, n, byref(forked), byref(error)), error)
        return forked.value

    def save(self, path: Path, sequence: int = 0) -> None:
        """Writes a sequence's tokens and KV entries to a snapshot, bmc-kv(5)."""
        error = _Error()
        self._check(_lib.bmc_save(self._handle, sequence, _path(path), byref(error)), error)

    def load(self, path: Path, sequence: int = 0) -> List[int]:
        """Replaces a sequence by that of a snapshot; returns its tokens, to continue with."""
        error = _Error()
        self._check(_lib.bmc_load(self._handle, sequence, _path(path), byref(error)), error)
        return self.tokens(sequence)


class Batch(Session):
    """A session of several sequences, `sequences` by default 8."""

    def __init__(self, model: Model, sequences: int = 8, **options: Any) -> None:
        super().__init__(model, sequences=sequences, **options)

    def generate_all(self, prompts: Iterable[Prompt], max_tokens: Optional[int] = None, **settings: Any) -> List[Completion]:
        """The continuations of all prompts, computed together."""
        return self._run([self._request(p, max_tokens, settings) for p in prompts])

    def run(self, requests: Iterable[Mapping[str, Any]]) -> List[Completion]:
        """Results of requests as lines of bmc-gen --jsonl have them: dictionaries with prompt, ids or messages."""
        return self._run([dict(r) for r in requests])

    def eval_all(self, tokens: Mapping[int, Sequence[int]]) -> Mapping[int, Any]:
        """Appends tokens to sequences, {sequence: ids}, in one call; returns the logits after the last of each."""
        error, vocab = _Error(), self.model.vocab
        logits = (c_float * (vocab * len(tokens)))()
        arrays = [_ids(ids) for ids in tokens.values()]
        inputs = (_Input * len(tokens))()
        for i, sequence in enumerate(tokens):
            at = cast(ctypes.byref(logits, i * vocab * sizeof(c_float)), POINTER(c_float))
            inputs[i] = _Input(size=sizeof(_Input), sequence=sequence, ids=arrays[i], n_ids=len(arrays[i]), n_outputs=1, logits=at)
        self._check(self._call(_lib.bmc_eval, inputs, len(tokens), byref(error)), error)
        return dict(zip(tokens, _numbers(logits, vocab)))


class Sampler(_Handle):
    """Samples tokens from logits, for loops over Session.eval(). Settings are those of samplers, seed,
    ignore_eos and constraints; random numbers depend on the seed, `stream` and the position."""

    def __init__(self, session: Session, stream: int = 0, **settings: Any) -> None:
        error = _Error()
        self.session = session
        self._pointer = c_void_p()
        _check(_lib.bmc_sampler_open(byref(self._pointer), session._handle, json.dumps(settings).encode(), stream, byref(error)), error)

    def _parent(self) -> Optional[_Handle]:
        return self.session

    def close(self) -> None:
        """Frees the sampler, before its session."""
        if self._pointer:
            _lib.bmc_sampler_close(self._pointer)
        self._pointer = c_void_p()

    def sample(self, logits: Any, ids: Sequence[int]) -> int:
        """The token after `ids`, the whole text so far; `logits` is a row that eval() has returned."""
        error, chosen = _Error(), c_uint32()
        if numpy is not None:
            row = numpy.ascontiguousarray(logits, dtype="float32")
            at = row.ctypes.data
        else:
            row = (c_float * len(logits))(*logits)
            at = ctypes.addressof(row)
        if len(row) != self.session.model.vocab:
            raise ValueError(f"{len(row)} logits, the vocabulary has {self.session.model.vocab}")
        _check(_lib.bmc_sample(self._handle, at, _ids(ids), len(ids), byref(chosen), byref(error)), error)
        return chosen.value
