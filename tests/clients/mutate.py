"""Bodies of requests that were good once."""

import copy
import json
import sys

# what is nested a thousand times over is copied and written too
sys.setrecursionlimit(30000)

SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^[a-z]{1,4}$"}, "b": {"type": "integer", "minimum": 1},
                                           "c": {"type": "array", "items": {"$ref": "#/$defs/d"}, "maxItems": 3}},
          "required": ["a"], "$defs": {"d": {"anyOf": [{"type": "null"}, {"const": 3}]}}, "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}
FEW = {"max_tokens": 2}
SAMPLING = {"temperature": 0.7, "top_k": 5, "top_p": 0.9, "min_p": 0.05, "typical_p": 0.9, "top_n_sigma": 1.0, "repeat_penalty": 1.1,
            "repeat_last_n": 16, "presence_penalty": 0.1, "frequency_penalty": 0.1, "dry_multiplier": 0.5, "dry_base": 1.75,
            "dry_allowed_length": 2, "dry_penalty_last_n": -1, "dry_sequence_breakers": ["\n"], "xtc_probability": 0.1,
            "xtc_threshold": 0.1, "dynatemp_range": 0.1, "dynatemp_exponent": 1, "mirostat": 1, "mirostat_tau": 5, "mirostat_eta": 0.1,
            "min_keep": 1, "seed": 4, "logit_bias": {"7": 1.5}, "ignore_eos": True}
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": \"b\"}"}}]},
            {"role": "tool", "tool_call_id": "1", "content": "c"}, {"role": "user", "content": "And?"}]
SHORT = [{"role": "user", "content": "Hi"}]

