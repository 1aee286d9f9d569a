-- What the scripts share that deal with a queue.

-- So many ended entries a call may still drop before whom it grants, of whatever many names, to block
-- nobody for long. Who finds more of them goes on: a contender that asks, or who has left the lock free.
local sweep = 500

-- What we write is shorter, in bytes; what somebody else has written is not carried around.
local LONGEST = 2048

-- The least lease of who is granted in the queue, in milliseconds: a refresh that is on its way finds
-- it, and the dead do not delay who is behind them for longer than their entries and this.
local GRACE = 500

-- At its memory limit the server refuses a script's first write if that may take memory, and none
-- after a first write that does not. So whatever must be possible on a full server begins with ZREM,
-- here with one that changes nothing.
local function write_on_a_full_server(queue)
  redis.call('ZREM', queue, '')
end

-- The queue outlives each of its entries, and is gone after the last.
local function keep(key, ms)
  if redis.call('PTTL', key) < tonumber(ms) then
    redis.call('PEXPIRE', key, ms)
  end
end

-- For how long the holder that was asked may go on, in milliseconds; an earlier version's asker gives none.
local function noted_grace(entries)
  local note = string.sub(redis.call('HGET', entries, 'revoker') or '', 1, LONGEST)
  return string.match(note, '^grace (%d+)$') or '0'
end

local function last_record(grants)
  return string.sub(redis.call('GET', grants) or '', 1, LONGEST)
end

-- The record of the last grant, and of that the counter and whom it names.
local function last_grant(grants)
  local record = last_record(grants)
  return record, string.match(record, '^(%d+) (%S+) ')
end

-- With more fields that go with it.
local function drop_entry(queue, entries, owner, ...)
  local was_there = redis.call('ZREM', queue, owner) == 1
  if was_there then
    redis.call('HDEL', entries, owner, 'u:' .. owner, ...)
  end
  return was_there
end

-- Until when an entry is live, if it is. An id that is longer is none of ours, and would be told in messages.
local function live_until(entries, owner, now)
  local ends = #owner <= LONGEST and redis.call('HGET', entries, 'u:' .. owner) or ''
  ends = string.match(ends, '^%d+$')
  return ends and (#ends > #now or #ends == #now and ends > now) and ends
end

-- The first live entry, or whether there may be one behind more ended ones than a call drops; the time; until
-- when it is live, and what it says. The ended ones before it are dropped, and those that say nothing we write.
local function first_live(queue, entries, now)
  while true do
    local owner = redis.call('ZRANGE', queue, '0', '0')[1]
    if not owner then
      return nil
    end
    now = now or clock()
    local ends = live_until(entries, owner, now)
    local entry = ends and redis.call('HGET', entries, owner) or ''
    local ttl, inbox, info = string.match(string.sub(entry, 1, LONGEST), '^([1-9]%d*) (%S+) (.*)$')
    if ttl then
      return owner, false, now, ends, ttl, inbox, info
    end
    if sweep == 0 then
      return nil, true
    end
    drop_entry(queue, entries, owner)
    sweep = sweep - 1
  end
end

-- Until when the entry that came last before `score` is live, which is `owner` if that is given; it and
-- one more are dropped if they have ended.
local function before(queue, entries, score, now, owner)
  for _ = 1, 2 do
    owner = owner or redis.call('ZRANGE', queue, '(' .. score, '-inf', 'BYSCORE', 'REV', 'LIMIT', '0', '1')[1]
    if not owner then
      return now
    end
    local ends = live_until(entries, owner, now)
    if ends then
      return ends
    end
    drop_entry(queue, entries, owner)
    owner = nil
  end
  return now
end

-- When an entry that nobody tells anything may have its turn: the lock's lease is over, and so is the
-- entry before it, at `ends`, which would have asked. In milliseconds from now; negative if the lock
-- has no end.
local function due(lock, ends, now)
  local left = redis.call('PTTL', lock)
  if left == -1 then
    return left
  elseif left == -2 then
    -- Free: there are more ended entries than one call drops.
    return 0
  end
  return math.max(left, math.ceil((ends - now) / 1000))
end

-- Grants the lock, which nobody has any more, to the first live entry and tells its inbox; whom or, if to nobody, whether there
-- may be one behind more ended ones. The time is asked for if it is needed and not given.
local function hand_on(lock, queue, entries, grants, channels, now)
  local owner, more, now, ends, ttl, inbox, info = first_live(queue, entries, now)
  if not owner then
    return nil, more
  end
  -- What the last holder was asked ends with it.
  drop_entry(queue, entries, owner, 'revoked', 'revoker')
  -- Not less than what the entry has: its owner may count on that until its next refresh. It has no more
  -- than its ttl, whatever a clock that was set back makes of it.
  local grace = math.min(math.ceil(ttl / 6), GRACE)
  local lease = math.min(math.max(math.ceil((ends - now) / 1000), grace), tonumber(ttl))
  redis.call('SET', lock, owner, 'PX', lease)
  local counter = count(grants, owner, inbox, info, now)
  -- Without the right to publish, the next refresh tells.
  redis.pcall('PUBLISH', channels .. inbox, 'granted ' .. owner .. ' ' .. counter .. ' ' .. lock)
  return owner
end

-- What the holder had goes to whom it is handed on, or it is free; whether it is while somebody may wait behind
-- more ended entries.
local function let_go(lock, queue, entries, grants, channels)
  local owner, more = hand_on(lock, queue, entries, grants, channels)
  if not owner then
    redis.call('DEL', lock)
    redis.call('HDEL', entries, 'revoked', 'revoker')
  end
  return more
end

-- The entry that came before the next one of `score` has left: that one hears when to ask, if its next
-- refresh comes later.
local function tell_next(lock, queue, entries, channels, score)
  local owner, its = unpack(redis.call(
    'ZRANGE', queue, '(' .. score, '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES'))
  local entry = owner and redis.call('HGET', entries, owner) or ''
  local ttl, inbox = string.match(string.sub(entry, 1, LONGEST), '^(%d+) (%S+) ')
  if not ttl then
    return
  end
  local now = clock()
  local asks = due(lock, before(queue, entries, its, now), now)
  if asks >= 0 and asks < ((live_until(entries, owner, now) or now) - now) / 1000 - ttl * 2 / 3 then
    redis.pcall('PUBLISH', channels .. inbox, 'due ' .. owner .. ' ' .. number(asks) .. ' ' .. lock)
  end
end

-- What somebody hears who has to wait: when to ask, the last grant, and who holds, which that may name.
local function waits(grants, holder, asks)
  return { 0, asks, last_record(grants), type(holder) == 'string' and string.sub(holder, 1, LONGEST) }
end

