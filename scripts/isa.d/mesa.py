"""What Mesa's compilers tell of one compiled shader, as numbers and findings. The one place that reads their text.

`read` takes what vkisa wrote. A new number is a pattern in `COUNTS` or a name in `STATISTICS`; a new rule is a function
that appends to `findings`. What AMD's code has in flight is read in loads.py, what is slow is judged in speed.py.
"""

import re
from dataclasses import dataclass, field

import loads

# ---- the driver's own statistics ----

# our name: the names that drivers have for it, in lower case
STATISTICS = {
    "instructions": ("instructions", "instruction count"),
    # AMD, NVIDIA, Intel (values alive at once), Adreno, Apple (halves)
    "registers": ("vgprs", "number of gprs", "max live registers", "registers used", "gprs"),
    # registers or values that did not fit, and on Adreno stores of them
    "spills": ("spilled vgprs", "spills to memory", "spills", "stp count"),
    "scalar spills": ("spilled sgprs",),
    # bytes: of a subgroup, of a workgroup
    "scratch": ("scratch size",),
    "shared": ("lds size",),
    # subgroups that a SIMD has room for
    "subgroups": ("subgroups per simd",),
    # bytes
    "code": ("code size",),
}

# ---- machine code, by dialect ----

# the section that tells which dialect a file is in; Apple's driver has none and prints everything
DIALECTS = {
    "Assembly": "amd",
    "NAK assembly": "nvidia",
    "GEN Assembly": "intel",
    "IR3 Assembly": "adreno",
}

# float multiply-adds: one rounding where the shader has two
FUSED = {
    # scalar, vector, packed, and the halves of dual issue; 1 * x - 0 to f16 is how integers for matrices are narrowed
    "amd": r"\b(?!v_fma_mix(?:lo|hi)_f16 v\d+, 1\.0, v\d+, neg\(0\) )[vs]_(?:dual_|pk_)?(?:fma|fmac|fmaak|fmamk|mad|mac|madmk|madak|dot2c?|dot2acc)"
    r"(?:_mix|_mixlo|_mixhi|_legacy|_dx9_zero)?_(?:f16|f32|f64)\w*.*",
    "nvidia": r"\b(?:ffma|hfma2|dfma)\b.*",
    # Mesa 25 writes the type as >:F, Mesa 26 as :f
    "intel": r"^\s*(?:\([^)]*\)\s*)?(?:mad|madm|mac|lrp)[.a-z]*\s*\(\d+[^)]*\)(?:.*?>[HD]?F\b|\s+\S+:[hd]?f\b).*",
    "adreno": r"\bmad\.f(?:16|32)\b.*",
    "apple": r"^\s*[0-9a-f]+: [0-9a-f]+\s+[fh]fma\b.*",
}

# the unit for transcendental functions; group 1 is the function
TRANSCENDENTAL = {
    "amd": r"\bv_(?:s_)?(exp|log|rcp|rsq|sqrt|sin|cos)_(?:\w+_)?(?:f16|f32|f64)\b.*",
    "nvidia": r"\bmufu\.(\w+).*",
    "intel": r"\bmath[ .]+(inv|log|exp|sqrt|rsq|rsqt|sin|cos|pow|fdiv|invm|rsqtm)\b.*",
    "adreno": r"^\s*(?:\([^)]*\)\s*)*(rcp|rsq|log2|exp2|sin|cos|sqrt|hrcp|hrsq|hlog2|hexp2)\b.*",
    "apple": r"^\s*[0-9a-f]+: [0-9a-f]+\s+(rcp|rsqrt|srsqrt|log2|exp2|sin_pt_[12])\b.*",
}
RECIPROCALS = {"rcp", "inv"}

# what else is counted: name, then a pattern for each dialect
COUNTS = {
    "dot products of bytes": {
        "amd": r"\bv_dot4c?_",
        "nvidia": r"\bidp",
        "intel": r"\bdp4a\b",
        "adreno": r"\bdp4acc\b",
    },
    # at a quarter of the rate of other instructions
    "wide multiplies": {"amd": r"\bv_(?:mul_lo_[ui]32|mul_hi_[ui]32|mad_[ui]64_[ui]32|mad_co_[ui]64_[ui]32)\b"},
}

