-- Goes on after vote_free: another has the vote, this server gives none, or the proposal is of no use to it.

if known[1] ~= run or known[2] ~= '1' then
  return { 3, now }
end
if known[3] ~= terms then
  return { 4, now, known[3] or nil }
end

local owner, ticket, round = string.match(ballot, '^(%x+):(%d+):(%d+)$')
local member = owner .. ' ' .. string.match(about, '^%S+')
local millis = math.floor(now / 1000)
if type(voted) ~= 'string' then
  voted = redis.call('GET', vote)
end
local record = redis.call('GET', count) or ''
local n, counted = string.match(record, '^(%d+) (%S+)')
if voted then
  local by, latest = string.match(voted, '^(%x+):%d+:(%d+)$')
  if by ~= owner then
    local ends = millis + math.max(redis.call('PTTL', vote), 0)
    local rank = ARGV[6] == '1' and wait(waits, ticket, member, millis, ends + ttl) or 0
    local answer = { 0, now, ends - millis + 1 + math.min(rank * 50, 500), voted }
    if counted == voted then
      answer[5] = record
    end
    return answer
  end
  -- It was long on its way.
  if tonumber(latest) > tonumber(round) then
    return { 2, now }
  end
end

-- A full server refuses this, before anything else is written.
redis.call('SET', vote, ballot, 'PX', ttl)
if voted == ballot and counted == ballot then
  n = tonumber(n)
else
  n = math.max((tonumber(n) or -1) + 1, proposed, now, known[4] + 1)
  write(count, n, ballot .. ' ' .. text(now) .. ' ' .. about, is_near and n == proposed)
end
redis.call('ZREM', waits, member)
knows(space, known[5], n)
return { 1, now, n }
