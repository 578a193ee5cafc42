#!/usr/bin/env python3
"""Records logits of the real implementation (Hugging Face transformers) for tests/models/arch.rs.

    cargo build --release --example synth_model
    python3 make.py PATH/TO/synth_model [CASE...]        # needs torch, transformers, safetensors

Each case is a synthetic checkpoint in Hugging Face form, written by examples/synth_model.rs (the test writes the same
one), loaded with AutoModelForCausalLM in float64 with eager attention. The tables of cos and sin are float32 in
transformers whatever the model's type. Recorded are the logits, as float32, of every fourth position. Where cases are
named, the others stay as they were recorded.
"""
import json, os, subprocess, sys, tempfile
import torch, transformers
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

SHAPE = "--dim 64 --layers 2 --ffn 96 --heads 4 --kv-heads 2 --vocab 262 --ctx 256 --type f32 --format hf".split()
# name: (arguments, tokens); the test reads them from the metadata of the file
CASES = {
    "llama": ("--arch llama", 64),
    "llama_llama3": ("--arch llama --rope llama3 --original-ctx 32", 96),
    "llama_yarn": ("--arch llama --rope yarn --original-ctx 32", 96),
    "phi3": ("--arch phi3", 64),
    "phi3_short": ("--arch phi3 --rope longrope --original-ctx 64", 64),
    "phi3_long": ("--arch phi3 --rope longrope --original-ctx 64", 96),
    "phi3_partial": ("--arch phi3 --rope longrope --original-ctx 64 --head-dim 16 --rotary 0.75", 96),
    "qwen2": ("--arch qwen2 --tied", 64),
    "qwen2_yarn": ("--arch qwen2 --rope yarn --original-ctx 64", 96),
    "qwen3": ("--arch qwen3 --head-dim 32 --outliers 8", 64),
    "chatglm": ("--arch chatglm", 96),
    "chatglm_groups": ("--arch chatglm --head-dim 64 --outliers 8", 96),
}


def ids(n):
    return [(i * 37 + i * i * 5 + 11) % 262 for i in range(n)]


PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "logits.safetensors")
named = sys.argv[2:]
out, meta = {}, {}
if named:
    with safe_open(PATH, "pt") as kept:
        out, meta = {name: kept.get_tensor(name) for name in kept.keys()}, kept.metadata()
meta |= {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]}
for name, (args, n) in CASES.items():
    if named and name not in named:
        continue
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "model")
        subprocess.run([sys.argv[1], "--out", path, *SHAPE, *args.split()], check=True)
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64, attn_implementation="eager").eval()
        with torch.no_grad():
            logits = model(torch.tensor([ids(n)]), use_cache=False).logits[0]
    out[name] = logits[::4].to(torch.float32).contiguous()
    meta[name] = json.dumps({"args": args, "tokens": n})
    print(name, tuple(logits.shape), float(logits.abs().max()))
save_file(out, PATH, metadata=meta)