# ---- NIR ----

NIR_SECTIONS = {"Final NIR", "NIR shader", "NIR Shader(s)"}
ARITHMETIC = {"fadd", "fsub", "fmul", "fmulz", "ffma", "ffmaz", "fmad", "flrp", "fdot2", "fdot3", "fdot4", "fmod", "frem"}
MULTIPLY_ADD = {"ffma", "ffmaz", "fmad", "flrp", "fdot2", "fdot3", "fdot4"}
APPROXIMATE = re.compile(r"f(?:rcp|rsq|sqrt|exp2?|log2?|pow|sin|cos|div|tanh)(?:_\w+)?")
# ops whose result is one of their operands, or its sign changed
PASSES_ON = {"fneg", "fabs", "fsat", "mov", "bcsel", "b32csel", "fcsel", "fcsel_gt", "fcsel_ge", "fmin", "fmax", "phi"}
PASSES_ON |= {"fmin_agx", "fmax_agx"} | {f"vec{n}" for n in (2, 3, 4, 5, 8, 16)} | {"fcanonicalize"}
DIVIDES = {"udiv", "idiv", "umod", "imod", "irem"}
COMPARES = {"feq", "fneu", "flt", "fge", "fequ", "fltu"}
FROM_INTEGER = re.compile(r"[ui]2f(?:16|32|64)")
TO_INTEGER = re.compile(r"f2[ui](?:16|32|64)(?:_\w+)?")

DEFINITION = re.compile(
    r"^[ \t]*(?:con |div )?[ \t]*\d+(?:x\d+)?[ \t]+%(\d+) = ([@\w]+)!?(.*)$|^impl .*$|^[ \t]+(@store\w*) (.*)$", re.M
)
OPERAND = re.compile(r"%(\d+)")


@dataclass
class Shader:
    """One shader in one compiler's hands."""

    # by the names of STATISTICS and COUNTS (the largest and the sum over the shader's executables), and for AMD of
    # loads.main_loop and loads.dot_loop
    numbers: dict = field(default_factory=dict)
    # (rule, what was seen); rules are "fused", "naked" and "transcendental"
    findings: list = field(default_factory=list)

    def count(self, rule):
        """How many findings a rule has."""
        return sum(1 for r, _ in self.findings if r == rule)


class Values:
    """The values of one function of NIR: operation and operands by number."""

    def __init__(self):
        self.op = {}
        self.operands = {}
        self.stored = []

    def sources(self, value, seen=None):
        """What a value may be, through moves, selects and phis."""
        if seen is None:
            if self.op.get(value) not in PASSES_ON:
                return {value}
            seen = set()
        if value in seen:
            return set()
        seen.add(value)
        if self.op.get(value) not in PASSES_ON:
            return {value}
        found = set()
        # the condition of a select is a bool, and no bool is in any set that is asked for
        for o in self.operands[value]:
            found |= self.sources(o, seen)
        return found

    def divisions(self):
        """The float values of integer divisions by run-time numbers: a reciprocal of an integer and what refines it."""
        if "frcp" not in self.op.values():
            return set()
        integer = {v for v, op in self.op.items() if FROM_INTEGER.fullmatch(op)}
        constant = {v for v, op in self.op.items() if op == "load_const"}
        mine = {
            v
            for v, op in self.op.items()
            if op == "frcp" and all(self.sources(o) <= integer for o in self.operands[v])
        }
        grown = True
        while grown:
            grown = False
            for v, op in self.op.items():
                if v in mine or op not in ARITHMETIC | PASSES_ON | COMPARES:
                    continue
                of = self.operands[v]
                known = mine | integer | constant
                bools = {o for o in of if self.op.get(o) in COMPARES and o in mine}
                if any(o in mine - bools for o in of) and all(o in known or self.sources(o) <= known for o in of):
                    mine.add(v)
                    grown = True
        return mine


def functions(nir):
    """The functions of a NIR text."""
    found = []
    for m in DEFINITION.finditer(nir):
        if m[1]:
            # adding -0 is how Apple's driver flushes a subnormal
            flush = m[2] == "fadd" and "(-0.000000)" in m[3]
            found[-1].op[m[1]] = "fcanonicalize" if flush else m[2]
            found[-1].operands[m[1]] = OPERAND.findall(m[3])
        elif m[4]:
            found[-1].stored += OPERAND.findall(m[5])
        else:
            found.append(Values())
    return found


