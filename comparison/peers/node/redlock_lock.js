// redlock: on one server or several, through ioredis. Waits by trying again.
//
// Its defaults stay: a pause of 200 ms, give or take 100, between tries, and a hundredth of the ttl for the
// drift of clocks. By default it gives up after 10 retries; here it waits as long as it takes (−1). It does
// not renew.
'use strict';

const Redis = require('ioredis');
const Redlock = require('redlock');

class NodeRedlock {
  version = require('redlock/package.json').version;

  constructor(urls) {
    this.urls = urls;
  }

  async open(ttlMs) {
    const clients = this.urls.map((url) => new Redis(url, { lazyConnect: true }));
    for (const client of clients) {
      // Without a listener every lost connection would be printed with its stack.
      client.on('error', (error) => console.error(error.message));
      await client.connect();
    }
    const redlock = new Redlock(clients, { retryCount: -1 });
    redlock.on('clientError', (error) => console.error(error.message));
    // `lock` answers with an object that has the owner's value, a new one for each acquisition.
    return { acquire: (name) => redlock.lock(name, ttlMs) };
  }
}

module.exports = { NodeRedlock };
