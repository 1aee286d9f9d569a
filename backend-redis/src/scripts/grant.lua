-- What granting needs; it stands before whatever uses it.
--
-- lock     the holder's owner id, with the lease as expiry
-- queue    owner ids, scored by their order of arrival
-- entries  "ID" -> "TTL INBOX INFO", or "0TTL INBOX INFO WEIGHT CAPACITY" of one that is not exclusive; and
--          "u:ID" -> until when that entry is live, for each of the queue;
--          "revoked" -> "ID MS", the holder that was asked to let go, and its grace
-- grants   "COUNTER ID SINCE INBOX INFO" of the last grant; with a format ~ stands before ID once that is released to nobody
-- channels what an inbox's id follows in the name of its channel; behind a line feed the message key, if there is one
--
-- Times are of this server, in microseconds; leases in milliseconds. Times and counters are text, which is
-- compared as it is where it has as many digits: a server may come up with a clock of 1970. What is calculated
-- becomes text by %.0f, because Lua's own form loses digits, or as an argument, which Redis writes with all of them.

local DAY = 86400000

local function number(value)
  return string.format('%.0f', value)
end

local function clock()
  local time = redis.call('TIME')
  return time[1] .. string.sub('00000' .. time[2], -6)
end

-- Counts a grant. The counter is never below the clock, so it grows also when its key is lost, and the
-- key lives until a day after the counter's own value.
local function count(grants, owner, inbox, info, now)
  local record = ' ' .. owner .. ' ' .. now .. ' ' .. inbox .. ' ' .. info
  local last = redis.call('SET', grants, now .. record, 'EX', '86401', 'GET')
  if not last or string.byte(last, #now + 1) == 32 and string.sub(last, 1, #now) < now then
    return now
  end
  -- The clock was set back, or more was granted than microseconds have passed.
  local counter = math.max((tonumber(string.match(last, '^%d+')) or 0) + 1, tonumber(now))
  redis.call('SET', grants, number(counter) .. record, 'PXAT', math.ceil(counter / 1000) + DAY)
  return number(counter)
end