def judge_nir(nir, findings):
    """Adds what is wrong in NIR. Returns how many reciprocals and multiply-adds belong to integer divisions."""
    reciprocals = refinements = 0
    for f in functions(nir):
        division = f.divisions()
        # a driver divides by a reciprocal, here or when it makes code
        reciprocals += sum(1 for op in f.op.values() if op in DIVIDES)
        reciprocals += sum(1 for v in division if f.op[v] == "frcp")
        refinements += sum(1 for v in division if f.op[v] in MULTIPLY_ADD)
        arithmetic = {v for v, op in f.op.items() if op in ARITHMETIC and v not in division}
        for v, op in f.op.items():
            if v in arithmetic:
                if op in MULTIPLY_ADD:
                    findings.append(("fused", f"NIR {op}"))
                for o in f.operands[v]:
                    for s in f.sources(o) & arithmetic:
                        findings.append(("naked", f"NIR {f.op[s]} feeds {op}"))
            if APPROXIMATE.fullmatch(op) and v not in division:
                findings.append(("transcendental", f"NIR {op}"))
            if v not in division and not TO_INTEGER.fullmatch(op) and op not in COMPARES:
                for o in f.operands[v]:
                    if o in division and f.op[o] not in COMPARES:
                        findings.append(("transcendental", f"NIR {f.op[o]} of a division of integers feeds {op}"))
        for o in f.stored:
            if o in division:
                findings.append(("transcendental", f"NIR {f.op[o]} of a division of integers is stored"))
    return reciprocals, refinements


def sections(text):
    """(name, text) of every section, in order."""
    parts = re.split(r"^=== (.*)\n", text, flags=re.M)
    return list(zip(parts[1::2], parts[2::2]))


def read(text):
    """Reads what vkisa wrote of one shader.

    Raises ValueError when there is no machine code or no NIR in it: a check that reads nothing must not pass.
    """
    shader = Shader()
    for line in re.findall(r"^Executable=.*", text, re.M):
        pairs = dict(p.split("=", 1) for p in line.split("; ") if "=" in p)
        pairs = {k.lower(): v for k, v in pairs.items()}
        for name, theirs in STATISTICS.items():
            for t in theirs:
                if t in pairs:
                    shader.numbers[name] = max(shader.numbers.get(name, 0), int(float(pairs[t])))
    dialect, code, nir = "apple", "", ""
    for name, part in sections(text):
        if name in DIALECTS:
            # the line after one that the disassembler does not know is the second word of that instruction
            dialect, code = DIALECTS[name], code + re.sub(r"\(invalid instruction\).*\n.*\n", "", part)
        elif name in NIR_SECTIONS:
            nir += part
        elif name == "printed":
            printed = part
    if dialect == "apple":
        # its text holds NIR, the driver's own representations and the code; the patterns tell them apart
        nir = code = printed
    if not code.strip() or not re.search(r"^impl ", nir, re.M):
        raise ValueError("the driver gave no " + ("NIR" if code.strip() else "machine code"))
    if "instructions" not in shader.numbers:
        raise ValueError("the driver gave no number of instructions")

    in_nir = []
    reciprocals, refinements = judge_nir(nir, in_nir)
    in_code = []
    fused = [m[0].strip() for m in re.finditer(FUSED[dialect], code, re.M)]
    if len(fused) > refinements:
        in_code += [("fused", line) for line in fused]
    for m in re.finditer(TRANSCENDENTAL[dialect], code, re.M):
        if m[1] not in RECIPROCALS or not reciprocals:
            in_code.append(("transcendental", m[0].strip()))
    # an operation seen in both is one finding, told by its instruction
    for rule in ("fused", "naked", "transcendental"):
        two = [[f for f in found if f[0] == rule] for found in (in_code, in_nir)]
        shader.findings += max(two, key=len)
    for name, patterns in COUNTS.items():
        shader.numbers[name] = len(re.findall(patterns.get(dialect, r"(?!)"), code))
    if dialect == "amd":
        shader.numbers |= loads.main_loop(code) | loads.dot_loop(code)
    return shader
