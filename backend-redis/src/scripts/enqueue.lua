-- Goes on after acquire or share: what is `wanted`, if it is not exclusive, cannot be had now, or only behind more that has
-- ended than one call drops.

if strangers and strangers.hold(holder, grants) then
  -- They have had a turn.
  redis.call('HDEL', entries, 'turns')
end
if not queues then
  return waits(lock, entries, grants, holder, sweep == 0 and 0 or -1, false)
end
local last, its = unpack(redis.call('ZREVRANGE', queue, '0', '0', 'WITHSCORES'))
local alone = not last
local score = its and (#its > #now or its >= now) and number(its + 1) or now
if redis.call('ZADD', queue, 'NX', score, me) == 0 then
  score, last = redis.call('ZSCORE', queue, me), nil
end
local entry = ttl .. ' ' .. inbox .. ' ' .. info
if wanted then
  entry = '0' .. entry .. ' ' .. wanted
end
redis.call('HSET', entries, me, entry, 'u:' .. me, now + ttl * 1000)
keep(queue, ttl)
keep(entries, ttl)
if alone then
  return waits(lock, entries, grants, holder, due(lock, queue, entries, grants, holder, now, now), true)
end
local ends = before(queue, entries, score, now, last)
-- Each comes with two that are dropped, so those that end while the lock stays held do not pile up.
before(queue, entries, number(now - ttl * 1000), now)
return waits(lock, entries, grants, holder, due(lock, queue, entries, grants, holder, ends, now), ends == now)
