-- Replaces the record of a move if it has the expected version.
--
-- KEYS  the record, "VERSION VALUE"
-- ARGV  the version, empty if there must be no record yet; the value
-- Reply: the new version; nothing if the record has another one

local record = redis.call('GET', KEYS[1])
-- The text of another client has no version, and stays.
local version = record and (string.match(record, '^(%d+) ') or 'none') or ''
if version ~= ARGV[1] then
  return false
end
-- Never below the clock, so it grows also when the record is lost.
version = number(math.max((tonumber(version) or 0) + 1, clock()))
redis.call('SET', KEYS[1], version .. ' ' .. ARGV[2])
return version
