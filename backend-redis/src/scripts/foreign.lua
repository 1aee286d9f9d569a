-- Locks under keys of other libraries. base.lua explains keys, operations and replies; here are also:
--
-- ARGV  the last: "FORMAT POLL AFTER EVERY FOR", and with `spring` " CHANNELS" besides, the prefix of its channels. Locks of
--       `redisson` are hashes, those of all other formats strings. The first waiter asks every POLL
--       milliseconds whether a foreign holder has released. Foreign clients have a turn of FOR milliseconds when our waiters
--       had AFTER grants in a row, or had grants for EVERY milliseconds
-- KEYS  with `python-redis-lock` the last is the list on which its clients wait
--
-- operation  replies
-- acquire    of a foreign holder {0, ASK_IN, record of the last grant, nothing, 1 if no entry of ours is before it or else 0}.
--            The value of its lock is never shown, because it is enough to release the lock
--
-- lock     a string, of which only the holder knows the value; of `redisson` a hash of one field: its holder, and how often
--          that has entered. Ours is the owner id, written as a client of Redisson in its first thread
-- entries  "turns" -> "COUNT SINCE", our grants in a row; a grant soon after a release to no waiter counts, too;
--          "rest" -> "UNTIL MS", until when foreign clients have their turn, and how long that is
-- grants   ~ stands before ID after that was released to no waiter: the same id is a foreign client's then

