// Lock libraries of others in JavaScript, each as a contender of the comparison: `peers.js NAME URL…`.
//
// Every library is used as its documentation shows, with its defaults.
'use strict';

const { serve } = require('./contender');

const [name, ...urls] = process.argv.slice(2);
if (name === 'node-redlock') {
  const { NodeRedlock } = require('./redlock_lock');
  serve(new NodeRedlock(urls));
} else if (name === 'node-redlock-5') {
  const { NodeRedlock5 } = require('./redlock_lock');
  serve(new NodeRedlock5(urls));
} else {
  console.log(`missing nobody here is called ${JSON.stringify(name ?? '')}`);
}
