-- Goes on after release_free: somebody waits, or has asked the holder to let go, or that very ballot has not the vote.

local owner, ticket, round = string.match(ballot, '^(%x+):(%d+):(%d+)$')
local by, latest = string.match(voted or '', '^(%x+):%d+:(%d+)$')
local member = owner .. ' ' .. ARGV[3]
local had = by == owner and tonumber(latest) <= tonumber(round)
-- First, as a full server takes it.
if had then
  redis.call('DEL', vote, asked)
end
redis.call('ZREM', waits, member)
-- Whoever was told that the vote is free may be the one who leaves.
if had or not (voted or ttl) then
  wake(waits, ARGV[2], vote)
end
if ttl then
  local millis = math.floor(clock() / 1000)
  wait(waits, ticket, member, millis, millis + ttl)
end
return had and 1 or 0
