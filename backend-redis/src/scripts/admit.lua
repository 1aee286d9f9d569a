-- Returns until when the server may have forgotten holders: the pause begins when a manager first connects to this reign of it,
-- that is to its process since it was promoted last. It also begins anew where a primary has a new replication id because it
-- had no replica for `repl-backlog-ttl`. In a cluster each slot has an origin, which moves with it, and so has each server.
--
-- KEYS  origin: "RUN REPLID SINCE TERMS", of the reign that this was written in; of a server in a cluster with " SLOTS" behind
-- ARGV  the terms that all managers have alike: the pause in milliseconds, 0 if they could pause and do not, and with sentinels
--       or in a cluster "/LAG/MAX_TTL" behind one that is not 0;
--       in a cluster: the slots that the server has, or "";
--       "RUN REPLID SINCE" of a server that had the slot by then, or "": the slot may have been elsewhere since
-- Reply: {1, since when, the time now, the reign, slots}, both in microseconds; {0, terms} if the other managers have others;
-- {2} if the server does not tell its reign

local info = redis.call('INFO', 'server', 'replication')
-- It may be promoted in a moment, whatever its data are.
if string.find(info, 'role:slave', 1, true) then
  error({ err = 'READONLY the server is a replica' })
end
local run, replid = string.match(info, 'run_id:(%x+)'), string.match(info, 'master_replid:(%x+)')
local replaced = string.match(info, 'master_replid2:(%x+)')
if not (run and replid) then
  return { 2 }
end
local reign = run .. ' ' .. replid
local written = redis.call('GET', KEYS[1]) or ''
local known, since, terms, slots = string.match(written, '^(%x+ %x+) (%d+) (%S+) ?(%S*)$')
if known and terms ~= ARGV[1] then
  return { 0, terms }
end
local now = clock()
-- A clock that was set back is not waited for.
if known ~= reign or since - now > 0 then
  local server, begun = string.match(ARGV[3] or '', '^(%x+ %x+) (%d+)$')
  since, slots = now, ARGV[2] or ''
  -- It was nowhere else since then: it is unused, or was used last at the primary that this one has replaced.
  local stayed = written == '' or known and string.match(known, '%x+$') == replaced
  if stayed and server == reign and begun - now < 0 then
    since = begun
  end
  -- A full server takes what follows a first write that needs no memory. A key that is deleted from a slot which moves away
  -- cannot be written again there.
  redis.call('PEXPIRE', KEYS[1], '1000000000000')
  redis.call('SET', KEYS[1], reign .. ' ' .. since .. ' ' .. ARGV[1] .. (slots == '' and '' or ' ' .. slots))
end
return { 1, since, now, reign, slots }
