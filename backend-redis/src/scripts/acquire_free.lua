-- Takes the lock, or joins the queue for it.
--
-- KEYS  lock, queue, entries, grants, sharers
-- ARGV  channels, owner id, ttl, whether to queue (1 or 0), inbox, info
-- Answer: counter or, in the queue or turned away, {0, ask in, record of the last grant[, holder]}; who does
-- not queue asks again only if `ask in` is 0

local lock, queue, entries, grants = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local channels, me, ttl = ARGV[1], ARGV[2], ARGV[3]
local queues, inbox, info = ARGV[4] == '1', ARGV[5], ARGV[6]

-- A full server refuses this, and may have more to say below to who holds already.
local holder = redis.pcall('SET', lock, me, 'NX', 'PX', ttl, 'GET')
-- It was free, and nobody waits: what follows is not even defined.
if not holder and redis.call('EXISTS', queue) == 0 then
  return count(grants, me, inbox, info, clock())
end

