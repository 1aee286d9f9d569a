-- What every script of a quorum needs.
--
-- vote    the ballot that has the vote, "OWNER:TICKET:ROUND", with the lease as expiry
-- count   "N BALLOT SINCE INBOX INFO" of the last vote
-- waits   "OWNER INBOX" of those who wait, scored by their tickets
-- asked   "BALLOT GRACE": the holder that was asked to let go, and for how many milliseconds it may go on
-- space   of the namespace: the run of the server that knows it, its last blank episode, whether it is whole, the floor of its
--         numbers, a number that none of them is above (max), what all who lock with it have agreed on, and the episodes that
--         were blank beside its own when it was told what it may have forgotten, where nobody knew
--
-- Times are of this server: tickets and numbers in microseconds, leases and ends in milliseconds. What is calculated
-- becomes text by %.0f, because Lua's own form loses digits.

-- In milliseconds.
local DAY = 86400000

local function text(number)
  return string.format('%.0f', number)
end

local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- The key lives until a day after the number's own value, when the clock has passed it, also one that was set back; and
-- after `at`, if that is later.
local function write(count, n, rest, at)
  redis.call('SET', count, text(n) .. ' ' .. rest, 'PXAT', text(math.ceil(math.max(n, at) / 1000) + DAY))
end

-- A place among those who wait; how many are before it.
local function wait(waits, ticket, member, now, ends)
  redis.call('ZADD', waits, ticket, member)
  if now + redis.call('PTTL', waits) < ends then
    redis.call('PEXPIREAT', waits, text(ends))
  end
  return redis.call('ZRANK', waits, member)
end

