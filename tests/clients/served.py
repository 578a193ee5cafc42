"""A server of the program under test, for the scripts beside this one: started, watched, asked, ended."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

PROGRAM = os.environ.get("ISOBIT", "target/release/isobit")


class Server:
    """A running server. `chat` gives the embedded story model a template, which it has none of itself."""

    def __init__(self, *flags, chat=True, port=0, env=None):
        self.log = tempfile.NamedTemporaryFile("w+", prefix="isobit-serve-", suffix=".log", delete=False)
        flags = (*(["--chat-template", "chatml"] if chat else []), *flags)
        self.command = [PROGRAM, "serve", *flags, "--port", str(port)]
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=self.log, env={**os.environ, **(env or {})})
        self.url = self._until(lambda text: re.search(r"listening on (http://\S+)", text), 60).group(1)
        self.host, self.port = self.url.removeprefix("http://").split(":")
        self.port = int(self.port)
        self._until(self._healthy, 300)

    def _until(self, found, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if hit := found(self.stderr()):
                return hit
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(f"{self.command}: {self.process.poll()}\n{self.stderr()}")

    def _healthy(self, _):
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(self.url + "/health", timeout=5).status == 200

    def stderr(self):
        with open(self.log.name, errors="replace") as f:
            return f.read()

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return answer.read()

    def metrics(self):
        lines = [line.rsplit(" ", 1) for line in self.get("/metrics").decode().splitlines() if line[0] != "#"]
        return {name: float(value) for name, value in lines}

    def texts(self):
        return json.loads(self.get("/isobit/status"))["texts"]

    def rss(self):
        """MiB in memory now."""
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1)) / 1024

    def peak(self):
        """MiB in memory at most, since the last `forget_peak`."""
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(re.search(r"VmHWM:\s+(\d+)", f.read()).group(1)) / 1024

    def forget_peak(self):
        with open(f"/proc/{self.process.pid}/clear_refs", "w") as f:
            f.write("5")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def end(self, how=signal.SIGTERM, seconds=15):
        """Asks it to end; its exit code and the seconds it took."""
        begun = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            code = None
        return code, time.monotonic() - begun

    def panicked(self):
        return [line for line in self.stderr().splitlines() if "panicked" in line or "RUST_BACKTRACE" in line]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
        self.log.close()
        os.unlink(self.log.name)


class Checks:
    """What was looked at, and what was not as it should be."""

    def __init__(self):
        self.failed = []
        self.only = sys.argv[1] if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else ""

    def run(self, name, what, *given):
        """Calls `what`; its exception is the failure of this check alone."""
        if self.only not in name:
            return
        begun = time.monotonic()
        try:
            said = what(*given)
        except Exception as e:  # the next check may say more
            import traceback
            self.failed.append(name)
            lines = "".join(traceback.format_exception(e)).rstrip().splitlines()
            print(f"FAILED  {name}", *("        " + line[:300] for line in lines[-12:]), sep="\n", flush=True)
            return
        print(f"ok      {name} ({time.monotonic() - begun:.1f} s)" + (f": {said}" if said else ""), flush=True)

    def end(self):
        print(f"{len(self.failed)} failed" + (": " + ", ".join(self.failed) if self.failed else ""))
        sys.exit(1 if self.failed else 0)


def equal(found, wanted, what=""):
    assert found == wanted, f"{what}: {found!r} is not {wanted!r}"
