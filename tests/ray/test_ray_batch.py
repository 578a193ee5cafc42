#!/usr/bin/env python3
"""examples/ray_batch.py on a cluster in one machine: nodes that die, differ, lie. A line a check; exit 1 when one fails.

    ISOBIT=path/to/isobit python3 tests/ray/test_ray_batch.py

Nodes are Ray's own processes, each with its own environment, as machines have. The embedded model answers.
Without Ray it says SKIPPED and exits with 0. .ci/ray installs Ray and runs this."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import uuid

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
# nobody else may give this cluster work, and no token is left in the home directory
os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=uuid.uuid4().hex)
try:
    import ray
    from ray.cluster_utils import Cluster
except ImportError as e:
    print(f"SKIPPED: {e}")
    sys.exit(0)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BATCH = os.path.join(ROOT, "examples", "ray_batch.py")
ISOBIT = os.path.abspath(os.environ.get("ISOBIT") or os.path.join(ROOT, "target", "release", "isobit"))
REQUESTS, SHARD, LIMIT = 119, 7, 90  # seconds for one run

# counts what it is asked, and takes time enough to be killed in
SLOW = """#!/bin/sh
if [ "$1" = batch ]; then wc -l <"$2" >>"$CALLS"; [ "$(wc -l <"$2")" -eq 1 ] || sleep 0.4; fi
exec "$REAL" "$@"
"""
# one answer with one bit wrong, told as if it were right
LIAR = """#!{python}
import hashlib, json, os, subprocess, sys
ran = subprocess.run([os.environ["REAL"], *sys.argv[1:]], stdout=subprocess.PIPE)
if sys.argv[1] == "batch" and ran.returncode == 0:
    lines = open(sys.argv[3], "rb").read().splitlines(keepends=True)
    for i, line in enumerate(lines):
        answer = json.loads(line)
        if answer["custom_id"] == "r017":
            choice = answer["response"]["body"]["choices"][0]
            choice["ids"][5] ^= 1
            lines[i] = json.dumps(answer, separators=(",", ":"), ensure_ascii=False, sort_keys=True).encode() + b"\\n"
    open(sys.argv[3], "wb").write(b"".join(lines))
    told = dict(json.loads(ran.stdout), sha256=hashlib.sha256(b"".join(lines)).hexdigest())
    ran.stdout = json.dumps(told).encode()
