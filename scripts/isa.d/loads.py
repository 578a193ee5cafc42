"""Loads from memory that AMD's machine code has in flight in the main loop of a shader, and what its arithmetic issues.

AMD counts the loads that are under way: a wait names how many of the newest it leaves so. `main_loop` walks the code in its
order, twice around a loop, so that what one turn asks for and the next one awaits is counted. Loads that the scalar unit
makes (`s_load`, `s_buffer_load`) have a counter of their own and are left out. `dot_loop` says what a turn of the loop with
the integer dot products issues.
"""

import re
from dataclasses import dataclass

LABEL = re.compile(r"^(BB\d+):")
BRANCH = re.compile(r"^\s+(s_c?branch\w*)\s+(BB\d+)")
LOAD = re.compile(r"^\s+(buffer|global|flat|scratch)_load_(\w+)")
# RDNA 2 and 3.5, and RDNA 4
WAIT = re.compile(r"^\s+(?:s_waitcnt\s.*?\bvmcnt\((\d+)\)|s_wait_loadcnt(?:_dscnt)?\s+(0x[0-9a-f]+|\d+))")
WIDE = ("b128", "dwordx4")
# bytes of a lane by the end of a load's name; all others bring four at most
BYTES = {"b64": 8, "dwordx2": 8, "b96": 12, "dwordx3": 12, "b128": 16, "dwordx4": 16}
DOT = re.compile(r"^\s+v_dot4")
VECTOR = re.compile(r"^\s+v_")
# a quarter of the rate
SLOW = re.compile(r"^\s+v_(?:mul_lo_[ui]32|mul_hi_[ui]32|mad_[ui]64_[ui]32|mad_co_[ui]64_[ui]32)\b")


@dataclass
class Loop:
    """A loop of the code: its lines, and what it asks memory for."""

    first: int
    last: int
    # loops around it
    depth: int = 0
    # loads of this loop and of none in it: of 16 bytes, of all widths, and their bytes
    wide: int = 0
    loads: int = 0
    bytes: int = 0


def width(load):
    """Bytes that a lane asks for, by the name of a load."""
    return next((n for end, n in BYTES.items() if load.endswith(end)), 4)


def loops(lines):
    """The loops of a code, by the branches that go back."""
    label = {m[1]: i for i, m in enumerate(map(LABEL.match, lines)) if m}
    last = {}
    for i, m in enumerate(map(BRANCH.match, lines)):
        if m and label.get(m[2], len(lines)) <= i:
            last[label[m[2]]] = i
    found = [Loop(first, end) for first, end in sorted(last.items())]
    for inner in found:
        inner.depth = sum(1 for o in found if o.first < inner.first and inner.last <= o.last)
    for i, m in enumerate(map(LOAD.match, lines)):
        around = [o for o in found if o.first <= i <= o.last]
        if m and m[1] != "scratch" and around:
            own = max(around, key=lambda o: o.depth)
            own.loads += 1
            own.wide += m[2].endswith(WIDE)
            own.bytes += width(m[2])
    return found


def walk(lines, loop, turns):
    """The waits of a loop's last turn for loads that no wait before has waited for, each with what is in flight: 16-byte
    loads, loads and bytes."""
    waits = []
    number = awaited = 0
    start = lines[loop.first].split(":")[0]
    # how many loads the way here asked for, and those under way: number, bytes
    state, left = (0, []), {}
    for turn in range(turns):
        for line in lines[loop.first : loop.last + 1]:
            if m := LABEL.match(line):
                ways = left.pop(m[1], []) + ([] if state is None else [state])
                # a way around loads is taken only where no other way leads on
                state = max(ways, key=lambda s: (s[0], len(s[1])), default=None)
            elif state is None:
                # nothing goes here from within the loop
                continue
            elif m := LOAD.match(line):
                number += 1
                state = state[0] + 1, [*state[1], (number, 0 if m[1] == "scratch" else width(m[2]))]
            elif m := WAIT.match(line):
                under_way = state[1]
                done = under_way[: max(len(under_way) - int(m[1] or m[2], 0), 0)]
                if done and done[-1][0] > awaited:
                    if turn == turns - 1:
                        wide = sum(size == 16 for _, size in under_way)
                        waits.append((wide, len(under_way), sum(size for _, size in under_way)))
                    awaited = number
                state = state[0], under_way[len(done) :]
            elif m := BRANCH.match(line):
                left.setdefault(m[2], []).append(state)
                if m[1] == "s_branch":
                    state = None
        # the next turn begins with what the branches back to the start have left under way
        state, left = None, {start: left.get(start, [])}
    return waits


def main_loop(code):
    """What the loop that asks memory for most has in flight: a dictionary of numbers, empty where nothing is awaited.

    `wide in flight` and `loads in flight` are the 16-byte loads and all loads under way at the wait where they are most, and
    `bytes in flight` what a lane has asked for where that is most;
    `waits` is how often a turn of the loop waits for loads that it has not waited for yet. That loop has most loads of 16
    bytes, where a loop counts double for each one around it; where no loop has any, it is the one that asks for most bytes,
    counted likewise. Code that loads in no loop is taken as a whole, once.
    """
    lines = code.splitlines()
    found = [o for o in loops(lines) if o.loads]
    if found:
        waits = walk(lines, max(found, key=lambda o: (o.wide << o.depth, o.bytes << o.depth, o.depth)), 2)
    else:
        waits = walk(lines, Loop(0, len(lines) - 1), 1)
    if not waits:
        return {}
    wide, loads, _ = max(waits)
    most = max(size for _, _, size in waits)
    return {"wide in flight": wide, "loads in flight": loads, "bytes in flight": most, "waits": len(waits)}


def dot_loop(code):
    """What a turn of the loop with most integer dot products issues, of that loop's own code: `loop slots`, vector
    instructions with a slow one as four, and `loop dots`. Nothing where there are no dot products; the whole code where they
    are in no loop.
    """
    lines = code.splitlines()
    found = loops(lines) or [Loop(0, len(lines) - 1)]
    own = [[] for _ in found]
    for i, line in enumerate(lines):
        around = [n for n, o in enumerate(found) if o.first <= i <= o.last]
        if around:
            own[max(around, key=lambda n: found[n].depth)].append(line)
    most = max(own, key=lambda body: sum(1 for line in body if DOT.match(line)))
    dots = sum(1 for line in most if DOT.match(line))
    if not dots and any(map(DOT.match, lines)):
        most, dots = lines, sum(1 for line in lines if DOT.match(line))
    if not dots:
        return {}
    slots = sum((1 if VECTOR.match(line) else 0) + (3 if SLOW.match(line) else 0) for line in most)
    return {"loop slots": slots, "loop dots": dots}
