-- As acquire_free, on a key that other libraries take too: what lies there is not read whole.
--
-- KEYS  lock, queue, entries, grants, sharers
-- ARGV  channels, owner id, ttl, whether to queue (1 or 0), inbox, info, and what every format is told
-- Answer: as there, and whether it is first behind a stranger

local lock, queue, entries, grants = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local channels, me, ttl = ARGV[1], ARGV[2], ARGV[3]
local queues, inbox, info = ARGV[4] == '1', ARGV[5], ARGV[6]

local holder = holder_of(lock, redis.call, grants, me)
if not holder and redis.call('EXISTS', queue, entries) == 0 then
  take(lock, me, ttl)
  return count(grants, me, inbox, info, clock())
end
