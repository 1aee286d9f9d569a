-- Writes a token, if that very vote is still there.
--
-- KEYS  vote, count, space
-- ARGV  ballot, ttl, n, token
-- Answer: 1 if it was there, or 0. It may have been asked for that before, so its number is from n to the token.

local vote, count, space = KEYS[1], KEYS[2], KEYS[3]
local n, counted, rest = string.match(redis.call('GET', count) or '', '^(%d+) (%S+) (.*)$')
n = tonumber(n)
if redis.call('GET', vote) ~= ARGV[1] or counted ~= ARGV[1] or n < tonumber(ARGV[3]) or n > tonumber(ARGV[4]) then
  return 0
end
redis.call('PEXPIRE', vote, ARGV[2])
write(count, tonumber(ARGV[4]), counted .. ' ' .. rest, clock())
if redis.call('EXISTS', space) == 1 then
  knows(space, tonumber(ARGV[4]))
end
return 1
