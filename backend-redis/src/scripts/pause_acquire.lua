-- As acquire_free, unless what nobody holds is granted to nobody.
--
-- KEYS  lock, queue, entries, grants, sharers
-- ARGV  channels, owner id, ttl, whether to queue (1 or 0), inbox, info, and until when nothing is granted
-- Answer: as there; after the holder, 2 if that is nobody

local lock, queue, entries, grants = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local channels, me, ttl = ARGV[1], ARGV[2], ARGV[3]
local queues, inbox, info = ARGV[4] == '1', ARGV[5], ARGV[6]

local holder
if ARGV[#ARGV] - clock() > 0 then
  holder = redis.call('GET', lock) or 0
else
  holder = redis.pcall('SET', lock, me, 'NX', 'PX', ttl, 'GET')
  if not holder and redis.call('EXISTS', queue) == 0 then
    return count(grants, me, inbox, info, clock())
  end
end

