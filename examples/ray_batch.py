#!/usr/bin/env python3
"""`isobit batch` on many machines, by Ray: a file of requests in, a file of answers out, in the same order.

The file is the one that `isobit batch` makes alone, byte for byte: an answer depends on its request and the model, not
on who computes it. So a shard that is lost with its machine is computed by another, and any answer can be checked
elsewhere. docs/cluster.md has the commands, what a cluster needs, and what was measured.

Workers get requests and give back answers, so nothing is shared but an equal program and an equal model on every node.
The driver alone writes: OUTPUT, and until that is whole OUTPUT.shards, where a file is named by what was asked, by what
was answered, and by the node that did.

Exit: 0 done, 1 an audit found a difference, 2 bad usage or file, 3 no node could do the work, 130 interrupted."""

import argparse
import ctypes
import hashlib
import json
import logging
import math
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
try:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as e:
    sys.exit(print(f"error: {e}: pip install ray==2.60.0", file=sys.stderr) or 2)

TRIES = 5  # of a shard, and deaths in a row of a node's workers
KEEPS = ("ctx-size", "pool", "activations", "ctk", "ctv", "kv-recent")  # flags of isobit batch that may decide an answer
FREE = ("device", "parallel", "threads")  # and those that never do


class Stop(Exception):
    """The end of the program: a line, and the exit code."""

    def __init__(self, line, code=2):
        super().__init__(line)
        self.code = code


def say(line):
    print(line, file=sys.stderr, flush=True)


def isobit(program, options, lines, timeout=None):
    """Runs `isobit batch` on these requests: the answers' lines, the program's version and fingerprint; or the error."""
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    # a worker that is killed takes its isobit along (PR_SET_PDEATHSIG); elsewhere that one ends by itself, unheard
    along = (lambda: libc.prctl(1, signal.SIGKILL)) if libc else None
    # what decides answers and is not in a fingerprint is the driver's to say, not a node's
    env = {k: v for k, v in os.environ.items() if k not in ("ISOBIT_MODEL", "ISOBIT_CTX_SIZE")}
    path = shutil.which(program)
    if not path:
        return {"error": f"no program {program}"}
    try:
        version = subprocess.run([path, "--version"], env=env, capture_output=True, timeout=60).stdout.decode().strip()
        with tempfile.TemporaryDirectory(prefix="isobit-ray-") as folder:
            asked, answered = os.path.join(folder, "requests.jsonl"), os.path.join(folder, "answers.jsonl")
            with open(asked, "wb") as file:
                file.writelines(line + b"\n" for line in lines)
            command = [path, "batch", asked, answered, "--json", *options]
            talk = {"stdin": subprocess.DEVNULL, "capture_output": True}
            ran = subprocess.run(command, env=env, timeout=timeout, preexec_fn=along, **talk)
            if ran.returncode != 0:
                last = ran.stderr.decode(errors="replace").strip().rsplit("\n", 1)[-1]
                return {"error": f"isobit ended with {ran.returncode}: {last.replace(asked, 'requests')}"}
            told = json.loads(ran.stdout)
            with open(answered, "rb") as file:
                data = file.read()
    except subprocess.TimeoutExpired as e:
        return {"error": f"isobit took more than {e.timeout:g} s"}
    except (OSError, ValueError) as e:
        return {"error": f"{type(e).__name__}: {e}"}
    answers = data.splitlines(keepends=True)
    if hashlib.sha256(data).hexdigest() != told.get("sha256") or len(answers) != len(lines):
        return {"error": "the answers are not those that isobit wrote"}
    return {"answers": answers, "version": version, "fingerprint": told.get("fingerprint")}


def hello(program, options):
    """What must be equal on all nodes, from a request for no token: the model is loaded, the device opened."""
    return isobit(program, options, [b'{"custom_id": "", "body": {"prompt": [1], "max_tokens": 0}}'])


