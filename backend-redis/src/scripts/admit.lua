-- Returns until when the server may have forgotten holders: the pause begins when a manager first connects to this reign of it,
-- that is to its process since it was promoted last. It also begins anew where a primary has a new replication id because it
-- had no replica for `repl-backlog-ttl`.
--
-- KEYS  origin: "RUN REPLID SINCE TERMS", of the reign that this was written in
-- ARGV  the terms that all managers have alike: the pause in milliseconds, and with sentinels "/LAG/MAX_TTL" behind it
-- Reply: {1, since when, in microseconds}; {0, terms} if the other managers have others; {2} if the server does not tell its
-- reign

local info = redis.call('INFO', 'server', 'replication')
-- It may be promoted in a moment, whatever its data are.
if string.find(info, 'role:slave', 1, true) then
  error({ err = 'READONLY the server is a replica' })
end
local run, replid = string.match(info, 'run_id:(%x+)'), string.match(info, 'master_replid:(%x+)')
if not (run and replid) then
  return { 2 }
end
local reign = run .. ' ' .. replid
local known, since, terms = string.match(redis.call('GET', KEYS[1]) or '', '^(%x+ %x+) (%d+) (%S+)$')
if known and terms ~= ARGV[1] then
  return { 0, terms }
end
local now = clock()
-- A clock that was set back is not waited for.
if known ~= reign or since - now > 0 then
  since = now
  -- A full server takes what follows a first write that frees.
  redis.call('DEL', KEYS[1])
  redis.call('SET', KEYS[1], reign .. ' ' .. since .. ' ' .. ARGV[1])
end
return { 1, since }
