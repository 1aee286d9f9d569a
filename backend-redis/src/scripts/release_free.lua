-- Ends what one owner has of a name, held or waiting, and hands a free lock on.
--
-- KEYS  lock, queue, entries, grants, sharers
-- ARGV  channels, owner id
-- Answer: 1 if it held the lock, 2 if it waited, 0 if it had nothing; 4 more than that if the lock is
-- free, and whoever waits is behind more ended entries than one call drops: to be called again

local lock, queue, entries, grants = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local channels, me = ARGV[1], ARGV[2]

local holder = redis.pcall('GET', lock)
local held = holder == me
-- Nobody waits, as who waits has an entry, and nobody asked: what follows is not even defined.
if held and redis.call('EXISTS', entries) == 0 then
  redis.call('DEL', lock)
  return 1
end

