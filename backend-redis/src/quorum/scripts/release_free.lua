-- Ends what an owner has, up to a round.
--
-- KEYS  vote, waits, asked
-- ARGV  ballot of that round, channels, inbox[, ttl if it waits on]
-- Answer: 1 if it had the vote, or 0

local vote, waits, asked = KEYS[1], KEYS[2], KEYS[3]
local ballot, ttl = ARGV[1], ARGV[4]

local voted = redis.call('GET', vote)
-- Nobody waits, and nobody asked: what follows is not even defined.
if voted == ballot and not ttl and redis.call('EXISTS', waits, asked) == 0 then
  redis.call('DEL', vote)
  return 1
end

