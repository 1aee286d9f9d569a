-- Writes a token, if that very vote is still there.
--
-- KEYS  vote, count, space
-- ARGV  ballot, ttl, n, token
-- Answer: 1 if it was there, or 0

local vote, count, space = KEYS[1], KEYS[2], KEYS[3]
local n, counted, rest = string.match(redis.call('GET', count) or '', '^(%d+) (%S+) (.*)$')
if redis.call('GET', vote) ~= ARGV[1] or counted ~= ARGV[1] or n ~= ARGV[3] then
  return 0
end
redis.call('PEXPIRE', vote, ARGV[2])
n = math.max(tonumber(n), tonumber(ARGV[4]))
write(count, n, counted .. ' ' .. rest)
knows(space, n, math.floor(clock() / 1000) + ARGV[2])
return 1
