"""Durable calls, signals and a lock from Python, with the standard library only.

    holdoff serve &
    python3 examples/client.py [http://127.0.0.1:7070]

The client sends HOLDOFF_API_TOKEN if it is set. It retries 429, 502, 503 and 504, not before Retry-After.
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
ATTEMPTS = 6


def call_api(method, path, body=None):
    """Sends a request, with retries. Every request of this example is safe to repeat."""
    headers = {"content-type": "application/json"}
    if token := os.environ.get("HOLDOFF_API_TOKEN"):
        headers["authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    for attempt in range(1, ATTEMPTS + 1):
        request = urllib.request.Request(BASE + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=40) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            problem = json.load(refused)
            if refused.code not in (429, 502, 503, 504) or attempt == ATTEMPTS:
                raise SystemExit(f"{problem['title']}: {problem['detail']}") from None
            wait = float(refused.headers.get("retry-after") or 0)
        except OSError as error:
            if attempt == ATTEMPTS:
                raise SystemExit(f"the daemon did not answer: {error}") from None
            wait = 0
        # Not before Retry-After, and with jitter.
        time.sleep(max(wait, 0) + random.uniform(0, min(10, 0.1 * 2**attempt)))


def submit(task):
    """Submits a task. Its dedup key prevents a second task if the request is repeated."""
    return call_api("POST", "/v1/tasks", {"dedup": str(uuid.uuid4()), **task})


def wait(task):
    """Waits until a task has ended, and returns it with its outputs."""
    pause = 0.02
    while call_api("GET", f"/v1/tasks/{task}")["state"] == "running":
        time.sleep(pause * random.uniform(0.5, 1.5))
        pause = min(2, pause * 1.5)
    return call_api("GET", f"/v1/tasks/{task}?payloads=true")


class Lock:
    """with Lock("deploy") as token: …  Renewed at every third of its lease; `lost` is set if that fails."""

    def __init__(self, key, lease=30, wait=20):
        self.key, self.lease, self.wait = key, lease, wait
        self.lost, self.done = threading.Event(), threading.Event()

    def __enter__(self):
        request = {"key": self.key, "lease": f"{self.lease}s", "wait": f"{self.wait}s"}
        granted = call_api("POST", "/v1/locks/acquire", request)
        self.proof = {name: granted[name] for name in ("namespace", "key", "token", "lock")}
        threading.Thread(target=self.renew, daemon=True).start()
        return granted["token"]

    def renew(self):
        while not self.done.wait(self.lease / 3):
            try:
                call_api("POST", "/v1/locks/renew", {**self.proof, "lease": f"{self.lease}s"})
            except SystemExit:
                return self.lost.set()

    def __exit__(self, *_):
        self.done.set()
        call_api("POST", "/v1/locks/release", self.proof)


if __name__ == "__main__":
    # The daemon calls itself here; use the URL of your service.
    call = {"operation": "example.call", "http": {"method": "GET", "url": f"{BASE}/healthz"}}
    task = submit(call)
    ended = wait(task["id"])
    print("task", ended["state"], ended["steps"][0]["output"]["status"])

    again = [submit({**call, "dedup": f"python {task['id']}"}) for _ in range(2)]
    print("sent twice under one key:", "one task" if again[0]["id"] == again[1]["id"] else "two tasks")

    alarm = {"fingerprint": f"python {task['id']}", "task": {"operation": "example.alarm", "payload": {"disk": "full"}}}
    signals = [call_api("POST", "/v1/signals", alarm) for _ in range(3)]
    print("signals:", signals[-1]["occurrences"], "of one task" if len({s["task"] for s in signals}) == 1 else "of several")

    lock = Lock(f"python {task['id']}")
    with lock as first:
        pass
    with Lock(lock.key) as second:
        print("lock: tokens grow" if int(second) > int(first) else "lock: tokens do not grow")