sys.stdout.buffer.write(ran.stdout)
sys.exit(ran.returncode)
"""

failed = []


def check(name, good, seen=""):
    print(f"{'ok    ' if good else 'FAILED'}  {name}", flush=True)
    if not good:
        failed.append(name)
        print("        " + str(seen).strip().replace("\n", "\n        "), flush=True)


class Run:
    """A run of the program under test."""

    def __init__(self, where, *words):
        self.output, self.start = os.path.join(where, "out.jsonl"), time.monotonic()
        whole = [sys.executable, BATCH, "--input", os.path.join(where, "in.jsonl"), "--output", self.output]
        whole += ["--shard", str(SHARD), *words]
        self.lines = []
        self.process = subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        # stderr is this thread's alone
        talk, self.process.stderr = self.process.stderr, None
        self.reader = threading.Thread(target=lambda: self.lines.extend(talk), daemon=True)
        self.reader.start()

    def saw(self, pattern, times=1):
        """Waits for such a line, and for as many."""
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            over = self.process.poll() is not None
            found = [m for m in (re.search(pattern, line) for line in list(self.lines)) if m]
            if len(found) >= times:
                return found[times - 1]
            if over:
                break
            time.sleep(0.01)
        raise AssertionError(f"no line {pattern!r}:\n{self.said()}")

    def said(self):
        return "".join(self.lines)

    def end(self):
        try:
            self.out, _ = self.process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.out = f"killed after {LIMIT} s"
        self.reader.join(5)
        self.code, self.seconds = self.process.returncode, time.monotonic() - self.start
        self.told = json.loads(self.out) if self.out.startswith("{") else {}
        return self


def main():
    if not os.access(ISOBIT, os.X_OK):
        sys.exit(f"no program {ISOBIT}: build it, or name one with ISOBIT")
    home = tempfile.mkdtemp(prefix="isobit-ray-test-")
    for name, text in (("slow", SLOW), ("liar", LIAR.replace("{python}", sys.executable))):
        os.mkdir(os.path.join(home, name))
        program = os.path.join(home, name, "isobit")
        with open(program, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(program, stat.S_IRWXU)
    calls = os.path.join(home, "calls")

    def environment(program="slow", **more):
        path = os.path.join(home, program) + os.pathsep + os.environ["PATH"]
        return {"PATH": path, "REAL": ISOBIT, "CALLS": calls, **more}

    # the driver's, and that of a node which it starts itself
    os.environ.update(environment())
    for unset in ("ISOBIT_MODEL", "ISOBIT_DEVICE", "ISOBIT_ACTIVATIONS"):
        os.environ.pop(unset, None)
    starts = ["Once upon a time", "The king said", "A small dog", "In the dark forest", "Lily had a red ball"]
    with open(os.path.join(home, "in.jsonl"), "w", encoding="utf-8") as file:
        for i in range(REQUESTS):
            body = {"prompt": f"{starts[i % 5]} {i}", "max_tokens": 48, "temperature": 0.8, "seed": i}
            # one is refused, by each worker in the same words
            body.update({"max_tokens": -1} if i == 40 else {})
            print(json.dumps({"custom_id": f"r{i:03}", "body": body}), file=file)
            # not counted as a request
            print(file=file, end="\n" if i == 50 else "")

    alone = os.path.join(home, "alone.jsonl")
    command = [ISOBIT, "batch", os.path.join(home, "in.jsonl"), alone]
    want = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=True).stdout.split(" ")[0]
    print(f"isobit batch without Ray: {REQUESTS} requests, sha256 {want}")
    with open(alone, "rb") as file:
        expected = file.read()

    def computed():
        """Requests that workers were asked, without those that only say hello."""
        with open(calls, encoding="utf-8") as file:
            return sum(int(n) for n in file if int(n) > 1)

    def go(*words, keep=False):
        open(calls, "w").close()
        if not keep:
            output = os.path.join(home, "out.jsonl")
            subprocess.run(["rm", "-rf", output, output + ".shards"], check=True)
        return Run(home, "--json", *words)

    def same(name, run, more=lambda: True):
        """The file is the one made without Ray, and there is nothing beside it."""
        run.end()
        data = b""
        if run.code == 0:
            with open(run.output, "rb") as file:
                data = file.read()
        good = data == expected and run.told.get("sha256") == want and not os.path.exists(run.output + ".shards")
        nodes = ", ".join(f"{n} {c}" for n, c in run.told.get("nodes", {}).items())
        times = f"{run.seconds:.1f} s in all, {run.told.get('seconds', 0):.1f} s at work"
        check(f"{name} ({times}; {nodes}; {computed()} requests computed)", good and more(), f"exit {run.code}\n{run.out}\n{run.said()}")

    # bad usage, bad files, no cluster: one line, no Ray started
    bad = os.path.join(home, "bad.jsonl")
    with open(bad, "w", encoding="utf-8") as file:
        file.write('{"custom_id": "a", "body": {"prompt": "x"}}\n{"custom_id": 7, "body": {}}\n')
    for words, wanted in (
        (["--input", os.path.join(home, "none.jsonl")], "none.jsonl: No such file"),
        (["--input", bad], "bad.jsonl line 2: a request is an object with custom_id"),
        (["--output", alone], "alone.jsonl is there already"),
        (["--model", os.path.join(home, "none.gguf")], "none.gguf"),
        (["--isobit", os.path.join(home, "none")], "no program"),
        (["--audit", "2"], "--audit"),
        (["--address", "127.0.0.1:1"], "Ray at 127.0.0.1:1"),
        (["--activations", "9"], "--activations"),
    ):
        run = go(*words).end()
        good = run.code == (3 if "--address" in words else 2) and wanted in run.said() and len(run.lines) == 1
        check(f"one line and exit {run.code}: {run.said().strip().replace(home, '...')}", good, f"exit {run.code}\n{run.said()}")

    run = go("--actors", "2")
    same("a cluster of its own, one node", run, lambda: "NOT recomputed: there is no other node" in run.said())

    start = time.monotonic()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = {}

    def add(name, **env):
        nodes[name] = cluster.add_node(num_cpus=1, env_vars=environment(**env))

    def remove(name):
        cluster.remove_node(nodes.pop(name), allow_graceful=False)

    def named(name):
        return nodes[name].node_id[:8]

    def rows(run, name):
        return sum(c for n, c in run.told.get("nodes", {}).items() if n.startswith(named(name)))

    try:
        add("best")
        print(f"        a head and a node: {time.monotonic() - start:.1f} s")
        at = ("--address", cluster.address)
        same("one node", go(*at))
        add("portable", ISOBIT_DEVICE="cpu:portable")
        run = go(*at, "--device", "cpu")
        same("two nodes, --device cpu for both", run, lambda: rows(run, "best") and rows(run, "portable"))
        run = go(*at, "--audit", "1")
        same(
            "two nodes, one at its best level, one at cpu:portable, audit of all",
            run,
            lambda: rows(run, "best")
            and rows(run, "portable")
            and re.search(rf"{named('portable')}@.*device cpu:portable", run.said())
            and run.told["audited"] == REQUESTS
            and computed() == 2 * REQUESTS,
        )

        run = go(*at, "--audit", "0")
        worker = int(run.saw(rf"worker: node {named('best')}@.*, process (\d+)")[1])
        run.saw(rf"by node {named('best')}", 2)
        time.sleep(0.2)  # it has its next shard by now
        os.kill(worker, signal.SIGKILL)
        lost = rf"node {named('best')}@.* failed requests"
        same("a worker killed (SIGKILL)", run, lambda: computed() > REQUESTS and re.search(lost, run.said()))

        run = go(*at, "--audit", "0", "--shard", "3")
        run.saw("of 119 requests", 1)
        add("gone")
        run.saw(rf"by node {named('gone')}", 2)
        time.sleep(0.2)
        lost = rf"node {named('gone')}@.* failed requests"
        remove("gone")
        same("a node added, and removed while at work", run, lambda: computed() > REQUESTS and re.search(lost, run.said()))

        run = go(*at, "--audit", "0")
        run.saw("of 119 requests", 6)
        run.process.kill()
        run.end()
        shards = run.output + ".shards"
        kept = {n: os.stat(os.path.join(shards, n)).st_mtime_ns for n in os.listdir(shards) if n.endswith(".jsonl")}
        run = go(*at, keep=True).end()
        good = run.code == 2 and "--resume takes them up" in run.said()
        check("the driver killed (SIGKILL); without --resume its shards are not touched", good, run.said())
        hurt = sorted(kept)[0]
        with open(os.path.join(shards, hurt), "r+b") as file:
            file.seek(100)
            byte = file.read(1)
            file.seek(100)
            file.write(bytes([byte[0] ^ 1]))
        run = go(*at, "--audit", "0", "--resume", keep=True)
        left = REQUESTS - SHARD * (len(kept) - 1)
        same(
            f"resumed with {len(kept)} shards, one of them damaged: {left} requests left",
            run,
            lambda: 0 < left < REQUESTS
            and computed() == left
            and run.told["resumed"] == REQUESTS - left
            and f"{hurt} is damaged" in run.said(),
        )

        run = go(*at)
        run.saw("of 119 requests", 4)
        run.process.send_signal(signal.SIGINT)
        run.end()
        good = run.code == 130 and re.search(r"^interrupted; \d+ of 17 shards are in .*--resume goes on$", run.lines[-1])
        check(f"Ctrl-C: {run.lines[-1].strip().replace(home, '...')}", good and "Traceback" not in run.said(), run.said())
        run = go(*at, "--resume", "--audit", "0", keep=True)
        same("resumed after it", run, lambda: computed() == REQUESTS - run.told["resumed"] < REQUESTS)

        add("other", ISOBIT_ACTIVATIONS="16")
        run = go(*at)
        told = rf"refused: node {named('other')}@.* fingerprint is \S+:a16:\S+, the driver's is \S+:a8:"
        same(
            "a node with another fingerprint is refused, the others do the work",
            run,
            lambda: re.search(told, run.said()) and not rows(run, "other"),
        )
        print("".join(f"        {line}" for line in run.lines if line.startswith("refused")), end="")
        for name in ("best", "portable"):
            remove(name)
        run = go(*at).end()
        good = run.code == 3 and "no node is left" in run.lines[-1]
        check("no node is left but the refused one: exit 3", good, run.said())
        remove("other")

        add("honest")
        add("liar", program="liar")
        run = go(*at, "--audit", "1").end()
        named_row = r"audit: .*in.jsonl line 18 \(custom_id \"r017\"\): nodes .* differ; .* node (\w+)@.* is wrong"
        told = re.search(named_row, run.said())
        good = run.code == 1 and told and told[1] == named("liar") and not os.path.exists(run.output)
        check("a wrong bit: the audit names the request and the node, exit 1, no file", good, run.said())
        for line in [l for l in run.lines if "audit:" in l or "error:" in l]:
            print("        " + line.strip().replace(home, "..."))
        for name in os.listdir(shards := run.output + ".shards"):
            if f"-{named('liar')}@" in name:
                os.remove(os.path.join(shards, name))
        remove("liar")
        same("without the liar's shards and the liar", go(*at, "--resume", keep=True))
    finally:
        cluster.shutdown()
        subprocess.run(["rm", "-rf", home], check=False)
    print(f"{len(failed)} checks failed" if failed else "all checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