class Worker:
    """An actor."""

    def __init__(self, program, options, timeout):
        self.program, self.options, self.timeout = program, options, timeout

    def hello(self):
        o = self.options
        device = o[o.index("--device") + 1] if "--device" in o else os.environ.get("ISOBIT_DEVICE", "auto")
        return {**hello(self.program, o), "pid": os.getpid(), "device": device}

    def answer(self, lines):
        return isobit(self.program, self.options, lines, self.timeout)


class Task:
    """Requests for one worker, on none of the nodes that are barred."""

    def __init__(self, rows, lines, key="", barred=()):
        self.rows, self.lines, self.key, self.barred = rows, lines, key, set(barred)
        self.failed, self.tries = set(), 0

    def __str__(self):
        return f"requests {self.rows[0] + 1} to {self.rows[-1] + 1}"


class Pool:
    """Workers on all nodes: those of nodes that come are added, those that die are replaced."""

    def __init__(self, per_node, arguments, own):
        self.per_node, self.arguments, self.own = per_node, arguments, own
        self.busy, self.idle = {}, []  # reference -> (actor, node, task), and (actor, node)
        self.nodes, self.refused, self.deaths = {}, {}, Counter()
        self.heard = time.monotonic()

    def refresh(self):
        self.nodes = {f"{n['NodeID'][:8]}@{n['NodeManagerHostname']}": n for n in ray.nodes() if n["Alive"]}
        have = Counter(node for _, node, *_ in [*self.busy.values(), *self.idle])
        for name, node in self.nodes.items():
            # the CPU it takes keeps other jobs' actors away; isobit itself uses every core
            most = 0 if name in self.refused else min(self.per_node, int(node["Resources"].get("CPU", 0)))
            for _ in range(most - have[name]):
                where = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                actor = ray.remote(Worker).options(num_cpus=1, scheduling_strategy=where).remote(*self.arguments)
                self.busy[actor.hello.remote()] = (actor, name, None)

    def refuse(self, node, why):
        if node not in self.refused:
            self.refused[node] = why
            say(f"refused: node {node}: {why}")
        for actor, of, *_ in [*self.busy.values(), *self.idle]:
            if of == node:
                ray.kill(actor)
        self.idle = [m for m in self.idle if m[1] != node]

    def next_for(self, node, waiting):
        """What it may do; what has failed there only when it has failed everywhere."""
        rest = {of for _, of, task in self.busy.values() if task} | {of for _, of in self.idle}
        may = (t for t in waiting if node not in t.barred and (node not in t.failed or rest <= t.failed | t.barred))
        return next(may, None)

    def run(self, tasks, deliver):
        """Has all tasks done, in any order; gives back those that no node may do."""
        waiting = deque(tasks)
        while waiting or any(task for _, _, task in self.busy.values()):
            self.refresh()
            for actor, node in self.idle[:]:
                task = self.next_for(node, waiting)
                if task:
                    waiting.remove(task)
                    self.idle.remove((actor, node))
                    self.busy[actor.answer.remote(task.lines)] = (actor, node, task)
            if not self.busy:
                break
            ready, _ = ray.wait(list(self.busy), timeout=2)
            for ref in ready:
                self.settle(ref, waiting, deliver)
            starting = sorted({node for _, node, task in self.busy.values() if not task})
            if ready:
                self.heard = time.monotonic()
            elif starting and time.monotonic() > self.heard + 30:
                self.heard = time.monotonic()
                say(f"waiting for a free CPU, or for the model to load, on {', '.join(starting)}")
        return waiting

    def settle(self, ref, waiting, deliver):
        """Takes a worker's word, or its death."""
        actor, node, task = self.busy.pop(ref)
        try:
            said = ray.get(ref)
            wrong = [w for w in self.own if w in said and said[w] != self.own[w]]
            if wrong:
                said = {"error": "; ".join(f"its {w} is {said[w]}, the driver's is {self.own[w]}" for w in wrong)}
            if wrong or "error" in said and not task:
                self.refuse(node, said["error"])
            else:
                self.idle.append((actor, node))
        except ray.exceptions.RayError as e:
            said = {"error": f"a worker died: {str(e).strip().splitlines()[0]}"}
            ray.kill(actor)
            self.deaths[node] += 1
            if self.deaths[node] >= TRIES:
                self.refuse(node, f"{TRIES} of its workers died")
        if "error" not in said:
            if task:
                self.deaths[node] = 0
                deliver(task, said["answers"], node)
            else:
                say(f"worker: node {node}, process {said['pid']}, device {said['device']}")
        elif task:
            say(f"node {node} failed {task}, to be asked again: {said['error']}")
            task.tries += 1
            task.failed.add(node)
            if task.tries >= TRIES:
                raise Stop(f"{task} failed {TRIES} times, at last on node {node}: {said['error']}", 3)
            waiting.appendleft(task)
        elif node not in self.refused:
            say(f"node {node}: {said['error']}")


