// graphile-worker as a contestant of `cargo xtask bench work`.
//
// `node graphile.mjs migrate URL | submit URL JOBS BATCH | work URL batched|unbatched`; see
// `bench/src/work/process.rs` for what is said between the bench and a contestant.

import { once } from "node:events";
import { Logger, makeWorkerUtils, run } from "graphile-worker";

// A line for every job would be measured too.
const logger = new Logger(() => () => {});

// The settings of its own page on performance.
const concurrency = { concurrentJobs: 24, maxPoolSize: 25 };
const batching = { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };

async function migrate(connectionString) {
  const utils = await makeWorkerUtils({ connectionString, logger });
  await utils.migrate();
  await utils.release();
}

async function submit(connectionString, jobs, batch) {
  const utils = await makeWorkerUtils({ connectionString, logger });
  const specs = Array.from({ length: Number(batch) }, () => ({ identifier: "nothing", payload: {} }));
  await utils.withPgClient((client) => client.query("select 1"));
  await go();
  for (let left = Number(jobs); left > 0; left -= specs.length) {
    await utils.addJobs(left < specs.length ? specs.slice(0, left) : specs);
  }
  process.exit(0);
}

async function work(connectionString, mode) {
  const worker = { connectionString, logger, ...concurrency, ...(mode === "batched" ? batching : {}) };
  await go();
  const runner = await run({ preset: { worker }, taskList: { nothing: () => {} } });
  await runner.promise;
}

// Says that everything is set up, and waits for the word.
async function go() {
  console.log("ready");
  await once(process.stdin, "data");
}

const [what, ...rest] = process.argv.slice(2);
await { migrate, submit, work }[what](...rest);
