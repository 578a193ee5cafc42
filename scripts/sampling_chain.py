#!/usr/bin/env python3
"""Draws of an independent implementation of the whole sampler chain, in Python's binary64.

    scripts/sampling_chain.py > tests/data/tokenizer/sampling_chain_golden.json

Written from the samplers' published definitions and llama.cpp's documentation of its chain, in the plainest way there is;
it shares nothing with src/generate/sampling. What is pinned besides: logits are rounded to binary32 after biases, after
penalties and after DRY; ties go to the lower id.
"""
import json
import math
import struct

M = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M
    return z ^ (z >> 31)


def at(seed, index):
    return mix((mix(seed) + (index + 1) * GAMMA) & M)


def unit(bits):
    return (bits >> 11) * 2.0**-53


def f32(x):
    limit = 3.4028234663852886e38
    return struct.unpack("<f", struct.pack("<f", max(-limit, min(limit, x))))[0]


BASE = {
    "temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "repeat_penalty": 1.0, "repeat_last_n": 64, "seed": 1,
    "logit_bias": [], "presence_penalty": 0.0, "frequency_penalty": 0.0, "dry_multiplier": 0.0, "dry_base": 1.75,
    "dry_allowed_length": 2, "dry_penalty_last_n": -1, "dry_breakers": [], "top_n_sigma": -1.0, "typical_p": 1.0,
    "xtc_probability": 0.0, "xtc_threshold": 0.1, "dynatemp_range": 0.0, "dynatemp_exponent": 1.0, "mirostat": 0,
    "mirostat_tau": 5.0, "mirostat_eta": 0.1, "min_keep": 0,
}
FLOATS = [k for k, v in BASE.items() if isinstance(v, float)]
OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}


def window(history, n):
    return history if n < 0 else history[max(0, len(history) - n):] if n else []


def softmax(order, l, t=1.0):
    top = max(l[i] for i in order)
    w = [math.exp((l[i] - top) / t) for i in order]
    return [x / math.fsum(w) for x in w]


def dry(o, l, history):
    ids = window(history, o["dry_penalty_last_n"])
    n, allowed = len(ids), o["dry_allowed_length"]
    # a repeat may not reach over a breaker: only the ids after the last one count
    limit = n
    for start in range(n - 1, -1, -1):
        lengths = [len(b) for b in o["dry_breakers"] if ids[start:start + len(b)] == b]
        if lengths:
            limit = n - start - max(lengths)
            break
    if n <= allowed or limit < allowed:
        return
    longest = {}
    for end in range(n - 1):  # ids[..=end] ends like ids does, and ids[end + 1] came next
        same = 0
        while same <= end and ids[end - same] == ids[n - 1 - same]:
            same += 1
        same = min(same, limit)
        if same >= allowed:
            longest[ids[end + 1]] = max(longest.get(ids[end + 1], 0), same)
    for i, same in longest.items():
        if [i] not in o["dry_breakers"] and l.get(i) is not None:
            l[i] = f32(l[i] - o["dry_multiplier"] * o["dry_base"] ** (same - allowed))


def draw(order, p, u):
    acc = 0.0
    for i, x in zip(order, p):
        acc += x
        if acc > u:
            return i
    return order[-1]


