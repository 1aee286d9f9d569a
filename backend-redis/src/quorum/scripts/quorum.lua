-- Votes of one server of a quorum. tell.lua stands at the line of three dashes. FORMAT is the format of the manager. Where the
-- namespace has another one, the server votes, confirms and renews as if it might have forgotten votes.
--
-- operation  KEYS                        ARGV behind the operation
-- vote       vote, count, space          ballot, ttl, proposal, end of its number, "SINCE INBOX INFO", terms, run; and how it waits.
--                                        Omitted: it waits, and has no place among the waiting ones; else 0 neither, 2 it may
--                                        have a place, 3 it waits and may have a place
-- confirm    vote, count, space          ballot, ttl, n, token, run
-- renew      vote, count, asked of       ballot, n, ttl of each; run
--            each; space
-- release    vote                        ballot, "INBOX CHANNELS", and the ttl if the contender waits on
-- revoke     vote, count, waits, asked   channels, owner, grace or "force"
-- inspect    vote, count, waits of each
-- admit      space                       run, 1 if it has followed another server or else 0, terms, the pause of a manager that
--                                        may hold by them or 0, an id for a new episode; and of a manager that has looked at
--                                        all servers: the episode it found, the clocks it had then, the clocks of all, 1 if any
--                                        server ever had a floor or else 0
-- install    space                       episode, floor, terms, the episodes that were blank beside it, the terms and the pause
--                                        that it had, 1 if it needs an id or else 0
--
-- operation  replies
-- vote       N or {1, now, N}: it has voted. {0, now, ASK_IN, ballot, record of that vote}: another ballot has the vote, and
--            loses it then at the earliest; the record may be missing. {2, now}: the request is of an earlier round. {3, now}:
--            the server may have forgotten votes. {4, now, terms}: it has other terms, or none
-- confirm    1 if the vote was there, or 0. The request may be repeated, so the number is from N to the token
-- renew      of each: {1} renewed; {2, GRACE} renewed, and revoked; {0} gone; {3} there, and not extended because the server
--            may have forgotten other votes
-- release    1 if the owner had the vote in that round or an earlier one, or 0
-- revoke     1 if the owner had the vote, or 0
-- inspect    of each: {WAITING, ballot or nothing, record of that vote or nothing}
-- admit      the format of the namespace if it is another one; or {now, 1 if it is whole or else 0, max, 1 if it was whole in
--            an earlier run and has the data of it or else 0, 1 if it ever had a floor or met a server that had or else 0,
--            the longest pause, terms, beside, clocks, id, episode}
-- install    1, or 0 if the server is whole, has forgotten again, or was met by others since
--
-- vote    the ballot that has the vote, "OWNER:TICKET:ROUND", with the lease as expiry
-- count   "N BALLOT SINCE INBOX INFO" of the last vote
-- waits   "OWNER INBOX" of the waiting contenders, scored by their tickets
-- asked   "BALLOT GRACE" of the holder that was revoked
-- space   of the namespace: the run of the server that knows it, its last blank episode, the run in which it is whole or else
--         0, the floor of its numbers, a number above all of them (max), the terms of all managers, and the episodes that were
--         blank beside its own if a clock stood for its floor
--
-- A key or an argument costs the server as much as a short command: a free lock has few of them. The keys of one name
-- have the same text before their suffixes.
--
-- Times are of this server: tickets and numbers in microseconds, leases and ends in milliseconds. Results of arithmetic become
-- text by %.0f, because Lua's own form loses digits.

local operation = ARGV[1]

-- A free lock is voted for, and its vote ended, before any function is created.
local vote, count = KEYS[1], KEYS[2]
local ballot, ttl, about, terms, run, has_place
local space, known, proposed, max, voted, last, name

