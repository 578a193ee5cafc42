#!/usr/bin/env python3
"""Records hidden states of the real implementation (Hugging Face transformers) for tests/models/encoders.rs.

    cargo build --release --example synth_encoder
    python3 make.py PATH/TO/synth_encoder                # needs torch, transformers, safetensors

Each case is a checkpoint that examples/synth_encoder.rs writes (the test writes the same one), loaded with AutoModel in
float64 with eager attention; tables of cos and sin are float32 in transformers whatever the model's type. Recorded are, as
float32, the last hidden states of every eighth token of a text, their mean over all tokens, of length 1, and where there are
layers behind pooling, what these make of it.
"""
import os, subprocess, sys, tempfile
import torch, transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModel

# on both sides of where chunks of 64 positions end
TOKENS = [1, 63, 64, 65, 130]


def ids(form, n):
    # a RoBERTa's padding has no position
    first = 3 if "roberta" in form else 0
    return [first + (i * 37 + i * i * 5 + 11 * n) % 262 for i in range(n)]


def tensors(work, folder):
    return {name: t.to(torch.float64) for name, t in load_file(os.path.join(work, folder, "model.safetensors")).items()}


out = {}
for form in ["bert", "nomic", "xlm-roberta", "gemma", "bert-dense", "modern", "modern-silu"]:
    with tempfile.TemporaryDirectory() as work:
        subprocess.run([sys.argv[1], form, work], check=True)
        model = AutoModel.from_pretrained(work, dtype=torch.float64, attn_implementation="eager").eval()
        dense = [(folder, tensors(work, folder)) for folder in ["2_Dense", "3_Dense"] if os.path.isdir(os.path.join(work, folder))]
    for n in TOKENS:
        with torch.no_grad():
            states = model(torch.tensor([ids(form, n)])).last_hidden_state[0]
        mean = states.mean(0)
        if form != "bert-dense":
            out[f"{form}.{n}.states"] = states[::8].to(torch.float32).contiguous()
            out[f"{form}.{n}.mean"] = (mean / mean.norm()).to(torch.float32).contiguous()
        if dense:
            # as sentence-transformers: what is pooled, through each layer, then of length 1
            vector = states[0] if form == "bert-dense" else mean
            for folder, t in dense:
                vector = t["linear.weight"] @ vector + t.get("linear.bias", 0)
                vector = vector.tanh() if form == "bert-dense" else vector
            out[f"{form}.{n}.vector"] = (vector / vector.norm()).to(torch.float32).contiguous()
        print(form, n, tuple(states.shape), float(states.abs().max()))
meta = {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]}
save_file(out, os.path.join(os.path.dirname(os.path.abspath(__file__)), "states.safetensors"), metadata=meta)
