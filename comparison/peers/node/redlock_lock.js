// redlock: on one server or several, through ioredis. Waits by trying again.
//
// Its defaults stay: a pause of 200 ms, give or take 100, between tries, and a hundredth of the ttl for the
// drift of clocks. By default it gives up after 10 retries; here it waits as long as it takes (−1). It does
// not renew.
'use strict';

const Redis = require('ioredis');

// One connected client for each server.
async function connect(urls) {
  const clients = urls.map((url) => new Redis(url, { lazyConnect: true }));
  for (const client of clients) {
    // Without a listener every lost connection would be printed with its stack.
    client.on('error', (error) => console.error(error.message));
    await client.connect();
  }
  return clients;
}

// Nothing, if all that `tried` failed by was that others hold.
const orNothing = (tried, isTaken) => tried.catch((error) => (isTaken(error) ? null : Promise.reject(error)));

// Version 4, which npm calls the latest.
class NodeRedlock {
  version = require('redlock/package.json').version;

  constructor(urls) {
    this.urls = urls;
  }

  async open(ttlMs) {
    const Redlock = require('redlock');
    const clients = await connect(this.urls);
    const [patient, hasty] = [-1, 0].map((retryCount) => {
      const redlock = new Redlock(clients, { retryCount });
      redlock.on('clientError', (error) => console.error(error.message));
      return redlock;
    });
    // `lock` answers with an object that has the owner's value, a new one for each acquisition.
    return {
      acquire: (name) => patient.lock(name, ttlMs),
      tryAcquire: (name) => orNothing(hasty.lock(name, ttlMs), (error) => error instanceof Redlock.LockError),
    };
  }
}

// Version 5, which has been a beta for years and is in use as one.
class NodeRedlock5 {
  version = '5.0.0-beta.2';

  constructor(urls) {
    this.urls = urls;
  }

  async open(ttlMs) {
    const { default: Redlock, ExecutionError } = require('redlock-5');
    const redlock = new Redlock(await connect(this.urls), { retryCount: -1 });
    // That others hold is an error to it, too; what matters is said when it gives up.
    redlock.on('error', () => {});
    // What is lost is not asked for again, as it would be for ever.
    const once = { retryCount: 0 };
    const held = (lock) => ({
      unlock: () => redlock.release(lock, once),
      extend: async (ms) => held(await redlock.extend(lock, ms, once)),
    });
    return {
      acquire: async (name) => held(await redlock.acquire([name], ttlMs)),
      tryAcquire: (name) =>
        orNothing(redlock.acquire([name], ttlMs, once), (error) => error instanceof ExecutionError).then(
          (lock) => lock && held(lock),
        ),
    };
  }
}

module.exports = { NodeRedlock, NodeRedlock5 };
