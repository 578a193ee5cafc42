"""Which kernels a llama runs before a device has measured any, and what is slow in a kernel.

The choice itself is `untuned` in host/variants.rs: tests/kernels/shaders.rs compares the lists here with it, and `isobit
shaders` says of every shader whether it may be chosen. Nothing here says how fast a kernel is: the findings are two things
that no AMD device makes good for.
"""

import csv
from dataclasses import dataclass

RULES = ("spill", "loads")
# Bytes a lane should have asked for while it waits for memory: eight loads of 16. Of a matrix only such loads count: those
# of 4 are activations, which a cache has. Of the cache of keys and values, whose layout gives a lane 4 bytes a load and 32
# lanes a line of 128, and of norms all loads count.
WANTED = 128

# The shaders of a llama of Q4_K_M with a cache of f16, in the order of a layer: a step of one token (attention splits from
# 256 positions on), and one of 16 tokens or more.
F16 = "k_type=1 v_type=1"
DECODE = (
    ("embed_q4k", ""),
    ("norm_quantize", ""),
    ("q4k_matvec4", ""),
    ("q4k_q6k_matvec4", ""),
    ("rope_cache_write", F16),
    ("attention_quantize", F16),
    ("attention_chunks", F16),
    ("attention_quantize_join", F16),
    ("q4k_gate_up4", ""),
    ("q6k_matvec4", ""),
    ("select_rows", ""),
    ("top_k", ""),
)
PREFILL = (
    ("embed_q4k", ""),
    ("norm_quantize", ""),
    ("q4k_matmul", ""),
    ("q4k_q6k_matmul", ""),
    ("rope_cache_write", F16),
    ("attention_quantize_tile", F16),
    ("swiglu_quantize", ""),
    ("q6k_matmul", ""),
)


def is_decode(shader):
    """Whether a shader reads weights, cache or activations in a step of one token."""
    # of a layer's sinks there is one for each head
    attention = shader.startswith("attention") and "tile" not in shader and shader not in ("attention_digits", "attention_sinks")
    return shader.endswith(("_matvec4", "_gate_up4", "_parallel")) or attention or shader == "norm_quantize"


def findings(shader, default, numbers):
    """What is slow in an AMD compiler's numbers of a shader: [(rule, what was seen)]. `default`: a device may run it for some
    model before anything is measured."""
    found = []
    spilled = numbers["spills"] + numbers["scalar spills"]
    if default and (spilled or numbers["scratch"]):
        found.append(("spill", f"{spilled} registers spilled, {numbers['scratch']} bytes of scratch a subgroup"))
    if is_decode(shader):
        # code that awaits no load at all has none under way
        loads, wide = numbers.get("loads in flight", 0), numbers.get("wide in flight", 0)
        matrix = shader.endswith(("_matvec4", "_gate_up4", "_parallel"))
        under_way = 16 * wide if matrix else numbers.get("bytes in flight", 0)
        if under_way < WANTED:
            seen = f"{loads} loads in flight, {wide} of them of 16 bytes"
            found.append(("loads", f"{under_way} bytes a lane that count ({seen}); wanted: {WANTED}"))
    return found


@dataclass
class Known:
    """A line of known.tsv: findings that are known, and why they are there."""

    rule: str
    shader: str
    # of one row, or `*` for every row of the shader
    overrides: str
    targets: list
    reason: str

    def covers(self, rule, shader, overrides, target):
        """Whether a finding is this one."""
        row = (self.rule, self.shader) == (rule, shader) and self.overrides in ("*", overrides)
        return row and target in self.targets


def read_known(file):
    """Reads known.tsv. Raises ValueError with the line that is wrong."""
    known = []
    with open(file, newline="") as f:
        lines = [(n, line) for n, line in enumerate(f, 1) if line.strip() and not line.startswith("#")]
    for (n, _), fields in zip(lines, csv.reader((line for _, line in lines), delimiter="\t", quoting=csv.QUOTE_NONE)):
        if len(fields) != 5 or not all(fields[i].strip() for i in (0, 1, 3, 4)):
            raise ValueError(f"line {n}: rule, shader, overrides (* for all), targets and reason are wanted, with tabs between")
        rule, shader, overrides, targets, reason = fields
        if rule not in RULES:
            raise ValueError(f"line {n}: no rule {rule}; there are {', '.join(RULES)}")
        known.append(Known(rule, shader, overrides, targets.split(), reason))
    return known
