-- What granting needs; it stands before whatever uses it.
--
-- lock     the holder's owner id, with the lease as expiry
-- queue    owner ids, scored by their order of arrival
-- entries  "ID" -> "TTL INBOX INFO" and "u:ID" -> until when that entry is live, for each of the queue;
--          "revoked" -> the id of the holder that was asked to let go, "revoker" -> "grace MS"; an earlier
--          version, which knows no grace, overwrites that with its inbox, and deletes both as we do
-- grants   "COUNTER ID SINCE INBOX INFO" of the last grant
-- channels what an inbox's id follows in the name of its channel
--
-- Times are of this server, in microseconds; leases in milliseconds. Numbers are written with %.0f,
-- because Lua's own form loses digits.

local DAY = 86400000

local function number(value)
  return string.format('%.0f', value)
end

local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Counts a grant. The counter is never below the clock, so it grows also when its key is lost, and the
-- key lives until a day after the counter's own value. Answers how the counter is written.
local function count(grants, owner, inbox, info, now)
  local last = redis.call('GET', grants)
  local counter = math.max((last and tonumber(string.match(last, '^%d+')) or 0) + 1, now)
  local written = number(counter)
  local record = written .. ' ' .. owner .. ' ' .. number(now) .. ' ' .. inbox .. ' ' .. info
  redis.call('SET', grants, record, 'PXAT', number(math.ceil(counter / 1000) + DAY))
  return written
end

