// Durable calls, signals and a lock from JavaScript, with nothing but Node's own fetch.
//
//     holdoff serve &
//     node examples/client.mjs [http://127.0.0.1:7070]
//
// HOLDOFF_API_TOKEN is sent if it is set. Whatever the daemon asks to be repeated is repeated when it asks for it.

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

const BASE = (process.argv[2] ?? "http://127.0.0.1:7070").replace(/\/$/, "");
const TRIES = 6;

/** One call; repeated if that may help. Every call made here may be repeated. */
async function ask(method, path, body) {
  const headers = { "content-type": "application/json" };
  const token = process.env.HOLDOFF_API_TOKEN;
  if (token) headers.authorization = `Bearer ${token}`;
  for (let attempt = 1; ; attempt++) {
    let wait = 0;
    try {
      const sent = body === undefined ? undefined : JSON.stringify(body);
      const answer = await fetch(BASE + path, { method, headers, body: sent, signal: AbortSignal.timeout(40_000) });
      const said = await answer.json();
      if (answer.ok) return said;
      const problem = new Error(`${said.title}: ${said.detail}`);
      if (![429, 502, 503, 504].includes(answer.status)) throw Object.assign(problem, { isFinal: true });
      if (attempt === TRIES) throw Object.assign(problem, { isFinal: true });
      wait = Number(answer.headers.get("retry-after") ?? 0) * 1000;
    } catch (error) {
      if (error.isFinal || attempt === TRIES) throw error;
    }
    // Never sooner than asked for, and never all at once.
    await sleep(wait + Math.random() * Math.min(10_000, 100 * 2 ** attempt));
  }
}

/** Sends a task. It has a key, so that a repeated call does not make two of it. */
const submit = (task) => ask("POST", "/v1/tasks", { dedup: randomUUID(), ...task });

/** Waits until a task is over. */
async function over(task) {
  for (let pause = 20; ; pause = Math.min(2000, pause * 1.5)) {
    const seen = await ask("GET", `/v1/tasks/${task}`);
    if (seen.state !== "running") return seen;
    await sleep(pause * (0.5 + Math.random()));
  }
}

/** Runs something under a lock, renewed at every third of its lease. The signal is aborted if the lock is lost. */
async function locked(key, work, { lease = 30, wait = 20 } = {}) {
  const wanted = { key, lease: `${lease}s`, wait: `${wait}s` };
  const { namespace, token, lock } = await ask("POST", "/v1/locks/acquire", wanted);
  const proof = { namespace, key, token, lock };
  const lost = new AbortController();
  const renew = () => ask("POST", "/v1/locks/renew", { ...proof, lease: `${lease}s` }).catch(() => lost.abort());
  const renewing = setInterval(renew, (lease * 1000) / 3);
  try {
    return await work(token, lost.signal);
  } finally {
    clearInterval(renewing);
    await ask("POST", "/v1/locks/release", proof);
  }
}

// The daemon calls itself here; in earnest this is your service.
const call = { operation: "example.call", http: { method: "GET", url: `${BASE}/healthz` } };
const taken = await submit(call);
const done = await over(taken.id);
console.log("task", done.state, done.steps[0].output.status);

const dedup = `javascript ${taken.id}`;
const again = [await submit({ ...call, dedup }), await submit({ ...call, dedup })];
console.log("sent twice under one key:", again[0].id === again[1].id ? "one task" : "two tasks");

const alarm = { fingerprint: dedup, task: { operation: "example.alarm", payload: { disk: "full" } } };
const signals = [];
for (let count = 0; count < 3; count++) signals.push(await ask("POST", "/v1/signals", alarm));
const tasks = new Set(signals.map((signal) => signal.task));
console.log("signals:", signals.at(-1).occurrences, tasks.size === 1 ? "of one task" : "of several");

const first = await locked(dedup, async (token) => token);
const second = await locked(dedup, async (token) => token);
console.log(second > first ? "lock: tokens grow" : "lock: tokens do not grow");