if operation == 'vote' then
  local proposal, ends = ARGV[4], ARGV[5]
  ballot, ttl, about, terms, run, space = ARGV[2], ARGV[3], ARGV[6], ARGV[7], ARGV[8], KEYS[3]
  has_place = (ARGV[9] or '1') > '1'
  known = redis.call('HMGET', space, 'whole', 'terms', 'floor', 'max', 'format')
  if (known[5] or FORMAT) ~= FORMAT then
    known[1] = '0'
  end
  proposed, max = tonumber(proposal), tonumber(known[4]) or 0
  if not has_place and known[1] == run and known[2] == terms and proposed > tonumber(known[3]) and proposed <= max then
    -- A full server refuses this, and may have more to say below.
    voted = redis.pcall('SET', vote, ballot, 'NX', 'PX', ttl, 'GET')
    if not voted then
      -- No clock is read: the number is above the last one, and the key lives until a day after it. Where no number is
      -- remembered nothing is written.
      last = redis.call('SET', count, proposal .. ' ' .. ballot .. ' ' .. about, 'XX', 'PXAT', ends, 'GET') or ''
      local counted = tonumber(string.match(last, '^%d+'))
      if counted and counted < proposed then
        return proposed
      end
    end
  end
end

if operation == 'release' then
  ballot, ttl, name = ARGV[2], ARGV[4], string.sub(vote, 1, -5)
  voted = redis.call('GET', vote)
  -- No contender waits, and none revoked it.
  if voted == ballot and not ttl and redis.call('EXISTS', name .. 'waits', name .. 'asked') == 0 then
    redis.call('DEL', vote)
    return 1
  end
end

-- In milliseconds.
local DAY = 86400000

local function text(number)
  return string.format('%.0f', number)
end

local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- The key lives until the clock has passed the number by a day, also a clock that was set back; and a day after `at`, if that
-- is later.
local function write(count, n, rest, at)
  redis.call('SET', count, text(n) .. ' ' .. rest, 'PXAT', text(math.ceil(math.max(n, at) / 1000) + DAY))
end

-- Adds a waiting contender; returns how many are before it.
local function wait(waits, ticket, member, now, ends)
  redis.call('ZADD', waits, ticket, member)
  if now + redis.call('PTTL', waits) < ends then
    redis.call('PEXPIREAT', waits, text(ends))
  end
  return redis.call('ZRANK', waits, member)
end

-- Another ballot has the vote, the server gives none, its number is larger or forgotten, or the contender may have a place.
if operation == 'vote' then
  local now = clock()
  if known[1] ~= run then
    return { 3, now }
  end
  if known[2] ~= terms then
    return { 4, now, known[2] or nil }
  end

  local owner, ticket, round = string.match(ballot, '^(%x+):(%d+):(%d+)$')
  local member = owner .. ' ' .. string.match(about, '^%S+ (%S+)')
  local waits, millis = string.sub(vote, 1, -5) .. 'waits', math.floor(now / 1000)
  -- The path of a free lock has overwritten the last record.
  if not last and type(voted) ~= 'string' then
    voted = redis.call('GET', vote)
  end
  local record = last or redis.call('GET', count) or ''
  local n, counted = string.match(record, '^(%d+) (%S+)')
  if voted then
    local by, latest = string.match(voted, '^(%x+):%d+:(%d+)$')
    if by ~= owner then
      local ends = millis + math.max(redis.call('PTTL', vote), 0)
      local rank = (ARGV[9] or 1) % 2 == 1 and wait(waits, ticket, member, millis, ends + ttl) or 0
      local answer = { 0, now, ends - millis + 1 + math.min(rank * 50, 500), voted }
      if counted == voted then
        answer[5] = record
      end
      return answer
    end
    -- The request was late.
    if tonumber(latest) > tonumber(round) then
      return { 2, now }
    end
  end

  -- A full server refuses this, before anything else is written.
  if not last then
    redis.call('SET', vote, ballot, 'PX', ttl)
  end
  if voted == ballot and counted == ballot then
    n = tonumber(n)
  else
    -- The clock stands for a number that is not remembered.
    n = math.max(n and n + 1 or now, proposed, known[3] + 1)
    -- A number that was proposed ends by its own value, as where no clock is read.
    write(count, n, ballot .. ' ' .. about, n == proposed and n or now)
  end
  if has_place then
    redis.call('ZREM', waits, member)
  end
  -- For the next second: until then numbers need not be noted one by one.
  if n > max then
    redis.call('HSET', space, 'max', text(n + 1000000))
  end
  return { 1, now, n }
end

