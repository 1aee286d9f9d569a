-- Asks the holder to let go or, with force, takes the lock from it and hands it on.
--
-- KEYS  lock, queue, entries, grants
-- ARGV  channels, the asker's inbox, force (1 or 0)
-- Answer: {0} nobody holds it, or {1, the holder's id, lease left, 1 if it is free now and whoever waits
-- is behind more ended entries than one call drops: to be released by anybody}

local lock, queue, entries, grants = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local channels, asker, force = ARGV[1], ARGV[2], ARGV[3] == '1'

write_on_a_full_server(queue)
local holder = redis.call('GET', lock)
if not holder then
  hand_on(lock, queue, entries, grants, channels)
  return { 0 }
end
local lease = redis.call('PTTL', lock)
local counter, owner, _, inbox = last_grant(grants)
local more
if force then
  redis.call('DEL', lock)
  redis.call('HDEL', entries, 'revoked', 'revoker')
  _, more = hand_on(lock, queue, entries, grants, channels)
else
  redis.call('HSET', entries, 'revoked', holder, 'revoker', asker)
  keep(entries, math.max(lease, 1))
end
-- A stranger's lock has no inbox.
if owner == holder then
  redis.pcall('PUBLISH', channels .. inbox, 'revoked ' .. holder .. ' ' .. number(counter) .. ' ' .. lock)
end
return { 1, string.sub(holder, 1, LONGEST), lease, more and 1 or 0 }
