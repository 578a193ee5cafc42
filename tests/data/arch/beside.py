#!/usr/bin/env python3
"""Logits of llama.cpp and of isobit over the same GGUF files, and both beside transformers in float64.

    beside.py SYNTH_MODEL LOGITS ISOBIT LLAMA SOURCE [CASE...]      # called by .ci/llama, which installs what it needs

The files are the synthetic checkpoints of logits.safetensors (F32 weights, an f32 cache on either side): directories that
llama.cpp's own converter (in SOURCE) makes GGUF files of. What it does not convert (CONVERTED names the others) the
generator writes as GGUF, or `isobit quantize` converts. Models with recurrent layers get a layer that guesses at further
tokens first, as released checkpoints have one. A case without a named reason fails where any two of the three are further
apart than BOUND. Prints a table in Markdown.
"""
import json, os, subprocess, sys, tempfile
import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

synth, ours, isobit, theirs, source = sys.argv[1:6]
named = sys.argv[6:]
BOUND = 1e-9
SHAPE = "--dim 64 --layers 2 --ffn 96 --heads 4 --kv-heads 2 --vocab 262 --ctx 256 --type f32".split()
GELU = "ggml takes gelu from a table of f16"
# what llama.cpp computes otherwise: the case, why, and how far it may be from transformers
REASONS = {
    "deepseek2_groups": ("it chooses groups of experts by the two best, not by the best", 10),
    "deepseek2_larger": ("norms of latent vectors have the epsilon of the others", 1e-8),
    "gptoss": ("it rounds yarn's ramp to whole pairs", 10),
    "starcoder2_window": ("it knows no window of this architecture; " + GELU, 10),  # nor does its converter write one
    "falcon": ("gelu's tanh form, from a table of f16", 1e-5),
    "falcon_larger": ("gelu's tanh form, from a table of f16", 1e-5),
    "gemma2": (GELU, 1e-5),
    "gemma3": (GELU, 1e-5),
    "gemma4": (GELU, 1e-5),
    "gemma4_experts": (GELU, 1e-5),
    "gpt2": (GELU, 1e-5),
    "phi2": (GELU, 1e-5),
    "starcoder2": (GELU, 1e-5),
}
# what llama.cpp refuses or takes for something else (it derives a head's size from the width, norms of heads and windows
# from the number of layers, and has contexts of 256 and more, which longrope's tables depend on), and the nearest that it
# takes; these have no record of transformers
INSTEAD = {
    "chatglm_groups": "--arch chatglm --heads 8 --outliers 8",
    "command_r_larger": "--arch command-r --tied --larger --layers 64",
    "deepseek2": "--arch deepseek2 --layers 27 --latent 0,512,64,24,20 --experts 6 --used 3 --expert-ffn 40 --shared 80 --dense 1",
    "exaone4": "--arch exaone4 --tied",
    # it takes the last layer with keys for one without a window, and the one before it for one with
    "gemma4": "--arch gemma4 --tied --layers 9 --window 20 --dim 72 --head-dim 64 --uneven 32,2,3,3,2,24,0",
    "exaone4_window": "--arch exaone4 --layers 64 --window 20 --rope llama3 --original-ctx 32",
    "olmo2": "--arch olmo2 --outliers 8",
    "phi3_short": "--arch phi3 --rope longrope --ctx 1024 --original-ctx 256",
}
# the same file as converters wrote it before April 2025: keys and values of all heads in one matrix
OLD = {"deepseek2": "deepseek2_old", "deepseek2_larger": "deepseek2_larger_old"}
# what no GGUF file says: a bound of steps
UNSAID = ["mamba2_steps"]
# what llama.cpp has built in whatever a file says: which layers have keys, widths, which gates stay and by which deviation
BUILT_IN = ["gemma3n", "gemma3n_deeper"]
# what the converter takes: the others it asks for a sentencepiece model, for keys that transformers does not write, or for
# tokens that a made-up vocabulary has not, or it derives a shape from the width
GUESSING = ["qwen35", "qwen35_even", "qwen35moe", "qwen3next"]
CONVERTED = GUESSING + [
    "chatglm", "falcon", "glm4", "gptoss", "llama", "llama_llama3", "mamba2", "mamba2_groups", "mixtral", "olmo3", "qwen2",
    "qwen2_yarn", "qwen2moe", "qwen3", "qwen3moe", "stablelm", "starcoder2",
]


