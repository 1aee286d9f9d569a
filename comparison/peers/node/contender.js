// The lines of comparison/peers/README.md and the contest, for any lock library in JavaScript.
//
// A library has a `version` and `open(ttlMs)`, which gives a session; a session has `acquire(name)` and
// `tryAcquire(name)`, which gives nothing if somebody else holds. What they give has `unlock()` and `extend(ttlMs)`. Contenders are asynchronous functions on the one thread.
'use strict';

const fs = require('node:fs');
const readline = require('node:readline');
const { setImmediate, setTimeout } = require('node:timers/promises');

// How many locks `hold` asks for at the same time.
const AT_ONCE = 64;

// CLOCK_MONOTONIC in nanoseconds, which all processes of a host share.
const now = process.hrtime.bigint;

// An answer is one line.
const oneLine = (error) => String(error).split(/\s+/).join(' ');

// A number in a file that nothing but the lock protects.
class CountedFile {
  constructor(path) {
    this.file = fs.openSync(path, 'r+');
    this.text = Buffer.alloc(20);
  }

  // Reads, adds, writes: two at once lose one.
  addOne() {
    const length = fs.readSync(this.file, this.text, 0, this.text.length, 0);
    const number = BigInt(this.text.toString('latin1', 0, length).trim());
    fs.writeSync(this.file, String(number + 1n), 0);
  }

  close() {
    fs.closeSync(this.file);
  }
}

// What is asked for in the order `run`.
class Contest {
  constructor([name, contenders, cycles, millis, holdUs, start, journal, counter]) {
    Object.assign(this, { name, journal, counter });
    this.contenders = Number(contenders);
    this.left = Number(cycles) || Infinity;
    this.bound = BigInt(millis) * 1_000_000n;
    this.holdMs = Number(holdUs) / 1000;
    this.start = BigInt(start);
  }

  async carryOut(sessions) {
    const finished = await Promise.all(
      Array.from({ length: this.contenders }, (_, index) => this.contend(sessions[index % sessions.length])),
    );
    if (this.journal !== '-') {
      const lines = finished.flatMap(({ cycles }, index) => cycles.map((cycle) => `${index} ${cycle.join(' ')} -\n`));
      fs.writeFileSync(this.journal, lines.join(''));
    }
    const cycles = finished.reduce((sum, contender) => sum + contender.cycles.length, 0);
    const failures = finished.filter(({ failure }) => failure).map(({ failure }) => oneLine(failure));
    return ['done', cycles, failures.length, ...failures.slice(0, 1)].join(' ');
  }

  async contend(session) {
    const cycles = [];
    try {
      await this.goThrough(session, cycles);
      return { cycles };
    } catch (failure) {
      return { cycles, failure };
    }
  }

  // Again and again; the times are remembered until the contest is over.
  async goThrough(session, cycles) {
    const number = this.counter === '-' ? null : new CountedFile(this.counter);
    await untilThe(this.start);
    const start = now();
    while (true) {
      const requested = now();
      if ((this.bound && requested - start >= this.bound) || !this.takeOne()) {
        break;
      }
      const held = await session.acquire(this.name);
      const granted = now();
      number?.addOne();
      if (this.holdMs) {
        await setTimeout(this.holdMs);
      } else if (this.contenders > 1) {
        await setImmediate();
      }
      const cycle = [requested, granted, now(), '-'];
      // A hold whose release fails is one nonetheless.
      cycles.push(cycle);
      await held.unlock();
      cycle[3] = now();
    }
    number?.close();
  }

  takeOne() {
    this.left -= 1;
    return this.left >= 0;
  }
}

// A timer knows milliseconds only, and may be early by a part of one.
async function untilThe(moment) {
  for (let left = moment - now(); left > 0n; left = moment - now()) {
    await setTimeout(Math.ceil(Number(left) / 1e6));
  }
}

// Carries out orders, one after the other.
class Program {
  constructor(library) {
    this.library = library;
    this.sessions = [];
    this.held = null;
    this.kept = [];
  }

  first() {
    if (this.sessions.length === 0) {
      throw new Error('no session is open');
    }
    return this.sessions[0];
  }

  async open(sessions, ttlMs) {
    this.ttlMs = Number(ttlMs);
    while (this.sessions.length < Number(sessions)) {
      this.sessions.push(await this.library.open(Number(ttlMs)));
    }
    return 'opened';
  }

  async run(...words) {
    this.first();
    return new Contest(words).carryOut(this.sessions);
  }

  async acquire(name) {
    this.held = await this.first().acquire(name);
    return `held ${now()} -`;
  }

  async try(name) {
    const held = await this.first().tryAcquire(name);
    if (!held) {
      return 'busy';
    }
    this.held = held;
    return `held ${now()} -`;
  }

  async extend() {
    // The lock that has been extended is another object in some versions.
    this.held = await this.holding().extend(this.ttlMs);
    return `extended ${now()}`;
  }

  holding() {
    if (!this.held) {
      throw new Error('nothing is held');
    }
    return this.held;
  }

  async release() {
    const held = this.holding();
    this.held = null;
    const before = now();
    await held.unlock();
    return `released ${before} ${now()}`;
  }

  async hold(name, count) {
    const session = this.first();
    const before = now();
    let next = 0;
    const take = async () => {
      while (next < Number(count)) {
        this.kept.push(await session.acquire(`${name}-${next++}`));
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, take));
    return `holding ${count} ${before} ${now()}`;
  }

  async carryOut(line) {
    const [order, ...words] = line.split(' ');
    try {
      if (!['open', 'run', 'acquire', 'try', 'extend', 'release', 'hold'].includes(order)) {
        throw new Error(`no order: ${JSON.stringify(line)}`);
      }
      return await this[order](...words);
    } catch (error) {
      return `failed ${now()} ${oneLine(error)}`;
    }
  }
}

// Speaks the protocol for `library` until standard input ends or says `quit`.
async function serve(library) {
  console.log(`ready ${library.version}`);
  const program = new Program(library);
  for await (const line of readline.createInterface({ input: process.stdin })) {
    if (line === 'quit') {
      break;
    }
    console.log(await program.carryOut(line));
  }
  // The connections would keep the process.
  process.exit(0);
}

module.exports = { serve };
