-- The common part of own.lua and foreign.lua. Lines of three dashes cut the files into sections, and a program is: arguments
-- (here), release without waiters (there), time, counting (here), a free lock (there), tell.lua, the queue (here), what differs
-- (there), the operations (here), admin.lua. So a free lock is acquired and released before further functions are created.
--
-- KEYS  lock, queue, entries, grants, sharers; of each name for `renew` and `inspect`
-- ARGV  the operation, its arguments, and last the argument of the program
--
-- operation  arguments                                             replies
-- acquire    channels, owner id, ttl, "INBOX INFO", and "try"      COUNTER, or {0, ASK_IN, record of the last grant,
--            not to queue                                          holder}: queued, or turned away
-- renew      channels, inbox, then owner id and ttl of each name   of each: {1, COUNTER} it holds; {2, COUNTER, GRACE} it holds
--                                                                  and its lock was revoked; {0, ...} it waits, as for
--                                                                  `acquire`; {3} it has no entry; {4} see `is_short`
-- release    channels, owner id                                    1 it held, 2 it waited, 0 it had no entry; and 4 more if
--                                                                  it is to be called again, see `sweep`
-- revoke     channels, grace or "force"                            {0} the lock is free; {1, LEASE_LEFT, 1 if `release` is
--                                                                  to be called or else 0, record of the holder's grant}
-- inspect                                                          of each: {WAITING, 1 if held or else 0, record of the
--                                                                  holder's grant, or LEASE_LEFT of a foreign client}
--
-- A holder that we granted is shown by the record of its grant, which may be missing. A caller that was turned away asks
-- again only if ASK_IN is 0; it is negative if only a message or the next renewal helps. `channels` is what stands before an
-- inbox in the name of its channel; behind a line feed follows the message key, if there is one. An inbox that is a channel of
-- a slot (tell.lua) takes the place of the one with which a waiter has entered.
--
-- lock     the holder's owner id, with the lease as expiry
-- queue    owner ids, scored by their order of arrival
-- entries  "ID" -> "TTL INBOX INFO", or "0TTL INBOX INFO WEIGHT CAPACITY" of an entry that is not exclusive;
--          "u:ID" -> until when that entry is live;
--          "revoked" -> "ID GRACE" of the holder whose lock was revoked
-- grants   "COUNTER ID SINCE INBOX INFO" of the last grant
--
-- Times are of this server, in microseconds; ttl, leases and spans in milliseconds. Times and counters are text, which is
-- compared as it is where it has as many digits: a server may come up with a clock of 1970. Results of arithmetic become
-- text by %.0f, because Lua's own form loses digits, or as an argument, which Redis writes with all of them.

local operation, channels, me, ttl, told = unpack(ARGV, 1, 5)
local lock, queue, entries, grants = unpack(KEYS, 1, 4)
-- As the paths of a free lock read them.
local holder, held

---
local DAY = 86400000

local function number(value)
  return string.format('%.0f', value)
end

local function clock()
  local seconds, micros = unpack(redis.call('TIME'))
  return seconds .. (#micros == 6 and micros or string.sub('00000' .. micros, -6))
end

---
-- Counts a grant. The counter is never below the clock, so it also grows after its key is lost. The key lives until a day
-- after the counter's own value, and up to 1000 seconds more: only the first counter of so many seconds sets its end.
local function count(grants, owner, told, now)
  local last = redis.call('SET', grants, now .. ' ' .. owner .. ' ' .. now .. ' ' .. told, 'KEEPTTL', 'GET')
  if not last or string.byte(last, #now + 1) == 32 and last < now then
    if not last or last < string.sub(now, 1, -10) then
      redis.call('PEXPIRE', grants, DAY + 1001000)
    end
    return now
  end
  -- The clock was set back, or there were more grants than microseconds.
  local counter = math.max((tonumber(string.match(last, '^%d+')) or 0) + 1, tonumber(now))
  local record = number(counter) .. ' ' .. owner .. ' ' .. now .. ' ' .. told
  redis.call('SET', grants, record, 'PX', math.ceil((counter - now) / 1000) + DAY + 1001000)
  return number(counter)
end

---
-- What a program defines, for its paths of a free lock or behind this section:
--
-- holder_of(lock, ask, grants, me)  the holder, false if the lock is free; `ask` is redis.call or redis.pcall
-- look                              that `ask` for operations that only read
-- take(lock, owner, lease)          makes `owner` the holder of a free lock
-- give(lock, owner, lease)          makes `owner` the holder, also of a held lock
-- free(lock)                        deletes the lock
-- rest(entries, now)                for how many milliseconds no waiter is granted a free lock, or false; nil if it always is
-- stand_back(...)                   frees a lock that is released if no waiter is granted it, or returns false; nil as `rest`
-- is_short(left, now)               whether a lease is not extended that ends in `left` microseconds; nil or false if all are
-- sharers, foreign                  what shared holders and foreign clients need; false in the other program

-- How many ended entries a call may still drop before a grant, of all its names, so that no call blocks the server for long.
-- If there are more, the next caller goes on: a contender that asks, or a releaser, whose reply says so.
local sweep = 500

-- Our texts are shorter, in bytes. Text of another client is cut there.
local LONGEST = 2048

-- The least lease of a waiter that is granted the lock, in milliseconds: long enough for a renewal that is on its way. A dead
-- waiter delays the next one by its entry's rest and this.
local GRACE = 500

-- At its memory limit the server refuses a script's first write if that may need memory, and no later one after a first
-- write that does not. So an operation that must work on a full server begins with ZREM; here it changes nothing.
local function write_on_a_full_server(queue)
  redis.call('ZREM', queue, '')
end

-- Extends the life of a key to that of its last entry.
local function keep(key, ms)
  if redis.call('PTTL', key) < tonumber(ms) then
    redis.call('PEXPIRE', key, ms)
  end
end

local function last_record(grants)
  return string.sub(redis.call('GET', grants) or '', 1, LONGEST)
end

-- The record of the last grant, its counter and its owner.
local function last_grant(grants)
  local record = last_record(grants)
  return record, string.match(record, '^(%d+) (%S+) ')
end

-- Drops an entry, and further fields if it was there.
local function drop_entry(queue, entries, owner, ...)
  local was_there = redis.call('ZREM', queue, owner) == 1
  if was_there then
    redis.call('HDEL', entries, owner, 'u:' .. owner, ...)
  end
  return was_there
end

-- Until when an entry is live, or false. A longer id is not ours, and would be repeated in messages.
local function live_until(entries, owner, now)
  local ends = #owner <= LONGEST and redis.call('HGET', entries, 'u:' .. owner) or ''
  ends = string.match(ends, '^%d+$')
  return ends and (#ends > #now or #ends == #now and ends > now) and ends
end

-- The first live entry, false, the time, until when the entry is live, its ttl, inbox, "INBOX INFO", and its weight and capacity
-- unless it is exclusive. Ended entries before it are dropped, and entries that we did not write. Without a live entry nil,
-- and true if there may be one behind more ended entries than a call drops.
local function first_live(queue, entries, now)
  while true do
    local owner = redis.call('ZRANGE', queue, '0', '0')[1]
    if not owner then
      return nil
    end
    now = now or clock()
    local ends = live_until(entries, owner, now)
    local entry = string.sub(ends and redis.call('HGET', entries, owner) or '', 1, LONGEST)
    local ttl, told, inbox = string.match(entry, '^([1-9]%d*) ((%S+) .*)$')
    local wanted = false
    if not ttl then
      ttl, told, inbox, wanted = string.match(entry, '^0([1-9]%d*) ((%S+) .*) ([1-9]%d* [1-9]%d*)$')
    end
    if ttl then
      return owner, false, now, ends, ttl, inbox, told, wanted
    end
    if sweep == 0 then
      return nil, true
    end
    drop_entry(queue, entries, owner)
    sweep = sweep - 1
  end
end

-- Until when the last entry before `score` is live; that entry is `owner` if given. Drops it, and one more, if they have
-- ended.
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

-- In how many milliseconds an entry asks if no message comes: when the lock's lease is over, and the entry before it, which
-- would have asked first, has ended, at `ends`. Negative if the lock has no end.
local function due(lock, queue, entries, grants, holder, ends, now)
  local left = redis.call('PTTL', lock)
  if left == -2 then
    left = rest and rest(entries, now) or left
  elseif foreign then
    left = foreign.due(left, grants, holder, ends == now)
  elseif sharers and holder == '*' then
    left = sharers().due(lock, queue, entries, ends == now, now)
  end
  if left == -1 then
    return left
  elseif left == -2 then
    -- Free: there are more ended entries than one call drops.
    return 0
  end
  return math.max(left, math.ceil((ends - now) / 1000))
end

-- Grants the lock, which is free or, if there is a `holder`, shared, to the first live entry, and to further ones that fit
-- beside it. Returns the holder then, and whether a live entry may be behind more ended ones than a call drops.
local function hand_on(lock, queue, entries, grants, channels, now, holder)
  local owner, more, now, ends, ttl, inbox, told, wanted = first_live(queue, entries, now)
  if not owner then
    return holder, more
  end
  -- A foreign lock has one holder, whatever the entry says.
  wanted = sharers and wanted
  if holder and not sharers().fit(lock, entries, wanted) then
    return holder, sweep == 0
  end
  -- The revocation of the last holder ends with it.
  drop_entry(queue, entries, owner, 'revoked')
  -- At least what the entry has, because its owner may count on that until its next renewal. At most its ttl, in case the
  -- clock was set back.
  local grace = math.min(math.ceil(ttl / 6), GRACE)
  local lease = math.min(math.max(math.ceil((ends - now) / 1000), grace), tonumber(ttl))
  if not wanted then
    give(lock, owner, lease)
  end
  local counter = count(grants, owner, told, now)
  if wanted then
    sharers().join(lock, entries, holder, owner, wanted, lease, counter, told, now)
  end
  tell(channels, inbox, 'granted', owner, counter, lock)
  if foreign then
    foreign.pass(entries, now, lease)
  end
  if wanted then
    return hand_on(lock, queue, entries, grants, channels, now, '*')
  end
  return owner
end

-- The reply to a waiter that asks after `asks` milliseconds; `first` if no entry of ours is before it.
local function waits(lock, entries, grants, holder, asks, first)
  local answer = { 0, asks, last_record(grants), type(holder) == 'string' and string.sub(holder, 1, LONGEST) }
  if foreign then
    foreign.show(answer, grants, holder, first)
  elseif holder == '*' then
    sharers().show(answer, lock, entries)
  elseif holder == 0 then
    -- Free, and yet not granted.
    answer[4], answer[5] = false, 2
  end
  return answer
end

---
-- An operation begins as soon as the functions that it needs are there.

local now, wanted

if operation == 'acquire' then
  if type(holder) == 'table' then
    holder = holder_of(lock, redis.call, grants, me)
  end
  now, wanted = clock(), false
  if sharers and holder == '*' then
    holder = sharers().purge(lock, entries, now)
    if not holder and rest and rest(entries, now) then
      holder = 0
    end
  end
  -- 0 as on the path of a free lock.
  if holder == me and is_short and is_short(redis.call('PTTL', lock) * 1000, now) then
    redis.call('DEL', lock)
    holder = 0
  end
  -- The request was repeated because its reply was lost.
  if holder == me then
    redis.call('PEXPIRE', lock, ttl)
    local _, counter, owner = last_grant(grants)
    return owner == me and counter or count(grants, me, told, now)
  end
  local resting = not holder and rest and rest(entries, now)
  if not holder then
    if sharers and redis.call('HGET', entries, 'load') then
      sharers().forget(lock, entries)
    end
    local first, more = first_live(queue, entries, now)
    if not resting and (first == me or not (first or more)) then
      take(lock, me, ttl)
      if foreign then
        foreign.again(entries, ttl)
      end
      if first then
        drop_entry(queue, entries, me)
      end
      return count(grants, me, told, now)
    end
    if first and not resting then
      holder = hand_on(lock, queue, entries, grants, channels, now)
    else
      -- The path of a free lock took it. The next caller goes on to look for the first live entry.
      redis.call('DEL', lock)
    end
  elseif sharers and holder == '*' then
    hand_on(lock, queue, entries, grants, channels, now, holder)
  end
end

-- Grants what can be granted after a change: a free lock, and shares beside a shared one, from which ended shares are removed
-- first.
local function settle(lock, queue, entries, grants, channels, holder, now)
  if sharers and holder == '*' then
    now = now or clock()
    holder = sharers().purge(lock, entries, now)
    if not holder and rest and rest(entries, now) then
      return holder
    end
  elseif holder or rest and rest(entries, now) then
    return holder
  elseif sharers and redis.call('HGET', entries, 'load') then
    sharers().forget(lock, entries)
  end
  return hand_on(lock, queue, entries, grants, channels, now, holder)
end

if operation == 'share' then
  wanted, now = ARGV[6], clock()
  holder = settle(lock, queue, entries, grants, channels, redis.call('GET', lock), now)
  -- The request was repeated because its reply was lost, or its turn has come with it.
  local held_as = holder == '*' and sharers().renew(lock, entries, me, ttl, now)
  if held_as and held_as ~= 4 then
    return held_as
  elseif
    redis.call('EXISTS', queue) == 0 and (not holder or holder == '*' and sharers().fit(lock, entries, wanted))
    and not (rest and rest(entries, now))
  then
    local counter = count(grants, me, told, now)
    sharers().join(lock, entries, holder, me, wanted, ttl, counter, told, now)
    return counter
  end
end

-- Joins the queue for a lock that cannot be granted now, or only behind more ended entries than one call drops.
if operation == 'acquire' or operation == 'share' then
  -- A foreign client that holds has had a turn. A full server must refuse the first write of a new entry.
  local had_turn = foreign and foreign.hold(holder, grants)
  if ARGV[wanted and 7 or 6] == 'try' then
    -- That the lock is held is true where nothing can be written, too.
    if had_turn then
      redis.pcall('HDEL', entries, 'turns')
    end
    return waits(lock, entries, grants, holder, sweep == 0 and 0 or -1, false)
  end
  local last, its = unpack(redis.call('ZREVRANGE', queue, '0', '0', 'WITHSCORES'))
  local alone = not last
  local score = its and (#its > #now or its >= now) and number(its + 1) or now
  if redis.call('ZADD', queue, 'NX', score, me) == 0 then
    score, last = redis.call('ZSCORE', queue, me), nil
  end
  local entry = ttl .. ' ' .. told
  if wanted then
    entry = '0' .. entry .. ' ' .. wanted
  end
  redis.call('HSET', entries, me, entry, 'u:' .. me, now + ttl * 1000)
  if had_turn then
    redis.call('HDEL', entries, 'turns')
  end
  keep(queue, ttl)
  keep(entries, ttl)
  if alone then
    return waits(lock, entries, grants, holder, due(lock, queue, entries, grants, holder, now, now), true)
  end
  local ends = before(queue, entries, score, now, last)
  -- Each new entry drops two that have ended, so that they do not pile up while the lock stays held.
  before(queue, entries, number(now - ttl * 1000), now)
  return waits(lock, entries, grants, holder, due(lock, queue, entries, grants, holder, ends, now), ends == now)
end

-- Passes the holder's lock to the next waiter, or frees it. Returns whether it is free while a waiter may be behind more
-- ended entries than a call drops.
local function let_go(lock, queue, entries, grants, channels)
  if stand_back and stand_back(lock, queue, entries, grants, channels) then
    return false
  end
  local owner, more = hand_on(lock, queue, entries, grants, channels)
  if not owner then
    free(lock)
    redis.call('HDEL', entries, 'revoked')
    if foreign then
      foreign.forget(entries, more, grants)
    end
  end
  return more
end

-- An entry of `score` has left. The entry behind it gets a message when to refresh, if its renewal comes later.
local function tell_next(lock, queue, entries, grants, channels, holder, score)
  local owner, its = unpack(redis.call(
    'ZRANGE', queue, '(' .. score, '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES'))
  local entry = owner and redis.call('HGET', entries, owner) or ''
  local ttl, inbox = string.match(string.sub(entry, 1, LONGEST), '^(%d+) (%S+) ')
  if not ttl then
    return
  end
  local now = clock()
  local asks = due(lock, queue, entries, grants, holder, before(queue, entries, its, now), now)
  if asks >= 0 and asks < ((live_until(entries, owner, now) or now) - now) / 1000 - ttl * 2 / 3 then
    tell(channels, inbox, 'due', owner, number(asks), lock)
  end
end

if operation == 'release' then
  -- The first write of each path is one that a full server accepts. The holder is not in the queue.
  if held then
    return let_go(lock, queue, entries, grants, channels) and 5 or 1
  end
  if sharers and holder == '*' and sharers().leave(lock, entries, me) then
    local _, more = settle(lock, queue, entries, grants, channels, holder)
    return more and 5 or 1
  end
  local score = redis.call('ZSCORE', queue, me)
  local waited = drop_entry(queue, entries, me)
  local resting = not holder and rest and rest(entries)
  -- The entries behind this one may have waited for it alone.
  local has_it, more = settle(lock, queue, entries, grants, channels, holder)
  if waited and (holder or resting) then
    tell_next(lock, queue, entries, grants, channels, has_it, score)
  end
  return (waited and 2 or 0) + (more and 4 or 0)
end

-- The grace of `holder`, if its lock was revoked.
local function asked_of(entries, holder)
  local note = string.sub(redis.call('HGET', entries, 'revoked') or '', 1, LONGEST)
  local asked, grace = string.match(note, '^(%S+) (%d+)$')
  return asked == holder and grace
end

if operation == 'renew' then
  local hears_slot = string.byte(ARGV[3]) == 123

  -- A counter that is held for a day is still known after it.
  local function outlive(grants, counter, ttl, now)
    if now / 1000 + 2 * ttl > counter / 1000 + DAY then
      keep(grants, DAY)
    end
  end

  local function renew(lock, queue, entries, grants, me, ttl, now)
    local holder = settle(lock, queue, entries, grants, channels, holder_of(lock, redis.pcall, grants, me), now)
    if holder == me and is_short and is_short(redis.call('PTTL', lock) * 1000, now) then
      return { 4 }
    end
    if holder == me then
      redis.call('PEXPIRE', lock, ttl)
      local _, counter, owner = last_grant(grants)
      if owner ~= me then
        -- The record was lost, and with it the holder's info.
        counter = count(grants, me, ARGV[3] .. ' 0 ', now)
      else
        outlive(grants, counter, ttl, now)
      end
      local grace = asked_of(entries, me)
      if not grace then
        return { 1, counter }
      end
      -- The message may have been lost; the holder keeps the lock until it knows.
      keep(entries, ttl)
      return { 2, counter, grace }
    end
    local shared_as = sharers and holder == '*' and sharers().renew(lock, entries, me, ttl, now)
    if shared_as and shared_as ~= 4 then
      outlive(grants, shared_as, ttl, now)
      local grace = redis.call('HGET', entries, 'r:' .. me)
      return grace and { 2, shared_as, grace } or { 1, shared_as }
    end
    local score = not shared_as and redis.call('ZSCORE', queue, me)
    if not score then
      return { shared_as or 3 }
    end
    if not live_until(entries, me, now) then
      drop_entry(queue, entries, me)
      return { 3 }
    end
    redis.call('HSET', entries, 'u:' .. me, now + ttl * 1000)
    local entry = hears_slot and redis.call('HGET', entries, me)
    if entry then
      -- It may have entered with another inbox.
      redis.call('HSET', entries, me, (string.gsub(entry, '^(%d+) %S+', '%1 ' .. ARGV[3], 1)))
    end
    keep(queue, ttl)
    keep(entries, ttl)
    local ends = before(queue, entries, score, now)
    return waits(lock, entries, grants, holder, due(lock, queue, entries, grants, holder, ends, now), ends == now)
  end

  write_on_a_full_server(queue)
  local now = clock()
  local answers = {}
  for i = 1, #KEYS / 5 do
    local lock, queue, entries, grants = KEYS[5 * i - 4], KEYS[5 * i - 3], KEYS[5 * i - 2], KEYS[5 * i - 1]
    answers[i] = renew(lock, queue, entries, grants, ARGV[2 * i + 2], ARGV[2 * i + 3], now)
  end
  return answers
end