def ids(n):
    return [(i * 37 + i * i * 5 + 11) % 262 for i in range(n)]


def log_softmax(x):
    x = x.astype(np.float64) - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def kl(a, b):
    a, b = log_softmax(a), log_softmax(b)
    return float((np.exp(a) * (a - b)).sum(-1).max())


def rows(program, path, context, n):
    done = subprocess.run([program, path, str(context), *map(str, ids(n))], capture_output=True)
    if done.returncode:
        raise SystemExit(f"{program}: {done.stderr.decode(errors='replace').strip()[:400]}")
    return np.frombuffer(done.stdout, np.float32).reshape(n, -1)


def guesses(directory):
    """Adds a layer that guesses at further tokens: a copy of the first layer of attention, and some noise."""
    place = os.path.join(directory, "model.safetensors.index.json")
    with open(place) as f:
        index = json.load(f)
    tensors = {}
    for file in set(index["weight_map"].values()):
        tensors |= load_file(os.path.join(directory, file))
    layer = next(name for name in tensors if ".self_attn.q_proj" in name).split(".self_attn")[0]
    width = tensors[layer + ".input_layernorm.weight"].size
    new = {"mtp.layers.0" + n[len(layer):]: t for n, t in tensors.items() if n.startswith(layer + ".")}
    noise = np.random.default_rng(1)
    new["mtp.fc.weight"] = noise.standard_normal((width, 2 * width)).astype(np.float32)
    for name in ["pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"]:
        new[f"mtp.{name}.weight"] = noise.standard_normal(width).astype(np.float32)
    save_file(new, os.path.join(directory, "model-mtp.safetensors"), metadata={"format": "pt"})
    index["weight_map"] |= dict.fromkeys(new, "model-mtp.safetensors")
    with open(place, "w") as f:
        json.dump(index, f)
    config = os.path.join(directory, "config.json")
    with open(config) as f:
        fields = json.load(f) | {"mtp_num_hidden_layers": 1}
    with open(config, "w") as f:
        json.dump(fields, f)


def converter(directory, path):
    """Runs llama.cpp's converter, which would refuse a made-up vocabulary whose splitting it does not know."""
    code = (
        "import runpy, sys; sys.path[:0] = [sys.argv[1], sys.argv[1] + '/gguf-py'];"
        "from conversion.base import TextModel;"
        "TextModel.get_vocab_base_pre = lambda self, tokenizer: 'default';"
        "sys.argv = sys.argv[1:]; sys.argv[0] += '/convert_hf_to_gguf.py'; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, source, directory, "--outtype", "f32", "--outfile", path], capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{directory}: {done.stderr.strip().splitlines()[-1]}")


def same_tensors(name, path, own):
    """Fails where the converter's file has other tensors than ours, but for the layer that guesses and a matrix of one row,
    which is a vector here, and where bytes differ; divisors of frequencies, computed in f32 there, by an ulp or two."""
    sys.path.insert(0, source + "/gguf-py")
    from gguf import GGUFReader

    def held(file):
        reader = GGUFReader(file)
        count = next((f.contents() for f in reader.fields.values() if f.name.endswith(".block_count")), 0)
        guess = next((f.contents() for f in reader.fields.values() if f.name.endswith(".nextn_predict_layers")), 0)
        behind = tuple(f"blk.{l}." for l in range(count - guess, count))
        return {t.name: np.array(t.data).reshape(-1) for t in reader.tensors if not t.name.startswith(behind or ("-",))}

    theirs, mine = held(path), held(own)
    if theirs.keys() != mine.keys():
        raise SystemExit(f"{name}: tensors {sorted(theirs.keys() ^ mine.keys())} are in one file alone")
    for tensor, x in theirs.items():
        y = mine[tensor]
        near = tensor == "rope_freqs.weight" and x.shape == y.shape and np.allclose(x, y, rtol=2.5e-7, atol=0)
        if not near and x.tobytes() != y.tobytes():
            raise SystemExit(f"{name}: {tensor} has other bytes")