---
local format, POLL, AFTER, EVERY, FOR, CHANNELS = string.match(
  ARGV[#ARGV], '^(%S+) (%d+) (%d+) (%d+) (%d+) ?(.*)$')
POLL, AFTER, EVERY, FOR = tonumber(POLL), tonumber(AFTER), tonumber(EVERY), tonumber(FOR)

-- A grant so many milliseconds after a release to no waiter comes before a polling client is likely to see the lock free.
local SOON = math.ceil(FOR / 3)

local holder_of, take, give, free, may_wait, rest, stand_back, foreign
local look, sharers, is_short = redis.call, false, false

-- The lock is free without a waiter: keeps the turns so far for a grant soon after.
local function keep_turns(entries, turns)
  if FOR > 0 then
    redis.call('HSET', entries, 'turns', turns)
    redis.call('PEXPIRE', entries, SOON)
  end
end

local function end_grant(grants)
  local record, counted = string.gsub(redis.call('GET', grants) or '', '^(%d+ )(%x)', '%1~%2')
  if counted == 1 then
    redis.call('SET', grants, record, 'KEEPTTL')
  end
end

-- A key that is no lock of the format stays as it is, and the error says so.
local function refuse(lock, found)
  local kind = redis.pcall('TYPE', lock).ok or 'thing of another type'
  error({ err = 'NOLOCK the key "' .. lock .. '" is a ' .. kind .. found })
end

-- Whether a reply is an error; with redis.call it is raised.
local function fails(answer, lock, ask)
  local wrong = type(answer) == 'table' and answer.err
  if wrong and ask == redis.call then
    if string.find(wrong, '^WRONGTYPE') then
      refuse(lock, '')
    end
    error({ err = wrong })
  end
  return wrong
end

if format ~= 'redisson' then
  -- At most the length of our ids is read, however long the value is.
  function holder_of(lock, ask)
    local holder = redis.pcall('GETRANGE', lock, 0, 2047)
    fails(holder, lock, ask)
    return (holder ~= '' or redis.call('EXISTS', lock) == 1) and holder
  end

  function take(lock, owner, lease)
    redis.call('SET', lock, owner, 'PX', lease)
  end

  give = take

  -- Clients of python-redis-lock wait for an element of the list, which is there for a second; those of Spring for the message.
  function free(lock)
    if format == 'python-redis-lock' then
      redis.pcall('DEL', KEYS[5])
      redis.pcall('LPUSH', KEYS[5], '1')
      redis.pcall('PEXPIRE', KEYS[5], '1000')
    end
    redis.call('DEL', lock)
    if format == 'spring' then
      redis.pcall('PUBLISH', CHANNELS .. lock, lock)
    end
  end

  -- A client that polls, waits on a list or subscribes to a pattern cannot be counted.
  function may_wait()
    return true
  end
else
  -- Redisson's clients wait on this channel. They add no braces to a name that has some.
  local function channel(lock)
    if string.find(lock, '{', 1, true) then
      return 'redisson_lock__channel:' .. lock
    end
    return 'redisson_lock__channel:{' .. lock .. '}'
  end

  local function field(owner)
    local part = function(from, to) return string.sub(owner, from, to) end
    return table.concat({ part(1, 8), part(9, 12), part(13, 16), part(17, 20), part(21) }, '-') .. ':1'
  end

  -- Recognizes `me` and the owner of the last grant, and no other. The hash is not read, because it may be large.
  function holder_of(lock, ask, grants, me)
    local count = redis.pcall('HLEN', lock)
    if fails(count, lock, ask) then
      return count
    elseif count == 0 then
      return false
    end
    if count == 1 then
      for _, owner in ipairs({ me or '', string.match(redis.call('GET', grants) or '', '^%d+ (%x+) ') }) do
        if #owner == 32 and redis.call('HEXISTS', lock, field(owner)) == 1 then
          return owner
        end
      end
      if redis.call('HEXISTS', lock, 'mode') == 0 then
        return ':'
      end
    end
    -- A read-write lock, or no lock.
    if ask == redis.call then
      refuse(lock, ' with more than a holder')
    end
    return {}
  end

  -- A full server refuses the first write, so none may be before it.
  function take(lock, owner, lease)
    redis.call('HSET', lock, field(owner), 1)
    redis.call('PEXPIRE', lock, lease)
  end

  function give(lock, owner, lease)
    redis.call('DEL', lock)
    take(lock, owner, lease)
  end

  -- Redisson's waiters sleep until this message, and read only numbers.
  function free(lock)
    redis.call('DEL', lock)
    redis.pcall('PUBLISH', channel(lock), '0')
  end

  -- Without the right to see the listeners, there may be some.
  function may_wait(lock)
    local listen = redis.pcall('PUBSUB', 'NUMSUB', channel(lock))
    return listen.err or tonumber(listen[2]) > 0
  end
end

if operation == 'acquire' then
  holder = holder_of(lock, redis.call, grants, me)
  if not holder and redis.call('EXISTS', queue, entries) == 0 then
    take(lock, me, ttl)
    return count(grants, me, told, clock())
  end
elseif operation == 'release' then
  holder = holder_of(lock, redis.pcall, grants, me)
  held = holder == me
  if held and redis.call('EXISTS', entries) == 0 then
    free(lock)
    end_grant(grants)
    keep_turns(entries, '0 ' .. clock())
    return 1
  end
end

---
-- A rest is over, too, if it would be longer than it was meant because the clock was set back.
function rest(entries, now)
  local ends, longest = string.match(redis.call('HGET', entries, 'rest') or '', '^(%d+) (%d+)$')
  local left = ends and math.ceil((ends - (now or clock())) / 1000) or 0
  return left > 0 and left <= tonumber(longest) and left
end

-- Foreign clients have their turn after ours had theirs, if some may wait.
function stand_back(lock, queue, entries, grants, channels)
  local turns, since = string.match(redis.call('HGET', entries, 'turns') or '', '^(%d+) (%d+)$')
  if not turns or FOR == 0 then
    return false
  end
  local now = clock()
  if tonumber(turns) < AFTER and now - since < EVERY * 1000 then
    return false
  end
  local owner, more, _, _, _, inbox = first_live(queue, entries, now)
  if more or not may_wait(lock) then
    return false
  end
  free(lock)
  end_grant(grants)
  redis.call('HSET', entries, 'rest', number(now + FOR * 1000) .. ' ' .. FOR)
  redis.call('HDEL', entries, 'turns', 'revoked')
  keep(entries, FOR)
  if owner then
    tell(channels, inbox, 'due', owner, FOR, lock)
  end
  return true
end

foreign = {}

-- Whether the holder is a foreign client.
function foreign.hold(holder, grants)
  local _, _, owner = last_grant(grants)
  return holder and holder ~= owner
end

-- Of a free lock the last owner is shown.
function foreign.show(answer, grants, holder, first)
  local _, _, owner = last_grant(grants)
  if holder and holder ~= owner then
    answer[4], answer[5] = false, first and 1 or 0
  else
    answer[4], answer[5] = owner or false, 0
  end
end

-- No message tells of a foreign client's release, so the first waiter polls.
function foreign.due(left, grants, holder, first)
  if first and foreign.hold(holder, grants) then
    return left < 0 and POLL or math.min(left, POLL)
  end
  return left
end

-- A waiter of ours is granted the lock by its holder.
function foreign.pass(entries, now, lease)
  local turns, since = string.match(redis.call('HGET', entries, 'turns') or '', '^(%d+) (%d+)$')
  redis.call('HSET', entries, 'turns', number((turns or 0) + 1) .. ' ' .. (since or now))
  redis.call('HDEL', entries, 'rest')
  keep(entries, lease)
end

-- A free lock is acquired. Soon after a release, that is as if a waiter had been granted it.
function foreign.again(entries, lease)
  local turns, since = string.match(redis.call('HGET', entries, 'turns') or '', '^(%d+) (%d+)$')
  if turns then
    redis.call('HSET', entries, 'turns', number(turns + 1) .. ' ' .. since)
    keep(entries, lease)
  end
end

-- The lock is free without a waiter of ours, unless there are `more`.
function foreign.forget(entries, more, grants)
  end_grant(grants)
  local turns = redis.call('HGET', entries, 'turns') or '0 ' .. clock()
  redis.call('HDEL', entries, 'turns', 'rest')
  if not more then
    keep_turns(entries, turns)
  end
end

