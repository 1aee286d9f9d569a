-- Renews holders and refreshes those who wait, many in one call.
--
-- KEYS  lock, queue, entries, grants, sharers of each
-- ARGV  channels, inbox, then owner id and ttl of each
-- Answer, of each: {1, counter} it holds, {0, ask in, record of the last grant[, holder]} it waits,
-- {2, counter, grace in milliseconds} it holds and was asked to let go, {3} it is gone

-- A counter that is held for a day is still known after it.
local function outlive(grants, counter, ttl, now)
  if now / 1000 + 2 * ttl > counter / 1000 + DAY then
    keep(grants, DAY)
  end
end

-- Whether `me` waits, and what became of the lock while it did.
local function refresh(lock, queue, entries, grants, me, ttl, now)
  local holder = settle(lock, queue, entries, grants, ARGV[1], holder_of(lock, redis.pcall, grants, me), now)
  if holder == me then
    redis.call('PEXPIRE', lock, ttl)
    local _, counter, owner = last_grant(grants)
    if owner ~= me then
      -- It was lost, and with it who we are.
      counter = count(grants, me, ARGV[2], '0 ', now)
    else
      outlive(grants, counter, ttl, now)
    end
    local grace = asked_of(entries, me)
    if not grace then
      return { 1, counter }
    end
    -- The message may have been lost. Until the holder has heard, it keeps the lock.
    keep(entries, ttl)
    return { 2, counter, grace }
  end
  local shared_as = sharers and holder == '*' and sharers().renew(lock, entries, me, ttl, now)
  if shared_as then
    outlive(grants, shared_as, ttl, now)
    local grace = redis.call('HGET', entries, 'r:' .. me)
    return grace and { 2, shared_as, grace } or { 1, shared_as }
  end
  local score = redis.call('ZSCORE', queue, me)
  if not score then
    return { 3 }
  end
  if not live_until(entries, me, now) then
    drop_entry(queue, entries, me)
    return { 3 }
  end
  redis.call('HSET', entries, 'u:' .. me, now + ttl * 1000)
  keep(queue, ttl)
  keep(entries, ttl)
  local ends = before(queue, entries, score, now)
  return waits(lock, entries, grants, holder, due(lock, queue, entries, grants, holder, ends, now), ends == now)
end

write_on_a_full_server(KEYS[2])
local now = clock()
local answers = {}
for i = 1, #KEYS / 5 do
  local lock, queue, entries, grants = KEYS[5 * i - 4], KEYS[5 * i - 3], KEYS[5 * i - 2], KEYS[5 * i - 1]
  answers[i] = refresh(lock, queue, entries, grants, ARGV[2 * i + 1], ARGV[2 * i + 2], now)
end
return answers
