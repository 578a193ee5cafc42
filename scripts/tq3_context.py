#!/usr/bin/env python3
"""What would help a tq3_1 cache at long contexts: the small F16 model of tests/data/tiny in NumPy, with keys and values as
a cache of each kind would give them back. Not the engine: a cheap way to rank ideas before anything is built.

    pip install numpy gguf
    isobit tokenize MODEL -f tests/data/tiny/valid.txt --no-bos --json > ids.json
    python3 scripts/tq3_context.py tests/data/tiny/tiny-stories-f16.gguf ids.json [CONTEXT]

Windows of CONTEXT tokens, the second half of each scored, as `isobit perplexity` does.
"""
import json
import sys

import numpy as np
from gguf import GGUFReader, dequantize

# each is a set of words: which positions a query reads in f16 (own = its own chunk of 64, own128, own256, prev = its own
# chunk and the one before, first = positions 0 to 63, sink4, sink16), and how the others are coded (centre, centrev: keys,
# values less their channel's mean over the first 64 positions; scale: keys divided by their channel's spread there; query:
# the scale of a block of keys fitted with the energy of the first 64 queries as weights)
WAYS = [
    "format alone", "centre", "centre centrev", "query", "first", "own", "own first", "own sink4", "own sink16",
    "own centre", "own scale", "own query", "own128", "own256", "prev",
]

reader = GGUFReader(sys.argv[1])
W = {t.name: np.array(dequantize(t.data, t.tensor_type), dtype=np.float32).reshape([int(n) for n in t.shape[::-1]])
     for t in reader.tensors}


def key(name):
    field = reader.fields["llama." + name]
    return field.parts[field.data[0]][0]


HEADS, KV_HEADS = int(key("attention.head_count")), int(key("attention.head_count_kv"))
LAYERS, DIM = int(key("block_count")), int(key("embedding_length"))
HEAD = DIM // HEADS
EPS = float(key("attention.layer_norm_rms_epsilon"))
SHARED = HEADS // KV_HEADS


def norm(x, w):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * w


