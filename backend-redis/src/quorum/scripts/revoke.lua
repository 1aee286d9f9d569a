-- Asks a holder to let go or, with force, takes the vote from it.
--
-- KEYS  vote, count, waits, asked
-- ARGV  channels, owner, the grace in milliseconds or "force"
-- Answer: 1 if it had the vote, or 0

local vote, count, waits, asked = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, grace = ARGV[2], ARGV[3]
local voted = redis.call('GET', vote)
if not voted or string.match(voted, '^(%x+):') ~= owner then
  return 0
end
local counted, inbox = string.match(redis.call('GET', count) or '', '^%d+ (%S+) %d+ (%S+) ')
if grace == 'force' then
  grace = '0'
  redis.call('DEL', vote, asked)
  wake(waits, ARGV[1], vote)
else
  -- An earlier ask may be unheard: the shortest grace counts.
  local by, noted = string.match(redis.call('GET', asked) or '', '^(%S+) (%d+)$')
  if by == voted and tonumber(noted) < tonumber(grace) then
    grace = noted
  end
  redis.call('SET', asked, voted .. ' ' .. grace, 'PX', math.max(redis.call('PTTL', vote), 1))
end
if counted == voted then
  tell(ARGV[1], inbox, 'revoked', owner, grace, vote)
end
return 1
