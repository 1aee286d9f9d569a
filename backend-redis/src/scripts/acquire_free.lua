-- Takes the lock, or joins the queue for it.
--
-- KEYS  lock, queue, entries, grants
-- ARGV  channels, owner id, ttl, whether to queue (1 or 0), inbox, info
-- Answer: {1, counter} or, in the queue or turned away, {0, last counter, lease left[, since, info]}

local lock, queue, entries, grants = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local channels, me, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3])
local queues, inbox, info = ARGV[4] == '1', ARGV[5], ARGV[6]

local holder = redis.call('GET', lock)
-- Free, and nobody waits: what follows is not even defined.
if not holder and redis.call('EXISTS', queue) == 0 then
  redis.call('SET', lock, me, 'PX', ARGV[3])
  return { 1, count(grants, me, inbox, info, clock()) }
end