def step(o, row, history, state):
    seed, position = o["seed"], len(history)
    u, second = unit(at(seed, position)), unit(at(at(seed, position), 0))
    l = {i: x for i, x in enumerate(row)}
    for i, bias in o["logit_bias"]:
        if i in l:
            if bias is None:
                del l[i]
            else:
                l[i] = f32(l[i] + f32(bias))
    order = lambda: sorted(l, key=lambda i: (-l[i], i))
    keep = o["min_keep"]
    if o["mirostat"] == 0:
        recent = window(history, o["repeat_last_n"])
        for i in set(recent):
            if i in l:
                l[i] = f32(l[i] * o["repeat_penalty"]) if l[i] <= 0 else f32(l[i] / o["repeat_penalty"])
                l[i] = f32(l[i] - (recent.count(i) * o["frequency_penalty"] + o["presence_penalty"]))
        if o["dry_multiplier"]:
            dry(o, l, history)
    c = order()
    t = o["temperature"]
    if t == 0:
        return c[0]
    if o["mirostat"]:
        p = softmax(c, l, t)
        if o["mirostat"] == 2:
            c = [i for i, x in zip(c, p) if -math.log2(x) <= state["mu"]] or c[:1]
        else:
            pairs = [(math.log((i + 2) / (i + 1)), math.log(p[i] / p[i + 1])) for i in range(min(99, len(c) - 1))]
            s = sum(a * b for a, b in pairs) / sum(a * a for a, _ in pairs)
            e = s - 1
            k = (e * 2 ** state["mu"] / (1 - len(row) ** -e)) ** (1 / s)
            c = c[:max(1, int(min(k, len(c))))]
        p = softmax(c, l, t)
        i = draw(c, p, u)
        state["mu"] -= o["mirostat_eta"] * (-math.log2(p[c.index(i)]) - o["mirostat_tau"])
        return i
    if o["top_n_sigma"] > 0:
        mean = math.fsum(l.values()) / len(l)
        deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in l.values()) / len(l))
        c = [i for i in c if l[i] >= l[c[0]] - o["top_n_sigma"] * deviation]
    if o["top_k"]:
        c = c[:max(o["top_k"], keep)]
    if o["typical_p"] < 1:
        p = softmax(c, l)
        entropy = -math.fsum(x * math.log(x) for x in p if x)
        by = sorted(range(len(c)), key=lambda k: (abs(-math.log(p[k]) - entropy), k))
        acc, n = 0.0, 0
        for k in by:
            acc, n = acc + p[k], n + 1
            if acc > o["typical_p"] and n >= keep:
                break
        c = [c[k] for k in sorted(by[:n])]
    if o["top_p"] < 1:
        acc, n = 0.0, 0
        for x in softmax(c, l):
            acc, n = acc + x, n + 1
            if acc >= o["top_p"] and n >= keep:
                break
        c = c[:n]
    if o["min_p"] > 0:
        p = softmax(c, l)
        c = c[:max(1, keep, sum(x >= o["min_p"] * p[0] for x in p))]
    if second < o["xtc_probability"] and o["xtc_threshold"] <= 0.5:
        above = sum(x >= o["xtc_threshold"] for x in softmax(c, l))
        if above > 1 and len(c) - (above - 1) >= keep:
            c = c[above - 1:]
    if o["dynatemp_range"] > 0 and len(c) > 1:
        entropy = -math.fsum(x * math.log(x) for x in softmax(c, l) if x)
        low, high = max(0.0, t - o["dynatemp_range"]), t + o["dynatemp_range"]
        t = low + (high - low) * (entropy / math.log(len(c))) ** o["dynatemp_exponent"]
        if t <= 0:
            return c[0]
    return draw(c, softmax(c, l, t), u)


def case(change, n=300, steps=30, prompt=None, scale=1.0, hold=1):
    """`hold`: how many steps have the same logits, so that tokens come again; `scale`: of the logits."""
    shown = {**BASE, **change}
    o = {k: f32(v) if k in FLOATS else v for k, v in shown.items()}
    history, state = list(prompt or []), {"mu": 2 * o["mirostat_tau"]}
    first = len(history)
    for s in range(steps):
        salt = o["seed"] + s // hold
        row = [f32((((mix((i * 7919 + salt) & M) >> 40) % 1024) / 64.0 - 8.0) * scale) for i in range(n)]
        history.append(step(o, row, history, state))
    return {"options": shown, "vocab": n, "prompt": list(prompt or []), "scale": scale, "hold": hold, "ids": history[first:]}


