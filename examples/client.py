"""Durable calls, signals and a lock from Python, with nothing but its standard library.

    holdoff serve &
    python3 examples/client.py [http://127.0.0.1:7070]

HOLDOFF_API_TOKEN is sent if it is set. Whatever the daemon asks to be repeated is repeated when it asks for it.
"""

import json
import os
import random
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid

BASE = sys.argv[1].rstrip("/") if len(sys.argv) > 1 else "http://127.0.0.1:7070"
TRIES = 6


def ask(method, path, body=None):
    """One call; repeated if that may help. Every call made here may be repeated."""
    headers = {"content-type": "application/json"}
    if token := os.environ.get("HOLDOFF_API_TOKEN"):
        headers["authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    for attempt in range(1, TRIES + 1):
        request = urllib.request.Request(BASE + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=40) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            problem = json.load(refused)
            if refused.code not in (429, 502, 503, 504) or attempt == TRIES:
                raise SystemExit(f"{problem['title']}: {problem['detail']}") from None
            wait = float(refused.headers.get("retry-after") or 0)
        except OSError as error:
            if attempt == TRIES:
                raise SystemExit(f"the daemon does not answer: {error}") from None
            wait = 0
        # Never sooner than asked for, and never all at once.
        time.sleep(max(wait, 0) + random.uniform(0, min(10, 0.1 * 2**attempt)))


def submit(task):
    """Sends a task. It has a key, so that a repeated call does not make two of it."""
    return ask("POST", "/v1/tasks", {"dedup": str(uuid.uuid4()), **task})


def wait(task):
    """Waits until a task is over."""
    pause = 0.02
    while (seen := ask("GET", f"/v1/tasks/{task}"))["state"] == "running":
        time.sleep(pause * random.uniform(0.5, 1.5))
        pause = min(2, pause * 1.5)
    return seen


class Lock:
    """with Lock("deploy") as token: …  Renewed at every third of its lease; `lost` is set if that fails."""

    def __init__(self, key, lease=30, wait=20):
        self.key, self.lease, self.wait = key, lease, wait
        self.lost, self.done = threading.Event(), threading.Event()

    def __enter__(self):
        wanted = {"key": self.key, "lease": f"{self.lease}s", "wait": f"{self.wait}s"}
        granted = ask("POST", "/v1/locks/acquire", wanted)
        self.proof = {name: granted[name] for name in ("namespace", "key", "token", "lock")}
        threading.Thread(target=self.renew, daemon=True).start()
        return granted["token"]

    def renew(self):
        while not self.done.wait(self.lease / 3):
            try:
                ask("POST", "/v1/locks/renew", {**self.proof, "lease": f"{self.lease}s"})
            except SystemExit:
                return self.lost.set()

    def __exit__(self, *_):
        self.done.set()
        ask("POST", "/v1/locks/release", self.proof)


if __name__ == "__main__":
    # The daemon calls itself here; in earnest this is your service.
    call = {"operation": "example.call", "http": {"method": "GET", "url": f"{BASE}/healthz"}}
    taken = submit(call)
    over = wait(taken["id"])
    print("task", over["state"], over["steps"][0]["output"]["status"])

    again = [submit({**call, "dedup": f"python {taken['id']}"}) for _ in range(2)]
    print("sent twice under one key:", "one task" if again[0]["id"] == again[1]["id"] else "two tasks")

    alarm = {"fingerprint": f"python {taken['id']}", "task": {"operation": "example.alarm", "payload": {"disk": "full"}}}
    signals = [ask("POST", "/v1/signals", alarm) for _ in range(3)]
    print("signals:", signals[-1]["occurrences"], "of one task" if len({s["task"] for s in signals}) == 1 else "of several")

    lock = Lock(f"python {taken['id']}")
    with lock as first:
        pass
    with Lock(lock.key) as second:
        print("lock: tokens grow" if second > first else "lock: tokens do not grow")