def read(path):
    """The requests: their lines, and what people may call them."""
    with open(path, "rb") as file:
        data = file.read()
    lines, names = [], []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            asked = json.loads(line.decode())
        except (ValueError, RecursionError) as e:
            raise Stop(f"{path} line {number}: {e}") from None
        if not isinstance(asked, dict) or not isinstance(asked.get("custom_id"), str) or "body" not in asked:
            raise Stop(f"{path} line {number}: a request is an object with custom_id, a text, and body")
        for key, only in (("method", "POST"), ("url", "/v1/completions")):
            if asked.get(key) not in (None, only):
                raise Stop(f"{path} line {number}: {key} {json.dumps(asked[key])}, {only} expected")
        lines.append(line)
        names.append(f"{path} line {number} (custom_id {json.dumps(asked['custom_id'])})")
    if not lines:
        raise Stop(f"{path} has no requests")
    return lines, names


def write(path, pieces):
    """A file that is there whole or not at all; its SHA-256."""
    digest, part = hashlib.sha256(), f"{path}.{os.getpid()}.tmp"
    with open(part, "wb") as file:
        for piece in pieces:
            digest.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
    return digest.hexdigest()


class Shards:
    """The folder of finished shards: KEY-DIGEST-NODE.jsonl, of which a damaged one does not count."""

    NAME = r"([0-9a-f]{32})-([0-9a-f]{16})-(.+)\.jsonl"

    def __init__(self, folder, resume):
        self.folder, self.files = folder, {}
        for name in sorted(os.listdir(folder) if os.path.isdir(folder) else []):
            parts = re.fullmatch(self.NAME, name)
            if not parts:
                continue
            if not resume:
                raise Stop(f"{folder} has shards of an earlier run: --resume takes them up, or remove it to begin anew")
            key, digest, _ = parts.groups()
            with open(os.path.join(folder, name), "rb") as file:
                whole = hashlib.sha256(file.read()).hexdigest().startswith(digest)
            if not whole:
                say(f"{folder}/{name} is damaged: it is done again")
            elif self.files.setdefault(key, name) != name:
                raise Stop(f"{folder} has two answers to the same: {self.files[key]} and {name}: remove the wrong one", 1)

    def put(self, task, answers, node):
        os.makedirs(self.folder, exist_ok=True)
        data = b"".join(answers)
        self.files[task.key] = f"{task.key}-{hashlib.sha256(data).hexdigest()[:16]}-{node}.jsonl"
        write(os.path.join(self.folder, self.files[task.key]), [data])

    def answers(self, task):
        with open(os.path.join(self.folder, self.files[task.key]), "rb") as file:
            return file.read().splitlines(keepends=True)

    def maker(self, task):
        return re.fullmatch(self.NAME, self.files[task.key])[3]


