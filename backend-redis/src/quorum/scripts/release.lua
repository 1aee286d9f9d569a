-- Ends what an owner has, up to a round.
--
-- KEYS  vote, waits, asked
-- ARGV  channels, owner, ticket, round, ttl, whether it waits on (1 or 0), inbox
-- Answer: 1 if it had the vote, or 0

local vote, waits, asked = KEYS[1], KEYS[2], KEYS[3]
local owner, member = ARGV[2], ARGV[2] .. ' ' .. ARGV[7]
local by, latest = string.match(redis.call('GET', vote) or '', '^(%x+):%d+:(%d+)$')
local had = by == owner and tonumber(latest) <= tonumber(ARGV[4])
-- First, as a full server takes it.
if had then
  redis.call('DEL', vote, asked)
end
redis.call('ZREM', waits, member)
if had then
  wake(waits, ARGV[1], vote)
end
if ARGV[6] == '1' then
  local millis = math.floor(clock() / 1000)
  wait(waits, ARGV[3], member, millis, millis + ARGV[5])
end
return had and 1 or 0
