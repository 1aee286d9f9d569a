-- Asks the holder to let go or, with force, takes the lock from it and hands it on.
--
-- KEYS  lock, queue, entries, grants, sharers
-- ARGV  channels, the grace in milliseconds or "force"
-- Answer: {0} nobody holds it, or {1, lease left, 1 if it is free now and whoever waits is behind more
-- ended entries than one call drops: to be released by anybody[, record of its grant]}; where it is shared {2, the
-- same of 1, {lease left, weight, capacity and record} of each}

local lock, queue, entries, grants = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local channels, grace = ARGV[1], ARGV[2]

write_on_a_full_server(queue)
local holder = holder_of(lock, redis.call, grants)
if sharers and holder == '*' then
  local now = clock()
  holder = sharers().purge(lock, entries, now)
  if holder then
    local answer = { 2, 0 }
    sharers().revoke(answer, lock, entries, channels, grace, now)
    local _, more = settle(lock, queue, entries, grants, channels, holder, now)
    answer[2] = more and 1 or 0
    return answer
  end
end
if not holder then
  settle(lock, queue, entries, grants, channels, holder)
  return { 0 }
end
local answer = { 1, redis.call('PTTL', lock), 0 }
local record, _, owner = last_grant(grants)
if grace == 'force' then
  grace = '0'
  answer[3] = let_go(lock, queue, entries, grants, channels) and 1 or 0
elseif not (strangers and strangers.hold(holder, grants)) then
  -- An earlier ask may be unheard: the shortest grace counts.
  local noted = asked_of(entries, holder)
  if noted and tonumber(noted) < tonumber(grace) then
    grace = noted
  end
  redis.call('HSET', entries, 'revoked', holder .. ' ' .. grace)
  keep(entries, math.max(answer[2], 1))
end
-- A stranger's lock has no inbox.
if owner == holder then
  local inbox = string.match(record, '^%d+ %S+ %d+ (%S+)') or ''
  tell(channels, inbox, 'revoked', holder, grace, lock)
  answer[4] = record
end
return answer
