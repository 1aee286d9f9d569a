-- Frozen: as version 0.1 at ceac613 ran it, for backend-redis/tests/redis/earlier.rs. Never changed.
-- What the scripts share that deal with a queue.

-- At its memory limit the server refuses a script's first write if that may take memory, and none
-- after a first write that does not. So whatever must be possible on a full server begins with ZREM,
-- here with one that changes nothing.
local function write_on_a_full_server(queue)
  redis.call('ZREM', queue, '')
end

-- The queue outlives each of its entries, and is gone after the last.
local function keep(key, ms)
  if redis.call('PTTL', key) < ms then
    redis.call('PEXPIRE', key, number(ms))
  end
end

local function last_grant(grants)
  local record = redis.call('GET', grants)
  if not record then
    return 0
  end
  local counter, owner, since, inbox, info = string.match(record, '^(%d+) (%S+) (%d+) (%S+) (.*)$')
  return tonumber(counter) or 0, owner, since, inbox, info
end

local function drop_entry(queue, entries, owner)
  local was_there = redis.call('ZREM', queue, owner) == 1
  if was_there then
    redis.call('HDEL', entries, owner, 'u:' .. owner)
  end
  return was_there
end

-- The first live entry, until when it is live, and the time; the stale ones before it are dropped.
local function first_live(queue, entries, now)
  while true do
    local owner = redis.call('ZRANGE', queue, 0, 0)[1]
    if not owner then
      return nil
    end
    now = now or clock()
    local live_until = tonumber(redis.call('HGET', entries, 'u:' .. owner) or 0)
    if live_until > now then
      return owner, live_until, now
    end
    drop_entry(queue, entries, owner)
  end
end

-- Grants a free lock to the first live entry and tells its inbox; whom. The time is
-- asked for if it is needed and not given.
local function hand_on(lock, queue, entries, grants, channels, now)
  local owner, live_until, now = first_live(queue, entries, now)
  if not owner then
    return nil
  end
  local ttl, inbox, info = string.match(redis.call('HGET', entries, owner), '^(%d+) (%S+) (.*)$')
  drop_entry(queue, entries, owner)
  -- Not less than what the entry has: its owner may count on that until its next refresh.
  local lease = math.max(math.ceil((live_until - now) / 1000), math.ceil(ttl / 6))
  redis.call('SET', lock, owner, 'PX', number(lease))
  local counter = count(grants, owner, inbox, info, now)
  -- Without the right to publish, the next refresh tells.
  redis.pcall('PUBLISH', channels .. inbox, 'granted ' .. owner .. ' ' .. counter .. ' ' .. lock)
  return owner
end

-- What somebody hears who has to wait: the last counter, how long the holder's lease lasts, and whom
-- the last grant names if that is the holder.
local function waits(lock, grants, holder)
  local counter, owner, since, _, info = last_grant(grants)
  local answer = { 0, number(counter), redis.call('PTTL', lock) }
  if owner == holder then
    answer[4], answer[5] = since, info
  end
  return answer
end

