-- Locks under our own keys, exclusive and shared. base.lua explains keys, operations and replies; here are also:
--
-- ARGV  the last: "~PAUSE_UNTIL LAG_UNTIL", unless the server grants at once. Until the first time nothing is granted that may
--       have holders which the server has forgotten: no free lock, and no share beside others. Until the second one a primary
--       that was replaced may go on: it may end a lease and grant the lock again, so no lease is renewed that ends before
--
-- operation  arguments                                    replies
-- share      as `acquire`, with "WEIGHT CAPACITY" behind  as `acquire`
--            "INBOX INFO"
-- acquire                                                 of a shared lock, {..., a holder, its weight, capacity and
--                                                         record}; of a free one that is not granted {..., nothing, 2}
-- revoke                                                  of a shared lock, {2, 1 to call `release` or else 0,
--                                                         {LEASE_LEFT, weight, capacity and record} of each}
-- inspect                                                 of a shared lock, {WAITING, 2, weight, capacity and record of each}
--
-- A lock is shared as long as the weights of its holders are at most the smallest of their capacities. An exclusive lock is 1
-- of 1, and is kept as if there were no other.
--
-- lock     "*" while it is shared, with the last of the leases as expiry. While it is anything else, or gone, it has no
--          shared holders, whatever the following keys still say
-- sharers  owner ids of the shared holders, scored by the ends of their leases. It outlives the lock by a lease, so that the
--          next call finds what the last holders have left
-- entries  "h:ID" -> "WEIGHT CAPACITY" and the record of the grant of each shared holder;
--          "r:ID" -> its grace, if the lock was revoked;
--          "load" -> "WEIGHT CAPACITY" of all of them, with "?" behind it if the capacity may have become larger

if operation == 'release' then
  holder = redis.pcall('GET', lock)
  held = holder == me
  -- Each waiter has an entry, and so has a revocation.
  if held and redis.call('EXISTS', entries) == 0 then
    redis.call('DEL', lock)
    return 1
  end
end

