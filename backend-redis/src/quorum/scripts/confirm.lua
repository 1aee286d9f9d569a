-- Writes a token, if that very vote is still there, and the server knows all that it did.
--
-- KEYS  vote, count, space
-- ARGV  ballot, ttl, n, token, run
-- Answer: 1 if it was there, or 0. It may have been asked for that before, so its number is from n to the token.

local vote, count, space, token = KEYS[1], KEYS[2], KEYS[3], tonumber(ARGV[4])
local known = redis.call('HMGET', space, 'run', 'whole', 'max')
local n, counted, rest = string.match(redis.call('GET', count) or '', '^(%d+) (%S+) (.*)$')
n = tonumber(n)
if redis.call('GET', vote) ~= ARGV[1] or counted ~= ARGV[1] or n < tonumber(ARGV[3]) or n > token then
  return 0
end
-- A vote that came up with the data extends no hold: others may have been voted for since.
if known[1] ~= ARGV[5] or known[2] ~= '1' then
  return 0
end
redis.call('PEXPIRE', vote, ARGV[2])
write(count, token, counted .. ' ' .. rest, clock())
-- What a blank server is told of.
if (tonumber(known[3]) or 0) < token then
  redis.call('HSET', space, 'max', text(token))
end
return 1
