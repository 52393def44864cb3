// Durable calls, signals and a lock from JavaScript, with Node's fetch only.
//
//     holdoff serve &
//     node examples/client.mjs [http://127.0.0.1:7070]
//
// The client sends HOLDOFF_API_TOKEN if it is set. It retries 429, 502, 503 and 504, not before Retry-After.

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

const BASE = (process.argv[2] ?? "http://127.0.0.1:7070").replace(/\/$/, "");
const ATTEMPTS = 6;

/** Sends a request, with retries. Every request of this example is safe to repeat. */
async function callApi(method, path, body) {
  const headers = { "content-type": "application/json" };
  const token = process.env.HOLDOFF_API_TOKEN;
  if (token) headers.authorization = `Bearer ${token}`;
  for (let attempt = 1; ; attempt++) {
    let wait = 0;
    try {
      const payload = body === undefined ? undefined : JSON.stringify(body);
      const answer = await fetch(BASE + path, { method, headers, body: payload, signal: AbortSignal.timeout(40_000) });
      const reply = await answer.json();
      if (answer.ok) return reply;
      const problem = new Error(`${reply.title}: ${reply.detail}`);
      if (![429, 502, 503, 504].includes(answer.status)) throw Object.assign(problem, { isFinal: true });
      if (attempt === ATTEMPTS) throw Object.assign(problem, { isFinal: true });
      wait = Number(answer.headers.get("retry-after") ?? 0) * 1000;
    } catch (error) {
      if (error.isFinal || attempt === ATTEMPTS) throw error;
    }
    // Never sooner than asked for, and never all at once.
    await sleep(wait + Math.random() * Math.min(10_000, 100 * 2 ** attempt));
  }
}

/** Submits a task. Its dedup key prevents a second task if the request is repeated. */
const submit = (task) => callApi("POST", "/v1/tasks", { dedup: randomUUID(), ...task });

/** Waits until a task has ended, and returns it with its outputs. */
async function waitFor(task) {
  for (let pause = 20; ; pause = Math.min(2000, pause * 1.5)) {
    const { state } = await callApi("GET", `/v1/tasks/${task}`);
    if (state !== "running") return callApi("GET", `/v1/tasks/${task}?payloads=true`);
    await sleep(pause * (0.5 + Math.random()));
  }
}

/** Runs a function under a lock, renewed at every third of its lease. The signal is aborted if the lock is lost. */
async function locked(key, work, { lease = 30, wait = 20 } = {}) {
  const request = { key, lease: `${lease}s`, wait: `${wait}s` };
  const { namespace, token, lock } = await callApi("POST", "/v1/locks/acquire", request);
  const proof = { namespace, key, token, lock };
  const lost = new AbortController();
  const renew = () => callApi("POST", "/v1/locks/renew", { ...proof, lease: `${lease}s` }).catch(() => lost.abort());
  const renewing = setInterval(renew, (lease * 1000) / 3);
  try {
    return await work(token, lost.signal);
  } finally {
    clearInterval(renewing);
    await callApi("POST", "/v1/locks/release", proof);
  }
}

// The daemon calls itself here; use the URL of your service.
const call = { operation: "example.call", http: { method: "GET", url: `${BASE}/healthz` } };
const task = await submit(call);
const done = await waitFor(task.id);
console.log("task", done.state, done.steps[0].output.status);

const dedup = `javascript ${task.id}`;
const again = [await submit({ ...call, dedup }), await submit({ ...call, dedup })];
console.log("sent twice under one key:", again[0].id === again[1].id ? "one task" : "two tasks");

const alarm = { fingerprint: dedup, task: { operation: "example.alarm", payload: { disk: "full" } } };
const signals = [];
for (let count = 0; count < 3; count++) signals.push(await callApi("POST", "/v1/signals", alarm));
const tasks = new Set(signals.map((signal) => signal.task));
console.log("signals:", signals.at(-1).occurrences, tasks.size === 1 ? "of one task" : "of several");

const first = await locked(dedup, async (token) => token);
const second = await locked(dedup, async (token) => token);
console.log(BigInt(second) > BigInt(first) ? "lock: tokens grow" : "lock: tokens do not grow");