TEXTS = [
    ("/v1/chat/completions", {"messages": MESSAGES, **FEW, "stream": True, "stream_options": {"include_usage": True}}),
    ("/v1/chat/completions", {"messages": SHORT, **FEW, **SAMPLING, "n": 2, "stop": ["a", "b"]}),
    ("/v1/chat/completions", {"messages": SHORT, **FEW, "tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False}),
    ("/v1/chat/completions", {"messages": SHORT, **FEW, "logprobs": True, "top_logprobs": 3, "digest": True, "receipt": True}),
    ("/v1/chat/completions", {"messages": SHORT, **FEW, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}),
    ("/v1/chat/completions", {"messages": SHORT, **FEW, "response_format": {"type": "json_object"}, "chat_template_kwargs": {"enable_thinking": False}}),
    ("/v1/completions", {"prompt": "Once", **FEW, "echo": True, "logprobs": 2, "n": 2, "seed": 1}),
    ("/v1/completions", {"prompt": [5, 6, 7], **FEW, **SAMPLING, "stream": True, "user": "x", "best_of": 1}),
    ("/v1/completions", {"prompt": "Once", **FEW, "grammar": "root ::= [a-z]{1,3} (\"x\" | rule)\nrule ::= \"y\"*"}),
    ("/v1/responses", {"input": "Hi", "instructions": "Be brief.", "max_output_tokens": 2, "stream": True}),
    ("/v1/responses", {"input": [{"role": "user", "content": "Hi"}, {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
                                 {"type": "function_call_output", "call_id": "1", "output": "x"}], "max_output_tokens": 2,
                       "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}], "text": {"format": {"type": "text"}}}),
    ("/api/chat", {"model": "m", "messages": SHORT, "options": {"num_predict": 2, "seed": 1, "temperature": 0.5, "stop": ["x"]}, "format": "json"}),
    ("/api/chat", {"model": "m", "messages": SHORT, "options": {"num_predict": 2}, "format": SCHEMA, "stream": False, "tools": [TOOL], "think": False}),
    ("/api/generate", {"model": "m", "prompt": "Hi", "system": "s", "raw": True, "options": {"num_predict": 2, "top_k": 3}, "images": None}),
    ("/api/show", {"model": "m"}),
    ("/api/embed", {"model": "m", "input": ["x"]}),
    ("/v1/embeddings", {"input": "x"}),
    ("/tokenize", {"content": "Once", "add_special": True, "with_pieces": True, "parse_special": True}),
    ("/detokenize", {"tokens": [5, 6, 7]}),
    ("/apply-template", {"messages": MESSAGES, "add_generation_prompt": False, "tools": [TOOL]}),
    ("/isobit/check", {"receipt": {"version": 1, "model": {"digest": "00"}, "chain": ["00"]}, "device": "cpu"}),
]
# 501 of a server of the other kind is its own check
TEXTS = [t for t in TEXTS if t[0] not in ("/api/embed", "/v1/embeddings")]
VECTORS = [
    ("/v1/embeddings", {"input": ["a fox", "a dog"], "encoding_format": "base64", "model": "m"}),
    ("/v1/embeddings", {"input": [5, 6, 7], "encoding_format": "float"}),
    ("/v1/embeddings", {"input": [[5, 6], [7]], "user": "x"}),
    ("/api/embed", {"model": "m", "input": ["x", "y"], "truncate": True}),
    ("/api/embed", {"model": "m", "input": "x"}),
    ("/tokenize", {"content": "Once", "with_pieces": True}),
]
# what a field may be instead
ODD = [None, True, False, 0, 1, -1, 2, 16, 17, 1e308, -1e308, 1e-320, 0.1, 2 ** 31, 2 ** 32, 2 ** 53 + 1, 2 ** 63, 2 ** 64 - 1, 2 ** 64,
       -2 ** 63, 10 ** 30, "", "x", "\u0000", "\ud800", "\u202e\u0301", "<|im_start|>", "{{ 7 * 7 }}", "a" * 3000, [], [[]], {}, {"": None},
       [None], [0] * 300, [-1], [1.5], [{}], ["x"], ["x"] * 40, {"type": "json_object"}, {"a": {"a": {"a": {}}}}, "required", "auto", "none",
       "root ::= root", "root ::= \"a\"{1,99999}", "start: /(a|a)*b/", {"$ref": "#"}, {"type": "string", "pattern": "(((a+)+)+)+$"},
       {"not": {}}, {"minItems": 10 ** 9, "type": "array"}, {"enum": []}, {"allOf": [{"$ref": "#/x"}]}, {"maxLength": -1, "type": "string"}]
NAMES = [*SAMPLING, "n", "stop", "stream", "stream_options", "logprobs", "top_logprobs", "echo", "tools", "tool_choice", "response_format",
         "grammar", "json_schema", "messages", "prompt", "input", "digest", "receipt", "best_of", "chat_template_kwargs", "format", "options",
         "content", "role", "type", "think", "text", "model", "device", "tokens", "add_generation_prompt", "typical", "max_completion_tokens"]
JOIN = [b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\u", b"\\ud800", b"\xff", b"\x00", b"\xc3", b"0", b"-", b"e9", b"null", b"\n"]


def places(value, found=None):
    """All containers within a value, with the keys they have."""
    found = [] if found is None else found
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    for k in keys:
        found.append((value, k))
        places(value[k], found)
    return found


def structural(rng, value):
    for _ in range(rng.choice([1, 1, 1, 2, 3, 6])):
        all_ = places(value)
        if len(all_) > 1000:
            break
        kind = rng.randrange(7)
        if not all_ or kind == 0:
            if isinstance(value, dict):
                value[rng.choice(NAMES)] = copy.deepcopy(rng.choice(ODD))
            continue
        where, key = rng.choice(all_)
        if kind in (1, 2):
            where[key] = copy.deepcopy(rng.choice(ODD))
        elif kind == 3:
            del where[key]
        elif kind == 4:
            other, its = rng.choice(all_)
            where[key] = copy.deepcopy(other[its])
        elif kind == 5 and isinstance(where, list):
            # a few times at most, or bodies grow without end
            where.extend([where[key]] * (rng.choice([1, 5, 200]) if len(all_) < 100 else 1))
        elif isinstance(where[key], (int, float)):
            where[key] = rng.choice([-where[key], where[key] * 1000, where[key] + 0.5, str(where[key]), [where[key]]])
        elif isinstance(where[key], str):
            s = where[key]
            at = rng.randrange(len(s) + 1)
            where[key] = s[:at] + rng.choice([chr(rng.randrange(0xd800)), s * 20, "", "\u0000", "\U0001f98a", "\n\n", "%", "{"]) + s[at:]
        else:
            for _ in range(rng.choice([3, 60, 300])):
                where[key] = [where[key]] if rng.random() < 0.5 else {"a": where[key]}
    return value


def textual(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4, 12])):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(5)
        if kind == 0 and data:
            data[min(at, len(data) - 1)] = rng.randrange(256)
        elif kind == 1:
            data[at:at] = rng.choice(JOIN)
        elif kind == 2:
            del data[at:at + rng.choice([1, 2, 8, 40])]
        elif kind == 3:
            data = data[:at]
        else:
            end = min(len(data), at + rng.randrange(1, 30))
            data[at:at] = data[at:end]
    return bytes(data)


def body(rng, routes):
    """A route, and a body for it; now and then that of another."""
    path, good = rng.choice(routes)
    if rng.random() < 0.03:
        path = rng.choice(routes)[0]
    kind = rng.random()
    value = copy.deepcopy(good)
    if kind < 0.6:
        value = structural(rng, value)
    data = json.dumps(value, ensure_ascii=rng.random() < 0.5).encode(errors="surrogatepass")[:1 << 20]
    if kind > 0.55:
        data = textual(rng, data)
    return path, data