def audit(rows, size, pool, place, shards, names, arbiter):
    """Recomputes these requests on other nodes than those that answered them: how many, and how many differ."""
    picked, done, differ = {}, [], []
    for row in rows:
        picked.setdefault(shards.maker(place[row][0]), []).append(row)
    pool.refresh()
    parts = []
    for maker, of in picked.items():
        # the node of an earlier cluster may be back under another name, so that all of its host are barred
        host = None if maker in pool.nodes else maker.split("@")[1]
        barred = {maker} | {node for node in pool.nodes if node.split("@")[1] == host}
        for part in (of[i : i + size] for i in range(0, len(of), size)):
            parts.append(Task(part, [place[r][0].lines[place[r][1]] for r in part], barred=barred))

    def compare(part, answers, node):
        done.extend(part.rows)
        for row, second in zip(part.rows, answers):
            task, i = place[row]
            first, maker = shards.answers(task)[i], shards.maker(task)
            if first == second:
                continue
            differ.append(row)
            third = arbiter([task.lines[i]]).get("answers", [None])[0]
            wrong = {first: f"node {node}", second: f"node {maker}"}.get(third, "at least one of them")
            say(f"audit: {names[row]}: nodes {maker} and {node} differ; by this machine's CPU {wrong} is wrong")

    left = sum(len(t.rows) for t in pool.run(parts, compare))
    if left:
        say(f"audit: {left} of {len(rows)} requests NOT recomputed: there is no other node than the one that answered")
    if done:
        say(f"audit: {len(done)} of {len(place)} requests recomputed on another node, {len(differ)} differ")
    return len(done), len(differ)


def work(a):
    started = time.monotonic()
    if a.actors < 1 or a.shard < 1 or not 0 <= a.audit <= 1:
        raise Stop("--actors and --shard are 1 or more, --audit is from 0 to 1")
    lines, names = read(a.input)
    if os.path.exists(a.output):
        raise Stop(f"{a.output} is there already: remove it, or name another file")
    program = os.path.abspath(a.isobit) if os.sep in a.isobit else a.isobit
    flags = {f: getattr(a, f.replace("-", "_")) for f in KEEPS + FREE}
    given = lambda those: [word for f in those if flags[f] for word in (f"--{f}", flags[f])]
    model = ["--model", os.path.abspath(a.model)] if a.model else []
    keeps = given(KEEPS)
    here = [*model, *keeps, "--device", "cpu"]
    own = hello(program, here)
    if "error" in own:
        raise Stop(own["error"])
    del own["answers"]
    shards, tasks = Shards(f"{a.output}.shards", a.resume), []
    for i in range(0, len(lines), a.shard):
        some = lines[i : i + a.shard]
        deciding = [own["version"], own["fingerprint"], keeps, [line.decode() for line in some]]
        key = hashlib.sha256(json.dumps(deciding).encode()).hexdigest()[:32]
        tasks.append(Task(range(i, i + len(some)), some, key))
    todo = list({t.key: t for t in tasks if t.key not in shards.files}.values())
    before = sum(len(t.rows) for t in tasks if t.key in shards.files)
    if before:
        say(f"{before} of {len(lines)} requests were answered before")

    # Ray prints what raylets said last on stdout, which is the result's; its logs have that too
    out, sys.stdout = sys.stdout, open(os.devnull, "w")
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    try:
        host, _, port = (a.address or "").rpartition(":")
        if host and port.isdigit():
            # Ray itself tries for minutes
            socket.create_connection((host, int(port)), 10).close()
        ray.init(address=a.address, **quiet) if a.address else ray.init(address="local", include_dashboard=False, **quiet)
    except Exception as e:  # Ray has no class of its own for this
        raise Stop(f"Ray at {a.address or 'this machine'}: {str(e).strip().splitlines()[0]}", 3) from None
    pool, per_node = Pool(a.actors, (program, model + keeps + given(FREE), a.timeout), own), Counter()
    begun = time.monotonic()

    def deliver(task, answers, node):
        shards.put(task, answers, node)
        per_node[node] += len(answers)
        now = sum(per_node.values())
        rate = now / (time.monotonic() - begun)
        say(f"{before + now} of {len(lines)} requests, {rate:.1f}/s, the last {len(answers)} by node {node}")

    try:
        if pool.run(todo, deliver):
            raise Stop("no node is left that can do the work", 3)
        seconds = time.monotonic() - begun
        place = {row: (task, i) for task in tasks for i, row in enumerate(task.rows)}
        sample = sorted(random.Random(a.audit_seed).sample(range(len(lines)), math.ceil(a.audit * len(lines))))
        done, differ = audit(sample, a.shard, pool, place, shards, names, lambda some: isobit(program, here, some))
        if differ:
            wrong = f"take the wrong NODE out, and remove {shards.folder}/*-NODE.jsonl"
            raise Stop(f"{differ} of {done} audited answers differ, {a.output} is not written: {wrong}", 1)
    except (Stop, KeyboardInterrupt) as e:
        line, code = (str(e), e.code) if isinstance(e, Stop) else ("interrupted", 130)
        kept = f"{len(shards.files)} of {len(tasks)} shards are in {shards.folder}"
        raise Stop(f"{line}; {kept}: the same command with --resume goes on", code) from None
    digest = write(a.output, (line for task in tasks for line in shards.answers(task)))
    shutil.rmtree(shards.folder)
    now = sum(per_node.values())
    whole = time.monotonic() - started
    say(f"{len(lines)} answers, {now} of them now, in {seconds:.1f} s, {now / seconds:.1f}/s; {whole:.1f} s in all")
    say("requests per node: " + (", ".join(f"{node} {n}" for node, n in sorted(per_node.items())) or "none"))
    told = {"output": a.output, "sha256": digest, "answers": len(lines), "resumed": before, "audited": done}
    told.update(own, seconds=seconds, nodes=per_node, refused=pool.refused)
    print(json.dumps(told) if a.json else f"{digest}  {a.output}", file=out)