---
local pause_until, lag_until = string.match(ARGV[#ARGV], '^~(%d+) (%d+)$')

if operation == 'acquire' then
  if pause_until and pause_until - clock() > 0 then
    -- 0 stands for no holder where a free lock is not granted: all else treats it as held.
    holder = redis.call('GET', lock) or 0
  else
    -- A full server refuses this. What follows may still answer the holder.
    holder = redis.pcall('SET', lock, me, 'NX', 'PX', ttl, 'GET')
    if not holder and redis.call('EXISTS', queue) == 0 then
      return count(grants, me, told, clock())
    end
  end
end

local holder_of, take, give, free, rest, stand_back, is_short, sharers
local look, foreign = redis.pcall, false

---
-- The value of the lock; a key of another type is the lock of another client.
function holder_of(lock, ask)
  return ask('GET', lock)
end

function take(lock, owner, lease)
  redis.call('SET', lock, owner, 'PX', lease)
end

give = take

function free(lock)
  redis.call('DEL', lock)
end

if pause_until then
  function is_short(left, now)
    return left < lag_until - now
  end

  function rest(_, now)
    local left = math.ceil((pause_until - (now or clock())) / 1000)
    return left > 0 and left
  end

  -- The first waiter gets a message when the pause ends.
  function stand_back(lock, queue, entries, _, channels)
    local left = rest(entries)
    if not left then
      return false
    end
    free(lock)
    redis.call('HDEL', entries, 'revoked')
    local owner, _, _, _, _, inbox = first_live(queue, entries)
    if owner then
      tell(channels, inbox, 'due', owner, number(left), lock)
    end
    return true
  end
end

-- The functions of shared locks, which are created when a call first meets one.
local made
function sharers()
  if made then
    return made
  end
  local ENDLESS = 4294967295
  local shares = {}

  local holders_of = {}
  for i = 1, #KEYS, 5 do
    holders_of[KEYS[i]] = KEYS[i + 4]
  end

  local function mode(text)
    local weight, capacity = string.match(text or '', '^([1-9]%d*) ([1-9]%d*)')
    return tonumber(weight), tonumber(capacity)
  end

  local function record_of(entries, owner)
    return string.sub(redis.call('HGET', entries, 'h:' .. owner) or '', 1, LONGEST)
  end

  -- Returns nothing if it is not known.
  local function known_load(entries)
    local weight, capacity, unsure = string.match(redis.call('HGET', entries, 'load') or '', '^(%d+) (%d+)(%??)$')
    return tonumber(weight), tonumber(capacity), unsure == '?'
  end

  local function note_load(entries, weight, capacity, unsure)
    redis.call('HSET', entries, 'load', number(weight) .. ' ' .. number(capacity) .. (unsure and '?' or ''))
  end

  -- Adds up all holders. One without a record counts as exclusive.
  local function weigh(lock, entries)
    local weight, capacity = 0, ENDLESS
    for _, owner in ipairs(redis.call('ZRANGE', holders_of[lock], '0', '-1')) do
      local its, most = mode(record_of(entries, owner))
      weight, capacity = weight + (its or 1), math.min(capacity, most or 1)
    end
    note_load(entries, weight, capacity)
    keep(entries, math.max(redis.call('PTTL', lock), 1))
    return weight, capacity, false
  end

  local function load_of(lock, entries)
    local weight, capacity, unsure = known_load(entries)
    if weight then
      return weight, capacity, unsure
    end
    return weigh(lock, entries)
  end

  -- Until the next call has seen their leases end.
  local function keep_holders(lock, lease)
    keep(holders_of[lock], 2 * lease)
  end

  -- Whether a share of that mode fits beside the others, and may be granted.
  function shares.fit(lock, entries, wanted)
    if rest and rest(entries) then
      return false
    end
    local weight, capacity = mode(wanted)
    weight, capacity = weight or 1, capacity or 1
    local held, most, unsure = load_of(lock, entries)
    if unsure and held + weight > most and held + weight <= capacity then
      held, most = weigh(lock, entries)
    end
    return held + weight <= math.min(most, capacity)
  end

  -- Ends the share of `owner` alone. The first write frees memory.
  local function part(lock, entries, owner)
    redis.call('ZREM', holders_of[lock], owner)
    local weight, capacity = mode(record_of(entries, owner))
    local held, most, unsure = known_load(entries)
    redis.call('HDEL', entries, 'h:' .. owner, 'r:' .. owner)
    if weight and held and weight < held then
      note_load(entries, held - weight, most, unsure or capacity <= most)
    else
      redis.call('HDEL', entries, 'load')
    end
  end

  -- Ends shares that were lost with their lock.
  function shares.forget(lock, entries)
    local holders = holders_of[lock]
    for _, owner in ipairs(redis.call('ZRANGE', holders, '0', '-1')) do
      part(lock, entries, owner)
    end
    redis.call('HDEL', entries, 'load')
  end

  -- Gives `owner` a share, beside the others if there is a `holder`.
  function shares.join(lock, entries, holder, owner, wanted, lease, counter, told, now)
    local holders, weight, capacity = holders_of[lock], mode(wanted)
    weight, capacity = weight or 1, capacity or 1
    if holder then
      local held, most, unsure = load_of(lock, entries)
      note_load(entries, held + weight, math.min(most, capacity), unsure)
      keep(lock, lease)
    else
      shares.forget(lock, entries)
      note_load(entries, weight, capacity)
      redis.call('SET', lock, '*', 'PX', lease)
    end
    redis.call('ZADD', holders, number(now + lease * 1000), owner)
    local its = { number(weight), number(capacity), counter, owner, now, told }
    redis.call('HSET', entries, 'h:' .. owner, table.concat(its, ' '))
    keep_holders(lock, lease)
    keep(entries, lease)
  end

  -- Ends the shares whose leases are over, and the lock with the last of them. Returns the holder then.
  function shares.purge(lock, entries, now)
    local holders = holders_of[lock]
    local ended = redis.call('ZRANGE', holders, '-inf', now, 'BYSCORE', 'LIMIT', '0', number(sweep))
    for _, owner in ipairs(ended) do
      part(lock, entries, owner)
    end
    sweep = sweep - #ended
    if redis.call('EXISTS', holders) == 1 then
      return '*'
    end
    redis.call('DEL', lock)
    redis.call('HDEL', entries, 'load')
    return false
  end

  -- Whether `owner` has a share whose lease is not over.
  local function has_share(lock, owner, now)
    local ends = redis.call('ZSCORE', holders_of[lock], owner)
    return ends and tonumber(ends) > tonumber(now)
  end

  -- Extends the share of `owner`; returns its counter, nothing if it has none, or 4 as `renew`.
  function shares.renew(lock, entries, owner, ttl, now)
    local holders = holders_of[lock]
    local counter = has_share(lock, owner, now) and string.match(record_of(entries, owner), '^%d+ %d+ (%d+) ')
    if counter and is_short and is_short(redis.call('ZSCORE', holders, owner) - now, now) then
      return 4
    elseif counter then
      write_on_a_full_server(holders)
      redis.call('ZADD', holders, 'XX', number(now + ttl * 1000), owner)
      keep(lock, ttl)
      keep_holders(lock, ttl)
      keep(entries, ttl)
    end
    return counter
  end

  -- Ends the share of `owner`; returns whether it had one. The lock's key ends with the last remaining share, for a client
  -- that knows that key alone.
  function shares.leave(lock, entries, owner)
    local now = clock()
    local had = has_share(lock, owner, now)
    if had then
      part(lock, entries, owner)
      local last = redis.call('ZRANGE', holders_of[lock], '0', '0', 'REV', 'WITHSCORES')[2]
      if last then
        redis.call('PEXPIRE', lock, math.max(math.ceil((last - now) / 1000), 1))
      end
    end
    return had
  end

  -- In how many milliseconds the first entry of the queue asks: when shares are granted again, or else when a share ends. An
  -- entry behind it also asks when the first one has ended.
  function shares.due(lock, queue, entries, first, now)
    local resting = rest and rest(entries, now)
    if resting then
      return resting
    end
    local ends = redis.call('ZRANGE', holders_of[lock], '0', '0', 'WITHSCORES')[2] or now
    if not first then
      local head = redis.call('ZRANGE', queue, '0', '0')[1]
      ends = math.min(ends, head and live_until(entries, head, now) or now)
    end
    return math.max(math.ceil((ends - now) / 1000), 0)
  end

  -- Names one of the holders.
  function shares.show(answer, lock, entries)
    local owner = redis.call('ZRANGE', holders_of[lock], '0', '0')[1] or ''
    answer[4], answer[5] = string.sub(owner, 1, LONGEST), record_of(entries, owner)
  end

  -- Adds the records of the holders whose leases are not over.
  function shares.list(answer, lock, entries, now)
    for _, owner in ipairs(redis.call('ZRANGE', holders_of[lock], '(' .. now, '+inf', 'BYSCORE')) do
      answer[#answer + 1] = record_of(entries, owner)
    end
  end

  -- Revokes each share or, with "force", ends it. Adds what is left of each lease, and its record.
  function shares.revoke(answer, lock, entries, channels, grace, now)
    local forced = grace == 'force'
    local owners = redis.call('ZRANGE', holders_of[lock], '0', '-1', 'WITHSCORES')
    for i = 1, #owners, 2 do
      local owner, record, its = owners[i], record_of(entries, owners[i]), forced and '0' or grace
      if forced then
        part(lock, entries, owner)
      else
        -- The message of an earlier revocation may have been lost: the shortest grace counts.
        local noted = string.match(redis.call('HGET', entries, 'r:' .. owner) or '', '^%d+$')
        if noted and tonumber(noted) < tonumber(grace) then
          its = noted
        end
        redis.call('HSET', entries, 'r:' .. owner, its)
      end
      local inbox = string.match(record, '^%d+ %d+ %d+ %S+ %d+ (%S+)')
      if inbox then
        tell(channels, inbox, 'revoked', owner, its, lock)
      end
      answer[#answer + 1] = { math.max(math.ceil((owners[i + 1] - now) / 1000), 0), record }
    end
    if not forced then
      keep(entries, math.max(redis.call('PTTL', lock), 1))
    end
  end

  made = shares
  return shares
end