-- Writes a token, if that very vote is still there and the server knows all its votes.
if operation == 'confirm' then
  local space, token = KEYS[3], tonumber(ARGV[5])
  local known = redis.call('HMGET', space, 'whole', 'max', 'format')
  local n, counted, rest = string.match(redis.call('GET', count) or '', '^(%d+) (%S+) (.*)$')
  n = tonumber(n)
  if redis.call('GET', vote) ~= ARGV[2] or counted ~= ARGV[2] or n < tonumber(ARGV[4]) or n > token then
    return 0
  end
  -- A vote that came up with the data extends no hold: there may have been others since.
  if known[1] ~= ARGV[6] or (known[3] or FORMAT) ~= FORMAT then
    return 0
  end
  redis.call('PEXPIRE', vote, ARGV[3])
  write(count, token, counted .. ' ' .. rest, clock())
  -- The floor of a blank server must be above this number.
  if (tonumber(known[2]) or 0) < token then
    redis.call('HSET', space, 'max', text(token))
  end
  return 1
end

if operation == 'renew' then
  local known = redis.call('HMGET', KEYS[#KEYS], 'whole', 'format')
  local is_whole = known[1] == ARGV[#ARGV] and (known[2] or FORMAT) == FORMAT

  local function renew(vote, count, asked, ballot, n, ttl)
    local counted, of = string.match(redis.call('GET', count) or '', '^(%d+) (%S+)')
    if redis.call('GET', vote) ~= ballot or of ~= ballot or counted ~= n then
      return { 0 }
    end
    if not is_whole then
      return { 3 }
    end
    redis.call('PEXPIRE', vote, ttl)
    -- Held for a day.
    if redis.call('PTTL', count) < 2 * ttl then
      redis.call('PEXPIRE', count, DAY)
    end
    local by, grace = string.match(redis.call('GET', asked) or '', '^(%S+) (%d+)$')
    if by ~= ballot then
      return { 1 }
    end
    redis.call('PEXPIRE', asked, ttl)
    return { 2, tonumber(grace) }
  end

  local answers = {}
  for i = 1, (#KEYS - 1) / 3 do
    answers[i] =
      renew(KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i], ARGV[3 * i - 1], ARGV[3 * i], tonumber(ARGV[3 * i + 1]))
  end
  return answers
end

---
-- Sends a message to the first waiting contender that listens, and drops those before it and itself: a contender that asks
-- again is in the queue again. Without the right to publish there is no message.
local function wake(waits, channels, vote)
  for _ = 1, 100 do
    local first = redis.call('ZRANGE', waits, 0, 0)[1]
    if not first then
      return
    end
    local owner, inbox = string.match(first, '^(%x+) (.*)$')
    redis.call('ZREM', waits, first)
    local heard = tell(channels, inbox or '', 'freed', owner or '', '0', vote)
    if type(heard) == 'table' or heard > 0 then
      return
    end
  end
end

-- A contender waits, the vote was revoked, or that very ballot has not the vote.
if operation == 'release' then
  local waits, asked = name .. 'waits', name .. 'asked'
  local inbox, channels = string.match(ARGV[3], '^(%S+) (.*)$')
  local owner, ticket, round = string.match(ballot, '^(%x+):(%d+):(%d+)$')
  local by, latest = string.match(voted or '', '^(%x+):%d+:(%d+)$')
  local member = owner .. ' ' .. inbox
  local had = by == owner and tonumber(latest) <= tonumber(round)
  -- First, as a full server accepts it.
  if had then
    redis.call('DEL', vote, asked)
  end
  redis.call('ZREM', waits, member)
  -- The contender that leaves may have received the message of a free vote.
  if had or not (voted or ttl) then
    wake(waits, channels, vote)
  end
  if ttl then
    local millis = math.floor(clock() / 1000)
    wait(waits, ticket, member, millis, millis + ttl)
  end
  return had and 1 or 0
end

if operation == 'revoke' then
  local waits, asked, owner, grace = KEYS[3], KEYS[4], ARGV[3], ARGV[4]
  local voted = redis.call('GET', vote)
  if not voted or string.match(voted, '^(%x+):') ~= owner then
    return 0
  end
  local counted, inbox = string.match(redis.call('GET', count) or '', '^%d+ (%S+) %d+ (%S+) ')
  if grace == 'force' then
    grace = '0'
    redis.call('DEL', vote, asked)
    wake(waits, ARGV[2], vote)
  else
    -- The message of an earlier revocation may have been lost: the shortest grace counts.
    local by, noted = string.match(redis.call('GET', asked) or '', '^(%S+) (%d+)$')
    if by == voted and tonumber(noted) < tonumber(grace) then
      grace = noted
    end
    redis.call('SET', asked, voted .. ' ' .. grace, 'PX', math.max(redis.call('PTTL', vote), 1))
  end
  if counted == voted then
    tell(ARGV[2], inbox, 'revoked', owner, grace, vote)
  end
  return 1
end

-- Changes nothing.
if operation == 'inspect' then
  local answers = {}
  for i = 1, #KEYS / 3 do
    local voted = redis.call('GET', KEYS[3 * i - 2])
    local record = redis.call('GET', KEYS[3 * i - 1]) or ''
    local _, counted = string.match(record, '^(%d+) (%S+)')
    answers[i] = { redis.call('ZCARD', KEYS[3 * i]), voted or '', voted and counted == voted and record or '' }
  end
  return answers
end

-- In another reign, or without its key, the server may have forgotten votes: another episode begins, and the server pauses
-- from when that is first met.
if operation == 'admit' then
  local space, run, terms, pause = KEYS[1], ARGV[2], ARGV[4], tonumber(ARGV[5])
  local fields = { 'run', 'whole', 'max', 'terms', 'beside', 'since', 'claims', 'used', 'pause', 'id', 'episode', 'format' }
  local known = redis.call('HMGET', space, unpack(fields))
  if (known[12] or FORMAT) ~= FORMAT then
    return known[12]
  end
  local whole, since, claims, paused = (known[2] or '0') == known[1], known[6] or '', known[7] == '1', tonumber(known[9]) or 0
  if known[1] ~= run or not (whole or known[11]) then
    whole, claims, since, paused, known[11] = false, whole or claims, '', 0, ARGV[6]
    local begun = { 'run', run, 'whole', '0', 'claims', claims and '1' or '0', 'pause', '0', 'since', '', 'episode', ARGV[6] }
    redis.call('HSET', space, unpack(begun))
  elseif not whole and known[11] == ARGV[7] then
    if since == ARGV[8] then
      since = ARGV[9]
      redis.call('HSET', space, 'since', since)
    end
    if not known[8] and ARGV[10] == '1' then
      known[8] = '1'
      redis.call('HSET', space, 'used', '1')
    end
  end
  -- That holds in the next reign, too.
  if claims and ARGV[3] == '1' then
    claims = false
    redis.call('HSET', space, 'claims', '0')
  end
  if not whole then
    -- Until a manager may hold by them, terms are only proposed, and all servers prefer the same. A server that ever had
    -- a floor has an id: there a manager may hold.
    local is_proposed = known[4] and not known[10] and redis.sha1hex(terms) < redis.sha1hex(known[4])
    local is_better = known[4] and paused == 0 and (pause > 0 or is_proposed)
    if is_better or not known[4] then
      known[4] = terms
      redis.call('HSET', space, 'terms', terms)
    end
    if paused < pause then
      paused = pause
      redis.call('HSET', space, 'pause', text(pause))
    end
  end
  local flag = { [true] = 1, [false] = 0 }
  return {
    clock(), flag[whole], tonumber(known[3]) or 0, flag[claims], known[8] and 1 or 0, paused,
    known[4] or '', known[5] or '', since, known[10] or '', known[11] or '',
  }
end

-- Gives a blank server its floor: from here on it votes.
if operation == 'install' then
  local space = KEYS[1]
  local known = redis.call('HMGET', space, 'episode', 'whole', 'max', 'terms', 'pause', 'id', 'run')
  if known[1] ~= ARGV[2] or (known[2] or '0') == known[7] or known[4] ~= ARGV[6] or known[5] ~= ARGV[7] then
    return 0
  end
  local max = math.max(tonumber(known[3]) or 0, tonumber(ARGV[3]))
  -- No copy of it has begun the same episode.
  local id = ARGV[8] == '0' and known[6] or known[1]
  local told = { 'whole', known[7], 'floor', ARGV[3], 'max', text(max), 'terms', ARGV[4], 'beside', ARGV[5], 'claims', '0', 'id', id }
  redis.call('HSET', space, 'used', '1', unpack(told))
  return 1
end
