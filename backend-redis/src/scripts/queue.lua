-- What the scripts share that deal with a queue.

-- Who share a lock, which has one holder where this is not replaced.
local sharers = false

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

-- For how long `holder` may go on, in milliseconds, if it was asked to let go.
local function asked_of(entries, holder)
  local note = string.sub(redis.call('HGET', entries, 'revoked') or '', 1, LONGEST)
  local asked, grace = string.match(note, '^(%S+) (%d+)$')
  return asked == holder and grace
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
-- when it is live, and what it says, at last weight and capacity if it is not exclusive. The ended ones before it are
-- dropped, and those that say nothing we write.
local function first_live(queue, entries, now)
  while true do
    local owner = redis.call('ZRANGE', queue, '0', '0')[1]
    if not owner then
      return nil
    end
    now = now or clock()
    local ends = live_until(entries, owner, now)
    local entry = string.sub(ends and redis.call('HGET', entries, owner) or '', 1, LONGEST)
    local ttl, inbox, info = string.match(entry, '^([1-9]%d*) (%S+) (.*)$')
    local wanted = false
    if not ttl then
      ttl, inbox, info, wanted = string.match(entry, '^0([1-9]%d*) (%S+) (.*) ([1-9]%d* [1-9]%d*)$')
    end
    if ttl then
      return owner, false, now, ends, ttl, inbox, info, wanted
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