def make(name, args, folder):
    """The case as a GGUF file, and who wrote it."""
    path, directory = os.path.join(folder, "model.gguf"), os.path.join(folder, "model")
    of_directory = [synth, "--out", directory, *SHAPE, *args, "--format", "hf"]
    if name in CONVERTED:
        subprocess.run(of_directory, check=True, capture_output=True)
        if name in GUESSING:
            guesses(directory)
        converter(directory, path)
        own = os.path.join(folder, "own.gguf")
        subprocess.run([isobit, "quantize", directory, own, "f32"], check=True, capture_output=True)
        same_tensors(name, path, own)
        return path, "llama.cpp's"
    done = subprocess.run([synth, "--out", path, *SHAPE, *args], capture_output=True, text=True)
    if done.returncode == 0:
        return path, "generator's"
    if "is for --format hf" not in done.stderr:
        raise SystemExit(f"{args}: {done.stderr.strip()}")
    subprocess.run(of_directory, check=True, capture_output=True)
    subprocess.run([isobit, "quantize", directory, path, "f32"], check=True, capture_output=True)
    return path, "`isobit quantize`"


def old_conversion(path, to):
    """Writes a file of latent attention as converters did before they took its matrix of keys and values apart."""
    sys.path.insert(0, source + "/gguf-py")
    from gguf import GGUFReader, GGUFValueType, GGUFWriter

    reader = GGUFReader(path)
    said = {name: (field.contents(), field.types) for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    key = lambda what: said["deepseek2.attention." + what][0]
    heads = key("head_count")
    old = {"key_length": key("key_length_mla"), "value_length": key("value_length_mla"), "head_count_kv": heads}
    writer = GGUFWriter(to, "deepseek2")
    for name, (value, types) in said.items():
        what = name.removeprefix("deepseek2.attention.")
        if name != "general.architecture" and not name.endswith("_mla"):
            element = types[1] if types[0] == GGUFValueType.ARRAY else None
            writer.add_key_value(name, old.get(what, value), types[0], element)
    keys = {}
    for t in reader.tensors:
        x = np.array(t.data)
        if t.name.endswith("attn_k_b.weight"):
            keys[t.name.split(".attn")[0]] = x.transpose(0, 2, 1)
            continue
        if t.name.endswith("attn_v_b.weight"):
            layer = t.name.split(".attn")[0]
            x = np.concatenate([keys[layer], x], 1).reshape(-1, x.shape[-1])
            writer.add_tensor(layer + ".attn_kv_b.weight", np.ascontiguousarray(x))
        else:
            writer.add_tensor(t.name, x)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return to


record = safe_open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "logits.safetensors"), "np")
meta, far = record.metadata(), []
print("| case | file | llama.cpp to transformers | isobit to transformers | isobit to llama.cpp | other best tokens | |")
print("|---|---|---|---|---|---|---|")
cases = [(name, name) for name in record.keys() if name not in UNSAID + BUILT_IN]
cases += [(old, name) for name, old in OLD.items()]
for shown_as, name in cases:
    if named and shown_as not in named:
        continue
    case = json.loads(meta[name])
    n, every = case["tokens"], case.get("every", 4)
    args = INSTEAD.get(name, case["args"]).split()
    with tempfile.TemporaryDirectory() as folder:
        path, by = make(name, args, folder)
        if shown_as != name:
            path, by = old_conversion(path, os.path.join(folder, "old.gguf")), by + ", made older"
        a, b = rows(theirs, path, 256, n), rows(ours, path, 256, n)
    why, bound = REASONS.get(name, ("", BOUND))
    beside = [None, None]
    if name in INSTEAD:
        why = "`" + INSTEAD[name] + "`, without a record of transformers"
    else:
        want = record.get_tensor(name)
        beside = [kl(want, a[::every]), kl(want, b[::every])]
    apart, flips = kl(a, b), int((a.argmax(-1) != b.argmax(-1)).sum())
    shown = ["" if x is None else f"{x:.1e}" for x in beside]
    print(f"| `{shown_as}` | {by} | {shown[0]} | {shown[1]} | {apart:.1e} | {flips} of {n} | {why} |", flush=True)
    if apart > bound or (beside[0] or 0) > bound or (beside[1] or 0) > BOUND or (flips and bound < 1):
        far.append(shown_as)
if far:
    raise SystemExit("further apart than they may be: " + ", ".join(far))
