-- Votes for whoever asks, if nobody has the vote.
--
-- KEYS  vote, count, waits, space
-- ARGV  run, owner, ticket, round, ttl, proposal, whether it waits (1 or 0), inbox, info, what was agreed on
-- Answer: {1, now, n} it has voted; {0, now, milliseconds, ballot[, record]} another has the vote, and may have lost it
-- then; {2, now} the request is of an earlier round; {3, now} it may have forgotten votes, and nobody has said which;
-- {4, now[, terms]} something else was agreed on

local vote, count, waits, space = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local run, owner, ticket, round, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local member = owner .. ' ' .. ARGV[8]
local ballot = owner .. ':' .. ticket .. ':' .. round

local now = clock()
local millis = math.floor(now / 1000)
local known = redis.call('HMGET', space, 'run', 'whole', 'terms', 'floor')
if known[1] ~= run or known[2] ~= '1' then
  return { 3, now }
end
if known[3] ~= ARGV[10] then
  return { 4, now, known[3] or nil }
end

local voted = redis.call('GET', vote)
local record = redis.call('GET', count) or ''
local n, counted = string.match(record, '^(%d+) (%S+)')
if voted then
  local by, latest = string.match(voted, '^(%x+):%d+:(%d+)$')
  if by ~= owner then
    local ends = millis + math.max(redis.call('PTTL', vote), 0)
    local rank = ARGV[7] == '1' and wait(waits, ticket, member, millis, ends + ttl) or 0
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
  n = math.max((tonumber(n) or -1) + 1, tonumber(ARGV[6]), now, known[4] + 1)
  write(count, n, ballot .. ' ' .. text(now) .. ' ' .. ARGV[8] .. ' ' .. ARGV[9])
end
redis.call('ZREM', waits, member)
knows(space, n)
return { 1, now, n }
