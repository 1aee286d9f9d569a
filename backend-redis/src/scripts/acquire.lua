-- Goes on after acquire_free: the lock is held, or somebody waits.

local holder = redis.call('GET', lock)
local now = clock()

-- The request was repeated, because its answer was lost.
if holder == me then
  redis.call('PEXPIRE', lock, ARGV[3])
  local counter, owner = last_grant(grants)
  if owner ~= me then
    return count(grants, me, inbox, info, now)
  end
  return counter
end

if not holder then
  local first, _, _, more = first_live(queue, entries, now)
  if first == me or not (first or more) then
    redis.call('SET', lock, me, 'PX', ARGV[3])
    if first then
      drop_entry(queue, entries, me)
    end
    return count(grants, me, inbox, info, now)
  end
  -- Without a first one, who comes next goes on to look for it.
  if first then
    holder = hand_on(lock, queue, entries, grants, channels, now)
  end
end

if not queues then
  return waits(grants, holder, holder and -1 or 0)
end
local last, alone
local score = redis.call('ZSCORE', queue, me)
if not score then
  local its
  last, its = unpack(redis.call('ZREVRANGE', queue, 0, 0, 'WITHSCORES'))
  alone = not last
  score = number(math.max((tonumber(its) or 0) + 1, now))
  redis.call('ZADD', queue, score, me)
end
local entry = ARGV[3] .. ' ' .. inbox .. ' ' .. info
redis.call('HSET', entries, me, entry, 'u:' .. me, number(now + ttl * 1000))
keep(queue, ttl)
keep(entries, ttl)
if alone then
  return waits(grants, holder, due(lock, now, now))
end
local ends = before(queue, entries, score, now, last)
-- Each comes with two that are dropped, so those that end while the lock stays held do not pile up.
before(queue, entries, number(now - ttl * 1000), now)
return waits(grants, holder, due(lock, ends, now))
