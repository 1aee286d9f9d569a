-- Replaces the record of a move if it has the version that is expected.
--
-- KEYS  the record, "VERSION VALUE"
-- ARGV  the version, nothing if there is to be no record yet; the value
-- Answer: its new version; nothing if another one is in force

local record = redis.call('GET', KEYS[1])
-- What somebody else has written there has none, and stays.
local version = record and (string.match(record, '^(%d+) ') or 'none') or ''
if version ~= ARGV[1] then
  return false
end
-- Never below the clock, so it grows also when the record is lost.
version = number(math.max((tonumber(version) or 0) + 1, clock()))
redis.call('SET', KEYS[1], version .. ' ' .. ARGV[2])
return version
