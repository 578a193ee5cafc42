#!/usr/bin/env python3
"""Perplexities of a model in every mix of types, with and without importances, and of types chosen to a size.

    scripts/recipes.py ISOBIT MODEL-F16 TEXT [--calibrate TEXT] [--bytes N] [--ctx N] [--chunks N]
    scripts/recipes.py ... --factors

A table for docs/quantize.md. The importances come from the second text, or from the end of the first, which is not scored:
its first N bytes are. With --factors: what quantising the tensors of one kind alone costs, over their noise, for the factors
of src/quantize/auto.rs.
"""

import argparse
import json
import math
import pathlib
import re
import subprocess
import tempfile

MIXES = """iq1_s iq1_m iq2_xxs iq2_xs iq2_s iq2_m q2_k_s q2_k iq3_xxs iq3_xs iq3_s iq3_m q3_k_s q3_k_m q3_k_l iq4_xs iq4_nl
q4_0 q4_k_s q4_k_m q4_1 q5_0 q5_k_s q5_k_m q5_1 q6_k q8_0 tq1_0 tq2_0 q2_0 mxfp4""".split()
BLIND = set("iq1_s iq1_m iq2_xxs iq2_xs iq2_s iq2_m q2_k_s iq3_xxs iq3_xs".split())
KINDS = {
    "token_embd": "token_embd",
    "attn_q": r"attn_q\.",
    "attn_k": r"attn_k\.",
    "attn_v": r"attn_v\.",
    "attn_output": "attn_output",
    "ffn_gate": "ffn_gate",
    "ffn_up": "ffn_up",
    "ffn_down": "ffn_down",
}
FEW_BITS = ["iq2_xs", "iq2_s", "q2_k", "iq3_xxs", "iq3_s", "q3_k"]


class Study:
    def __init__(self, a, folder):
        self.a, self.folder = a, pathlib.Path(folder)
        self.model = str(self.folder / "made.gguf")
        text = pathlib.Path(a.text).read_bytes()
        scored, rest = text[: a.bytes], text[a.bytes :]
        self.scored, calibrate = self.folder / "scored.txt", self.folder / "calibrate.txt"
        self.scored.write_bytes(scored)
        calibrate.write_bytes(pathlib.Path(a.calibrate).read_bytes() if a.calibrate else rest)
        self.imatrix = str(self.folder / "imatrix.gguf")
        self.run("imatrix", a.model, "-f", str(calibrate), "-o", self.imatrix, "-c", str(a.ctx), "-d", "cpu")

    def run(self, *args, env=None):
        done = subprocess.run([self.a.isobit, *args], capture_output=True, text=True, env=env)
        if done.returncode:
            raise SystemExit(f"{' '.join(args)}: {done.stderr}")
        return done

    def make(self, *flags):
        """Bytes of the matrices, bits of their weights."""
        made = json.loads(self.run("quantize", self.a.model, self.model, *flags, "--json", "--unchecked").stdout)
        matrices = [t for t in made["tensors"] if len(t["shape"]) > 1]
        weights = sum(math.prod(t["shape"]) for t in matrices)
        return made["bytes_out"], 8 * sum(t["bytes_out"] for t in matrices) / weights

    def nll(self, model=None):
        flags = ["-f", str(self.scored), "-c", str(self.a.ctx), "-d", "cpu", "--json"]
        if self.a.chunks:
            flags += ["--chunks", str(self.a.chunks)]
        if self.a.activations:
            flags += ["--activations", str(self.a.activations)]
        return json.loads(self.run("perplexity", model or self.model, *flags).stdout)["nll"]

    def table(self):
        weighted = ["--imatrix", self.imatrix]
        print(f"F16: {math.exp(self.nll(self.a.model)):.4f}\n")
        print("| TYPE | bits a weight | perplexity | with importances | `--auto` of that size | against the better one |")
        print("|---|---:|---:|---:|---:|---:|")
        for mix in MIXES:
            without = None
            if mix not in BLIND:
                size, bits = self.make(mix)
                without = math.exp(self.nll())
            # the mix may be another one with importances, and then the size is another one too
            size, bits = self.make(mix, *weighted)
            with_them = math.exp(self.nll())
            auto, change = "", ""
            _, chosen = self.make("--auto", f"{bits + 1e-9:.9f}", *weighted)
            ppl = math.exp(self.nll())
            best = min(p for p in [without, with_them] if p is not None)
            auto, change = f"{ppl:.4f} ({chosen:.3f})", f"{100 * (ppl / best - 1):+.2f} %"
            first = "" if without is None else f"{without:.4f}"
            print(f"| `{mix}` | {bits:.3f} | {first} | {with_them:.4f} | {auto} | {change} |", flush=True)

    def noise(self):
        """Noise over signal of every tensor in every type."""
        import os

        env = dict(os.environ, RUST_LOG="isobit=debug")
        flags = ["--auto", "4", "--dry-run", "--imatrix", self.imatrix]
        said = self.run("quantize", self.a.model, self.model, *flags, env=env).stderr
        found = re.findall(r"(\S+) in (\S+): noise over signal (\S+)", said)
        return {(name, ty.lower()): float(v) for name, ty, v in found}

    def factors(self):
        base, noise = self.nll(self.a.model), self.noise()
        print("| kind | " + " | ".join(FEW_BITS) + " |")
        for kind, pattern in KINDS.items():
            row = []
            for ty in FEW_BITS:
                self.make("f16", "--tensor-type", f"{pattern}={ty}", "--imatrix", self.imatrix)
                cost = self.nll() - base
                of_kind = sum(v for (name, t), v in noise.items() if t == ty and re.search(pattern, name))
                row.append(f"{cost:.5f} / {of_kind:.4f} = {cost / of_kind:.3f}")
            print(f"| {kind} | " + " | ".join(row) + " |", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("isobit")
    p.add_argument("model")
    p.add_argument("text")
    p.add_argument("--calibrate")
    p.add_argument("--bytes", type=int, default=60000)
    p.add_argument("--ctx", type=int, default=256)
    p.add_argument("--chunks", type=int, default=0)
    p.add_argument("--activations", type=int, default=0)
    p.add_argument("--factors", action="store_true")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        study = Study(a, folder)
        study.factors() if a.factors else study.table()


if __name__ == "__main__":
    main()