def rope(x):
    angle = np.arange(len(x))[:, None] * 10000.0 ** (-2 * np.arange(HEAD // 2) / HEAD)
    c, s = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
    a, b = x[..., 0::2], x[..., 1::2]
    y = np.empty_like(x)
    y[..., 0::2], y[..., 1::2] = a * c - b * s, a * s + b * c
    return y


# docs/tq3.md: sign flips, butterflies, 1/sqrt(32); eight levels about 11
ROTATION = np.ones((1, 1))
for _ in range(5):
    ROTATION = np.block([[ROTATION, ROTATION], [ROTATION, -ROTATION]])
ROTATION = (ROTATION * [-1 if 0xB1A6D4B2 >> j & 1 else 1 for j in range(32)] / np.sqrt(32)).astype(np.float32)
LEVELS = np.array(sorted(11 + s * d for d in (13, 39, 68, 111) for s in (1, -1)), dtype=np.float32)
EDGES = (LEVELS[1:] + LEVELS[:-1]) / 2


def level(x):
    return LEVELS[np.searchsorted(EDGES, x)]


def tq3_1(x, weights=1.0):
    """What a tq3_1 cache gives back of x, whose last dimension is a multiple of 32."""
    r = x.reshape(-1, 32) @ ROTATION.T
    rms = np.sqrt((r * r).mean(1, keepdims=True)) + 1e-30
    best, scale = np.full(len(r), -1, np.float32), np.zeros(len(r), np.float32)
    for m in (45, -45, 54, -54, 64, -64):
        l = level(r / rms * m)
        n, d = (weights * l * r).sum(1), (weights * l * l).sum(1)
        better = n * n / d > best
        best, scale = np.where(better, n * n / d, best), np.where(better, n / d, scale)
    g = scale.astype(np.float16).astype(np.float32)[:, None]
    g = np.where(g == 0, 1e-8, g)
    return (level(r / g) * g @ ROTATION).reshape(x.shape)


def f16(x):
    return x.astype(np.float16).astype(np.float32)


def coded_keys(k, q, way):
    first = k[:64]
    centre = first.mean(0, keepdims=True) if "centre" in way else 0.0
    k = k - centre
    if "scale" in way:
        s = np.sqrt((k[:64] ** 2).mean(0, keepdims=True)) + 1e-6
        s = np.sqrt(s / np.sqrt((s * s).mean(-1, keepdims=True)))
        return tq3_1(k / s) * s + centre
    if "query" in way:
        per_head = q[:64].reshape(64, KV_HEADS, SHARED, HEAD // 32, 32) @ ROTATION.T
        energy = (per_head**2).mean((0, 2))
        energy = energy / energy.mean(-1, keepdims=True)
        return tq3_1(k, np.broadcast_to(energy, (len(k), *energy.shape)).reshape(-1, 32)) + centre
    return tq3_1(k) + centre


def in_f16(n, way):
    """Of each query (row), which positions it reads in f16."""
    q, k = np.arange(n)[:, None], np.arange(n)[None, :]
    yes = np.zeros((n, n), bool)
    for word, where in {
        "own": q // 64 == k // 64, "own128": q // 128 == k // 128, "own256": q // 256 == k // 256,
        "prev": q // 64 - k // 64 <= 1, "first": k < 64, "sink4": k < 4, "sink16": k < 16,
    }.items():
        if word in way:
            yes |= where
    return yes


def logits(ids, way):
    """Logits of every position; way None: nothing is coded."""
    n, x = len(ids), W["token_embd.weight"][ids]
    mask = np.triu(np.full((n, n), -np.inf, np.float32), 1)
    for layer in range(LAYERS):
        w = {name: W[f"blk.{layer}.{name}.weight"] for name in
             ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")}
        h = norm(x, w["attn_norm"])
        q = rope((h @ w["attn_q"].T).reshape(n, HEADS, HEAD))
        k = rope((h @ w["attn_k"].T).reshape(n, KV_HEADS, HEAD))
        v = (h @ w["attn_v"].T).reshape(n, KV_HEADS, HEAD)
        if way is None:
            near, keys, values, far_keys, far_values = np.ones((n, n), bool), k, v, k, v
        else:
            near, keys, values = in_f16(n, way), f16(k), f16(v)
            mean = v[:64].mean(0, keepdims=True) if "centrev" in way else 0.0
            far_keys, far_values = coded_keys(k, q, way), tq3_1(v - mean) + mean
        out = np.empty((n, HEADS, HEAD), np.float32)
        for head in range(HEADS):
            kv = head // SHARED
            s = np.where(near, q[:, head] @ keys[:, kv].T, q[:, head] @ far_keys[:, kv].T) / np.sqrt(HEAD) + mask
            p = np.exp(s - s.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            out[:, head] = np.where(near, p, 0) @ values[:, kv] + np.where(near, 0, p) @ far_values[:, kv]
        x = x + out.reshape(n, -1) @ w["attn_output"].T
        h = norm(x, w["ffn_norm"])
        g = h @ w["ffn_gate"].T
        x = x + (g / (1 + np.exp(-g)) * (h @ w["ffn_up"].T)) @ w["ffn_down"].T
    return norm(x, W["output_norm.weight"]) @ W.get("output.weight", W["token_embd.weight"]).T


def log_softmax(z):
    z = z - z.max(1, keepdims=True)
    return z - np.log(np.exp(z).sum(1, keepdims=True))


def main():
    ids = np.array(json.load(open(sys.argv[2]))["ids"])
    context = int(sys.argv[3]) if len(sys.argv) > 3 else 512
    scored = slice(context // 2, context - 1)
    change, kl, same, plain = {w: [] for w in WAYS}, dict.fromkeys(WAYS, 0.0), dict.fromkeys(WAYS, 0), []
    for at in range(0, len(ids) - context, context):
        window = ids[at:at + context].copy()
        window[0] = 1
        want = window[context // 2 + 1:]
        row = np.arange(len(want))
        exact = log_softmax(logits(window, None))[scored]
        plain.append(-exact[row, want])
        for way in WAYS:
            z = log_softmax(logits(window, set(way.split())))[scored]
            change[way].append(-z[row, want] - plain[-1])
            kl[way] += (np.exp(exact) * (exact - z)).sum()
            same[way] += (z.argmax(1) == exact.argmax(1)).sum()
    n = sum(map(len, plain))
    print(f"context {context}, {n} tokens scored, perplexity {np.exp(np.concatenate(plain).mean()):.4f}")
    for way in WAYS:
        d = np.concatenate(change[way])
        print(f"{way:16} {100 * np.expm1(d.mean()):+.3f} % +- {100 * d.std() / np.sqrt(n):.3f}"
              f"  KL {kl[way] / n:.2e}  top-1 {100 * same[way] / n:.2f} %")


main()
