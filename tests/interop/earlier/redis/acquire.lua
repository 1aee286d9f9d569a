-- Frozen: as version 0.1 at ceac613 ran it, for backend-redis/tests/redis/earlier.rs. Never changed.
-- Goes on after acquire_free: the lock is held, or somebody waits.

local holder = redis.call('GET', lock)
local now = clock()

-- The request was repeated, because its answer was lost.
if holder == me then
  redis.call('PEXPIRE', lock, number(ttl))
  local counter, owner = last_grant(grants)
  if owner ~= me then
    return tonumber(count(grants, me, inbox, info, now))
  end
  return counter
end

if not holder then
  local first = first_live(queue, entries, now)
  if not first or first == me then
    redis.call('SET', lock, me, 'PX', number(ttl))
    if first then
      drop_entry(queue, entries, me)
    end
    return tonumber(count(grants, me, inbox, info, now))
  end
  holder = hand_on(lock, queue, entries, grants, channels, now)
end

if queues then
  if not redis.call('ZSCORE', queue, me) then
    local last = redis.call('ZREVRANGE', queue, 0, 0, 'WITHSCORES')[2]
    redis.call('ZADD', queue, number(math.max((tonumber(last) or 0) + 1, now)), me)
  end
  local entry = number(ttl) .. ' ' .. inbox .. ' ' .. info
  redis.call('HSET', entries, me, entry, 'u:' .. me, number(now + ttl * 1000))
  keep(queue, ttl)
  keep(entries, ttl)
end
return waits(lock, grants, holder)
