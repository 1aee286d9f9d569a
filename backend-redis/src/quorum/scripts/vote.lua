-- Goes on after vote_free: another has the vote, this server gives none, it has counted further or does not remember, or
-- the contender has waited.

local now = clock()
if known[1] ~= run or known[2] ~= '1' then
  return { 3, now }
end
if known[3] ~= terms then
  return { 4, now, known[3] or nil }
end

local owner, ticket, round = string.match(ballot, '^(%x+):(%d+):(%d+)$')
local member = owner .. ' ' .. string.match(about, '^%S+ (%S+)')
local millis = math.floor(now / 1000)
-- What was written above stands over the last record.
if not last and type(voted) ~= 'string' then
  voted = redis.call('GET', vote)
end
local record = last or redis.call('GET', count) or ''
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
if not last then
  redis.call('SET', vote, ballot, 'PX', ttl)
end
if voted == ballot and counted == ballot then
  n = tonumber(n)
else
  -- The clock stands for a number that is not remembered.
  n = math.max(n and n + 1 or now, proposed, known[4] + 1)
  -- One that was proposed ends by its own value, as where no clock is asked.
  write(count, n, ballot .. ' ' .. about, n == proposed and n or now)
end
if has_place then
  redis.call('ZREM', waits, member)
end
-- For a second to come: until then numbers need not be noted one by one.
if n > max then
  redis.call('HSET', space, 'max', text(n + 1000000))
end
return { 1, now, n }
