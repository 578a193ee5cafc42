"""Loads from memory that AMD's machine code has in flight in the main loop of a shader.

AMD counts the loads that are under way: a wait names how many of the newest it leaves so. `main_loop` walks the code in its
order, twice around a loop, so that what one turn asks for and the next one awaits is counted. Loads that the scalar unit
makes (`s_load`, `s_buffer_load`) have a counter of their own and are left out.
"""

import re
from dataclasses import dataclass

LABEL = re.compile(r"^(BB\d+):")
BRANCH = re.compile(r"^\s+(s_c?branch\w*)\s+(BB\d+)")
LOAD = re.compile(r"^\s+(buffer|global|flat|scratch)_load_(\w+)")
# RDNA 2 and 3.5, and RDNA 4
WAIT = re.compile(r"^\s+(?:s_waitcnt\s.*?\bvmcnt\((\d+)\)|s_wait_loadcnt(?:_dscnt)?\s+(0x[0-9a-f]+|\d+))")
WIDE = ("b128", "dwordx4")


@dataclass
class Loop:
    """A loop of the code: its lines, and what it asks memory for."""

    first: int
    last: int
    # loops around it
    depth: int = 0
    # loads of this loop and of none in it: of 16 bytes, of all widths
    wide: int = 0
    loads: int = 0


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
    return found


def walk(lines, loop, turns):
    """The waits of a loop's last turn for loads that no wait before has waited for: [(16-byte loads, loads)] in flight."""
    waits = []
    number = awaited = 0
    start = lines[loop.first].split(":")[0]
    # how many loads the way here asked for, and those under way: number, whether of 16 bytes
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
                state = state[0] + 1, [*state[1], (number, m[1] != "scratch" and m[2].endswith(WIDE))]
            elif m := WAIT.match(line):
                under_way = state[1]
                done = under_way[: max(len(under_way) - int(m[1] or m[2], 0), 0)]
                if done and done[-1][0] > awaited:
                    if turn == turns - 1:
                        waits.append((sum(wide for _, wide in under_way), len(under_way)))
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

    `wide in flight` and `loads in flight` are the 16-byte loads and all loads under way at the wait where they are most;
    `waits` is how often a turn of the loop waits for loads that it has not waited for yet. That loop has most loads of 16
    bytes, where a loop counts double for each one around it; where no loop has any, it is the innermost. Code that loads
    in no loop is taken as a whole, once.
    """
    lines = code.splitlines()
    found = [o for o in loops(lines) if o.loads]
    if found:
        waits = walk(lines, max(found, key=lambda o: (o.wide << o.depth, o.depth, o.loads)), 2)
    else:
        waits = walk(lines, Loop(0, len(lines) - 1), 1)
    if not waits:
        return {}
    wide, loads = max(waits)
    return {"wide in flight": wide, "loads in flight": loads, "waits": len(waits)}
