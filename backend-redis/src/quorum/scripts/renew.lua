-- Renews votes, many in one call.
--
-- KEYS  vote, count, asked of each; space
-- ARGV  ballot, n, ttl of each; run
-- Answer, of each: {1} renewed; {2, grace in milliseconds} renewed, and it was asked to let go; {0} it is gone; {3} it is there,
-- and the server may have forgotten others: it extends none

local known = redis.call('HMGET', KEYS[#KEYS], 'run', 'whole')
local is_whole = known[1] == ARGV[#ARGV] and known[2] == '1'

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
    renew(KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i], ARGV[3 * i - 2], ARGV[3 * i - 1], tonumber(ARGV[3 * i]))
end
return answers
