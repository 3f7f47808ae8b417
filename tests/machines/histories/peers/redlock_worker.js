// A worker with npm's redlock: STYLE URL,URL... KEY HISTORY NAME TTL_MS, until its input ends.
//
// STYLE is `lock` (4.2.0: lock, work, unlock) or `using` (5.0.0-beta.2: extended by itself, and the
// work looks at the signal before each step, as its documentation shows).
const fs = require("fs");
const Redis = require("ioredis");

const STEPS = 3;
const STEP = 20;
const [style, urls, key, history, name, ttlText] = process.argv.slice(2);
const ttl = Number(ttlText);
const out = fs.openSync(history, "a");

const now = () => process.hrtime.bigint();

function note(kind, f, value = {}, error, at = now()) {
  const entry = { type: kind, f, value: { key, ...value }, process: name, time: 0 };
  if (error) entry.error = String(error.message ?? error);
  // A bigint is no JSON number, but its text is one.
  const line = JSON.stringify(entry).replace('"time":0', `"time":${at}`);
  fs.writeSync(out, line.replace(/"(\d+)n"/g, "$1") + "\n");
}

function granted() {
  const at = now();
  note("ok", "acquire", { until: `${at + BigInt(ttl) * 1000000n}n` }, undefined, at);
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const clients = urls.split(",").map((url) => {
  const client = new Redis(url, { commandTimeout: 1000 });
  client.on("error", () => {});
  return client;
});

const settings = { retryCount: -1, retryDelay: 20, retryJitter: 20 };

async function withLock(redlock) {
  note("invoke", "acquire");
  let lock;
  try {
    lock = await redlock.lock(key, ttl);
  } catch (error) {
    note("info", "acquire", {}, error);
    return pause(50);
  }
  granted();
  for (let step = 0; step < STEPS; step++) {
    await pause(STEP);
    note("ok", "use");
  }
  note("invoke", "release");
  try {
    await lock.unlock();
    note("ok", "release");
  } catch (error) {
    note("info", "release", {}, error);
  }
}

async function withUsing(redlock) {
  let held = false;
  note("invoke", "acquire");
  try {
    await redlock.using([key], ttl, async (signal) => {
      held = true;
      granted();
      for (let step = 0; step < STEPS; step++) {
        await pause(STEP);
        if (signal.aborted) {
          // Noted here, because `using` releases the lock before it throws.
          note("info", "release", {}, signal.error);
          throw signal.error;
        }
        note("ok", "use");
      }
      note("invoke", "release");
    });
    note("ok", "release");
  } catch (error) {
    note("info", held ? "release" : "acquire", {}, error);
    if (!held) await pause(50);
  }
}

let ended = false;
process.stdin.resume();
process.stdin.on("end", () => (ended = true));

(async () => {
  const Redlock = style === "using" ? require("redlock5").default : require("redlock");
  const redlock = new Redlock(clients, settings);
  redlock.on(style === "using" ? "error" : "clientError", () => {});
  while (!ended) await (style === "using" ? withUsing(redlock) : withLock(redlock));
  process.exit(0);
})();