def main():
    p = argparse.ArgumentParser(description="isobit batch on the nodes of a Ray cluster", allow_abbrev=False)
    p.error = lambda line: sys.exit(say(f"error: {line} (--help lists the flags)") or 2)
    p.add_argument("--input", required=True, metavar="FILE", help="requests, as isobit batch has them")
    p.add_argument("--output", required=True, metavar="FILE", help="answers; made when all are there")
    p.add_argument("--model", default=os.environ.get("ISOBIT_MODEL"), help="at this path on every node [the embedded one]")
    p.add_argument("--isobit", default="isobit", metavar="PROGRAM", help="a path, or a name in each node's PATH [isobit]")
    p.add_argument("--address", help="of a Ray cluster: auto, or HOST:6379 [a new one, of this machine alone]")
    p.add_argument("--actors", type=int, default=1, metavar="N", help="workers a node, at most one a CPU [1]")
    p.add_argument("--shard", type=int, default=256, metavar="N", help="requests a shard; each loads the model [256]")
    p.add_argument("--resume", action="store_true", help="take up the shards that an earlier run has left")
    p.add_argument("--audit", type=float, default=0.01, metavar="X", help="share recomputed elsewhere [0.01]")
    p.add_argument("--audit-seed", type=int, default=0, metavar="N", help="decides which [0]")
    p.add_argument("--timeout", type=float, metavar="S", help="seconds after which a shard goes to another worker [none]")
    p.add_argument("--json", action="store_true", help="print one JSON object instead of the digest's line")
    p.add_argument("--device", metavar="NAME", help="where isobit runs [each node's ISOBIT_DEVICE, else auto]")
    for name in KEEPS + FREE[1:]:
        p.add_argument(f"--{name}", metavar="X", help="as isobit batch has it")
    try:
        work(p.parse_args())
    except Stop as e:
        say(str(e) if e.code == 130 else f"error: {e}")
        return e.code
    except OSError as e:
        say(f"error: {e.filename}: {e.strerror}" if e.filename else f"error: {e}")
        return 2
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    finally:
        ray.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
