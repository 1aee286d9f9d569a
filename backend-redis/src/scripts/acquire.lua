-- Goes on after acquire_free: the lock is held, or somebody waits and it was taken too early.

if type(holder) == 'table' then
  holder = holder_of(lock, redis.call)
end
local now = clock()

-- The request was repeated, because its answer was lost.
if holder == me then
  redis.call('PEXPIRE', lock, ttl)
  local _, counter, owner = last_grant(grants)
  return owner == me and counter or count(grants, me, inbox, info, now)
end

local resting = not holder and strangers and strangers.rest(entries, now)
if not holder then
  local first, more = first_live(queue, entries, now)
  if first == me and not resting or not (first or more) then
    take(lock, me, ttl)
    if first then
      drop_entry(queue, entries, me)
    end
    return count(grants, me, inbox, info, now)
  end
  if first and not resting then
    holder = hand_on(lock, queue, entries, grants, channels, now)
  else
    -- Who comes next goes on to look for the first one.
    redis.call('DEL', lock)
  end
end

if not queues then
  return waits(grants, holder, (holder or resting) and -1 or 0, false)
end
local last, its = unpack(redis.call('ZREVRANGE', queue, '0', '0', 'WITHSCORES'))
local alone = not last
local score = its and (#its > #now or its >= now) and number(its + 1) or now
if redis.call('ZADD', queue, 'NX', score, me) == 0 then
  score, last = redis.call('ZSCORE', queue, me), nil
end
redis.call('HSET', entries, me, ttl .. ' ' .. inbox .. ' ' .. info, 'u:' .. me, now + ttl * 1000)
keep(queue, ttl)
keep(entries, ttl)
if alone then
  return waits(grants, holder, due(lock, entries, grants, holder, now, now), true)
end
local ends = before(queue, entries, score, now, last)
-- Each comes with two that are dropped, so those that end while the lock stays held do not pile up.
before(queue, entries, number(now - ttl * 1000), now)
return waits(grants, holder, due(lock, entries, grants, holder, ends, now), ends == now)
