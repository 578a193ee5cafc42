#!/usr/bin/env python3
"""Compares vectors of a BERT directory with those of Hugging Face transformers in float64.

    python3 compare.py PATH/TO/isobit MODEL WORK [DEVICE...]

Every form of the model (the directory; GGUF files of it in f32, f16 and q8_0) makes vectors of the same sentences on every
device named (the CPU and the plain twins, unless any are). The reference: the mean of the last hidden states, of length 1.
Devices must agree in every bit, ids with the reference's, and vectors of unquantised weights within 1e-5 of cosine.
"""
import json, os, re, subprocess, sys
import torch
from transformers import AutoModel, AutoTokenizer

SENTENCES = [
    "The cat sat on the mat.",
    "A cat was sitting on a rug.",
    "Quarterly revenue grew by 12.5%, to $3.4 billion.",
    "Na\u00efve caf\u00e9s in S\u00e3o Paulo serve cr\u00e8me br\u00fbl\u00e9e \u2014 don't they?",
    "\u4e2d\u6587\u53e5\u5b50 and English, side by side",
    "x",
    "How do I exit vim?! :wq",
    "antidisestablishmentarianism unbelievably overcomplicates electroencephalographic re-evaluations",
    "[MASK] is written here, and so is ##ing; \U0001f600 too",
    " ".join(["Once upon a time there was a king who had three sons."] * 4),
    " ".join(["Once upon a time there was a king who had three sons."] * 11),
    " ".join(["The quick brown fox jumps over the lazy dog, again and again; nobody knows why."] * 25),
]
isobit, model, work = sys.argv[1:4]
devices = sys.argv[4:] or ["cpu", "cpu:scalar"]
os.makedirs(work, exist_ok=True)
forms = {"directory": model}  # by its title; "+16": activations of 16 bits
for mix in ["f32", "f16", "q8_0"]:
    forms[mix] = os.path.join(work, f"{mix}.gguf")
    if os.path.exists(forms[mix]):
        os.remove(forms[mix])
    subprocess.run([isobit, "quantize", model, forms[mix], mix], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

forms["q8_0 +16"] = forms["q8_0"]
tokenizer = AutoTokenizer.from_pretrained(model)
reference = AutoModel.from_pretrained(model, dtype=torch.float64, attn_implementation="eager").eval()
# text that reads like a special token is text
ids = [tokenizer(s, split_special_tokens=True)["input_ids"] for s in SENTENCES]
with torch.no_grad():
    means = [reference(torch.tensor([i])).last_hidden_state[0].mean(0) for i in ids]
expected = [m / m.norm() for m in means]
texts = os.path.join(work, "texts.jsonl")
with open(texts, "w") as f:
    f.writelines(json.dumps({"input": s}) + "\n" for s in SENTENCES)

failed = []
for form, path in forms.items():
    for sentence, known in zip(SENTENCES, ids):
        out = subprocess.run([isobit, "tokenize", "-m", path, "--json", "-p", sentence], capture_output=True, text=True, check=True)
        found = json.loads(out.stdout)
        found = found["ids"] if isinstance(found, dict) else [t["id"] for t in found]
        if found != known:
            failed.append(f"{form}: ids of {sentence[:40]!r}: {found[:12]}, expected {known[:12]}")
    digests = {}
    for device in devices:
        run = subprocess.run([isobit, "embed", "-m", path, texts, "--json", "--device", device, "--activations", "16" if form.endswith("+16") else "8"], capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(f"{form} on {device}: {run.stderr}")
        digests[device] = re.search(r"sha256 (\w+)", run.stderr)[1]
    vectors = [json.loads(line)["embedding"] for line in run.stdout.splitlines()]
    # in float64, and for distances this small not by 1 - cosine, which has lost them
    apart = [float((torch.tensor(v, dtype=torch.float64) - e).norm() ** 2 / 2) for v, e in zip(vectors, expected)]
    print(f"{form:10} 1 - cosine: worst {max(apart):.1e}, mean {sum(apart) / len(apart):.1e}; sha256 {digests[devices[0]][:16]}")
    if len(set(digests.values())) != 1:
        failed.append(f"{form}: digests differ: {digests}")
    if not form.startswith("q8_0") and max(apart) > 1e-5:
        failed.append(f"{form}: {max(apart):.1e} is more than 1e-5")
print("\n".join(failed) or f"{len(SENTENCES)} sentences of {min(map(len, ids))} to {max(map(len, ids))} tokens, {', '.join(devices)}: equal digests")
sys.exit(bool(failed))
