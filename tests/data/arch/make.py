#!/usr/bin/env python3
"""Records logits of the real implementation (Hugging Face transformers) for tests/models/arch.rs.

    cargo build --release --example synth_model
    python3 make.py PATH/TO/synth_model [CASE...]        # needs torch, transformers, safetensors

Each case is a synthetic checkpoint in Hugging Face form, written by examples/synth_model.rs (the test writes the same
one), loaded with AutoModelForCausalLM in float64 with eager attention. The tables of cos and sin are float32 in
transformers whatever the model's type; what else it computes in float32 (ROUNDED) is made float64. Recorded are the logits, as float32, of every fourth position (or as the case
says), and the best token of every position. Where cases are named, the others stay as they were recorded.
"""
import importlib, json, os, subprocess, sys, tempfile
import torch, transformers
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

SHAPE = "--dim 64 --layers 2 --ffn 96 --heads 4 --kv-heads 2 --vocab 262 --ctx 256 --type f32 --format hf".split()
# name: (arguments, tokens[, every how many positions]); the test reads them from the metadata of the file
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
    "smollm3": ("--arch smollm3 --layers 5 --tied", 96, 8),
    "olmo2": ("--arch olmo2 --head-dim 24 --outliers 8", 96, 8),
    "olmo3": ("--arch olmo2 --layers 5 --window 20 --rope yarn --original-ctx 64", 96, 8),
    "exaone4": ("--arch exaone4 --head-dim 32 --tied", 96, 8),
    "exaone4_window": ("--arch exaone4 --layers 5 --window 20 --rope llama3 --original-ctx 32", 96, 8),
    "glm4": ("--arch glm4 --head-dim 24 --outliers 8", 96, 8),
    "gemma2": ("--arch gemma2 --tied --layers 4 --window 20 --dim 72 --ffn 100 --head-dim 32", 96, 8),
    "gemma3": ("--arch gemma3 --tied --layers 7 --window 20 --dim 72 --ffn 100 --head-dim 32 --rope linear", 96, 8),
    "gemma3n": ("--arch gemma3n --tied --layers 9 --window 20 --dim 72 --ffn 100 --head-dim 32 --uneven 32,2,3,4,2,24,0", 96, 8),
    "gemma3n_deeper": ("--arch gemma3n --tied --layers 12 --ffn 1024 --window 20 --uneven 16,2,4,4,1,16,0", 96, 8),
    "gemma4": ("--arch gemma4 --tied --layers 9 --window 20 --dim 72 --ffn 100 --head-dim 64 --uneven 32,2,3,4,2,24,0", 96, 8),
    "gemma4_experts": ("--arch gemma4 --tied --layers 4 --window 20 --head-dim 64 --kv-heads 1 --uneven 32,4,2,0,1,0,1 --experts 6 --used 2 --expert-ffn 40 --outliers 8", 96, 8),
    "granite": ("--arch granite --tied --head-dim 32", 96, 8),
    "mixtral": ("--experts 5 --used 2", 96, 8),
    "qwen2moe": ("--arch qwen2moe --experts 6 --used 3 --expert-ffn 40 --shared 72", 96, 8),
    "qwen3moe": ("--arch qwen3moe --experts 6 --used 3 --expert-ffn 40 --head-dim 32 --outliers 8", 96, 8),
    "granitemoe": ("--arch granitemoe --tied --head-dim 32 --experts 5 --used 3", 96, 8),
    "granitemoe_shared": ("--arch granitemoe --tied --head-dim 32 --experts 5 --used 2 --shared 56", 96, 8),
    "glm4moe": ("--arch glm4moe --layers 3 --head-dim 24 --experts 6 --used 2 --expert-ffn 40 --shared 40 --dense 1", 96, 8),
    "gptoss": ("--arch gpt-oss --layers 4 --head-dim 32 --window 20 --experts 6 --used 3 --rope yarn --original-ctx 64", 96, 8),
    "starcoder2": ("--arch starcoder2 --tied", 96, 8),
    "starcoder2_window": ("--arch starcoder2 --layers 3 --window 20 --outliers 8", 96, 8),
    "stablelm": ("--arch stablelm --head-dim 16 --outliers 8", 96, 8),
    "stablelm_larger": ("--arch stablelm --larger --dim 128", 96, 8),
    "cohere2": ("--arch cohere2 --tied --layers 5 --window 20", 96, 8),
    "command_r": ("--arch command-r --tied", 96, 8),
    "command_r_larger": ("--arch command-r --tied --larger", 96, 8),
    "phi2": ("--arch phi2 --dim 160 --heads 2 --kv-heads 2 --outliers 8", 96, 8),
    "gpt2": ("--arch gpt2 --tied --kv-heads 4 --ffn 256", 96, 8),
    "falcon": ("--arch falcon --tied --kv-heads 1 --ffn 256", 96, 8),
    "falcon_larger": ("--arch falcon --tied --larger --dim 128 --heads 8 --kv-heads 2", 96, 8),
    "qwen35": ("--arch qwen35 --layers 4 --head-dim 32 --delta-keys 2 --delta-heads 6", 96, 8),
    "qwen35_even": ("--arch qwen35 --layers 5 --tied --head-dim 64 --delta-keys 3 --delta-heads 3 --outliers 8", 96, 8),
    "qwen35moe": ("--arch qwen35moe --layers 4 --head-dim 32 --experts 6 --used 3 --expert-ffn 40 --shared 72", 96, 8),
    "lfm2": ("--arch lfm2 --layers 6 --tied", 96, 8),
    "lfm2moe": ("--arch lfm2moe --layers 4 --experts 6 --used 2 --expert-ffn 40 --dense 1 --tied", 96, 8),
    "mamba2": ("--arch mamba2 --layers 3 --head-dim 16 --delta-heads 8 --delta-keys 1 --delta-size 32", 96, 8),
    "mamba2_steps": ("--arch mamba2 --head-dim 16 --delta-heads 8 --delta-keys 2 --delta-size 32 --most-step 0.5", 96, 8),
    "mamba2_groups": ("--arch mamba2 --layers 3 --tied --dim 72 --head-dim 24 --delta-heads 6 --delta-keys 3 --delta-size 144 --outliers 8", 96, 8),
    "deepseek2": ("--arch deepseek2 --layers 3 --latent 0,512,64,24,20 --experts 6 --used 3 --expert-ffn 40 --shared 80 --dense 1", 96, 8),
    "deepseek2_groups": ("--arch deepseek2 --layers 3 --latent 40,64,16,24,20 --experts 16 --used 4 --expert-ffn 40 --shared 80 --dense 1 --outliers 8", 96, 8),
    "deepseek2_larger": ("--arch deepseek2 --larger --layers 3 --latent 40,96,16,40,24 --experts 16 --used 4 --expert-ffn 40 --shared 40 --dense 1 --rope yarn --original-ctx 64 --outliers 8", 96, 8),
    "qwen3next": ("--arch qwen3next --layers 4 --head-dim 32 --experts 6 --used 2 --expert-ffn 40 --shared 56 --delta-heads 6", 96, 8),
}