def cases():
    words = [5, 6, 7, 8, 9, 5, 6, 7, 20, 21, 5, 6, 7, 8, 1, 2, 3, 1, 2, 3, 1, 2]
    few = {"n": 24, "steps": 60, "prompt": [i % 24 for i in words], "scale": 0.25, "hold": 100}
    yield case({})
    for bias in [[[3, 4.0]], [[7, None], [8, 100.0]], [[i, None] for i in range(0, 300, 2)], [[1, -2.5], [1, 3.5], [400, 9.0]]]:
        yield case({"logit_bias": bias, "temperature": 1.5})
    for p in [{"presence_penalty": 1.5}, {"frequency_penalty": 0.75}, {"presence_penalty": -0.5, "frequency_penalty": 0.3},
              {"repeat_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.2}, {"frequency_penalty": 0.5, "repeat_last_n": -1},
              {"frequency_penalty": 2.0, "repeat_last_n": 5}, {"presence_penalty": 0.6, "temperature": 0.0}]:
        yield case(p, **few)
    for d in [{}, {"dry_allowed_length": 1}, {"dry_base": 1.1, "dry_allowed_length": 3}, {"dry_breakers": [[7]]},
              {"dry_breakers": [[6, 7], [3]]}, {"dry_penalty_last_n": 10}, {"dry_allowed_length": 0}, {"temperature": 0.0},
              {"temperature": 0.0, "dry_allowed_length": 1, "dry_breakers": [[1, 2], [1, 2, 3], [11]]},
              {"presence_penalty": 0.3, "repeat_penalty": 1.1}]:
        yield case({"dry_multiplier": 0.8, **d}, **few)
    for n in [0.5, 1.0, 1.7]:
        yield case({"top_n_sigma": n})
        yield case({**OFF, "top_n_sigma": n}, scale=0.3)
    for p in [0.05, 0.2, 0.5, 0.9, 0.999]:
        yield case({**OFF, "typical_p": p}, scale=0.4)
    yield case({"typical_p": 0.6, "min_keep": 4})
    for p, t in [(0.5, 0.1), (1.0, 0.02), (0.3, 0.05), (1.0, 0.5), (1.0, 0.6), (0.7, 0.0)]:
        yield case({**OFF, "xtc_probability": p, "xtc_threshold": t}, scale=0.5, n=40)
    yield case({"xtc_probability": 1.0, "xtc_threshold": 0.05, "min_keep": 5})
    for r, e in [(0.5, 1.0), (0.8, 0.5), (2.0, 2.0), (0.3, 0.0)]:
        yield case({"dynatemp_range": r, "dynatemp_exponent": e}, scale=0.6)
        yield case({**OFF, "dynatemp_range": r, "dynatemp_exponent": e}, n=12)
    for version in [1, 2]:
        for tau, eta, t in [(5.0, 0.1, 0.8), (2.0, 0.3, 1.0), (3.0, 0.05, 1.5), (7.0, 0.1, 3.0)]:
            yield case({"mirostat": version, "mirostat_tau": tau, "mirostat_eta": eta, "temperature": t}, scale=0.5)
    yield case({"mirostat": 2, "logit_bias": [[5, None], [6, 3.0]], "presence_penalty": 5.0, "top_k": 1})
    for keep in [3, 50, 1000]:
        yield case({"min_keep": keep, "top_k": 2, "top_p": 0.01, "min_p": 0.9})
    everything = {"logit_bias": [[4, 2.0], [9, None]], "presence_penalty": 0.2, "frequency_penalty": 0.1, "repeat_penalty": 1.1,
                  "dry_multiplier": 0.5, "dry_breakers": [[3]], "top_n_sigma": 2.0, "typical_p": 0.95, "xtc_probability": 0.4,
                  "xtc_threshold": 0.05, "dynatemp_range": 0.4, "min_keep": 2}
    for seed in [0, 3, 2**64 - 1]:
        yield case({**everything, "seed": seed}, **few)
        yield case({**everything, "seed": seed})


print("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases()) + "\n]")
