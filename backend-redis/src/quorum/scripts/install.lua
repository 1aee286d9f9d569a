-- Tells a server what it may have forgotten: from here on it votes.
--
-- KEYS  space
-- ARGV  episode, floor, what was agreed on, the episodes that were blank beside it, which terms and pause it had, whether it
--       needs an id (1 or 0)
-- Answer: 1, or 0 if it knows already, has forgotten again, or was met by others since

local known = redis.call('HMGET', KEYS[1], 'episode', 'whole', 'max', 'terms', 'pause', 'id')
if known[1] ~= ARGV[1] or known[2] == '1' or known[4] ~= ARGV[5] or known[5] ~= ARGV[6] then
  return 0
end
local max = math.max(tonumber(known[3]) or 0, tonumber(ARGV[2]))
-- No copy of it has begun the same episode.
local id = ARGV[7] == '0' and known[6] or known[1]
local told = { 'whole', '1', 'floor', ARGV[2], 'max', text(max), 'terms', ARGV[3], 'beside', ARGV[4], 'claims', '0', 'id', id }
redis.call('HSET', KEYS[1], 'used', '1', unpack(told))
return 1