# transformers computes gated delta nets and state spaces, and these models' norms and rotation, in float32 whatever the
# model's type
ROUNDED = ["gemma3n", "gemma4", "qwen3_5", "qwen3_5_moe", "qwen3_next", "mamba2", "deepseek_v2", "deepseek_v3"]


def in_float64(name):
    """Runs a module's source again with every float32 of it made a float64."""
    module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    text = open(module.__file__).read()
    assert "torch.float32" in text and ".float()" in text, name
    exec(compile(text.replace("torch.float32", "torch.float64").replace(".float()", ".double()"), module.__file__, "exec"), module.__dict__)


for module in ROUNDED:
    in_float64(module)


def ids(n):
    return [(i * 37 + i * i * 5 + 11) % 262 for i in range(n)]


PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "logits.safetensors")
named = sys.argv[2:]
out, meta = {}, {}
if named:
    with safe_open(PATH, "pt") as kept:
        out, meta = {name: kept.get_tensor(name) for name in kept.keys()}, kept.metadata()
meta |= {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]}
for name, (args, n, *every) in CASES.items():
    if named and name not in named:
        continue
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "model")
        subprocess.run([sys.argv[1], "--out", path, *SHAPE, *args.split()], check=True)
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager").eval()
        with torch.no_grad():
            logits = model(torch.tensor([ids(n)]), use_cache=False).logits[0]
    every = every[0] if every else 4
    out[name] = logits[::every].to(torch.float32).contiguous()
    meta[name] = json.dumps({"args": args, "tokens": n, "every": every, "best": logits.argmax(-1).tolist()})
    print(name, tuple(logits.shape), float(logits.abs().max()))
save_file(out, PATH, metadata=meta)
