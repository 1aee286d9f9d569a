-- Takes a share of the lock, or joins the queue for it.
--
-- KEYS  lock, queue, entries, grants, sharers; of none, nothing is done
-- ARGV  channels, owner id, ttl, whether to queue (1 or 0), inbox, info, "WEIGHT CAPACITY"
-- Answer: as that of acquire

if #KEYS == 0 then
  return 0
end
local lock, queue, entries, grants = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local channels, me, ttl = ARGV[1], ARGV[2], ARGV[3]
local queues, inbox, info = ARGV[4] == '1', ARGV[5], ARGV[6]
local wanted = ARGV[7]
local now = clock()

local holder = settle(lock, queue, entries, grants, channels, redis.call('GET', lock), now)
-- The request was repeated, because its answer was lost, or its turn has come with it.
local held_as = holder == '*' and sharers().renew(lock, entries, me, ttl, now)
if held_as then
  return held_as
elseif redis.call('EXISTS', queue) == 0 and (not holder or holder == '*' and sharers().fit(lock, entries, wanted)) then
  local counter = count(grants, me, inbox, info, now)
  sharers().join(lock, entries, holder, me, wanted, ttl, counter, inbox, info, now)
  return counter
end
