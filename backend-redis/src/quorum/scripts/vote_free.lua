-- Votes for whoever asks, if nobody has the vote.
--
-- KEYS  vote, count, waits, space
-- ARGV  ballot, ttl, proposal, "INBOX INFO", what was agreed on, whether it waits (1 or 0), run
-- Answer: n, or {1, now, n} where more than the proposal was counted: it has voted; {0, now, milliseconds, ballot[, record]}
-- another has the vote, and may have lost it then; {2, now} the request is of an earlier round; {3, now} it may have
-- forgotten votes, and nobody has said which; {4, now[, terms]} something else was agreed on

local vote, count, waits, space = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ballot, ttl, proposal, about, terms, run = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[7]

local known = redis.call('HMGET', space, 'run', 'whole', 'terms', 'floor', 'max')
local time = redis.call('TIME')
local now, proposed = time[1] * 1000000 + time[2], tonumber(proposal)
-- A day after the clock has passed it the number is forgotten.
local is_near = now <= proposed and proposed <= now + 60000000
local voted
if is_near and known[1] == run and known[2] == '1' and known[3] == terms and proposed > tonumber(known[4]) then
  -- A full server refuses this, and may have more to say below.
  voted = redis.pcall('SET', vote, ballot, 'NX', 'PX', ttl, 'GET')
  -- It was free: what follows is not even defined.
  if not voted then
    local record = ' ' .. ballot .. ' ' .. time[1] .. string.sub('00000' .. time[2], -6) .. ' ' .. about
    local last = redis.call('SET', count, proposal .. record, 'EX', '86460', 'GET')
    local n = math.max((last and tonumber(string.match(last, '^%d+')) or -1) + 1, proposed)
    if n > proposed then
      proposal = string.format('%.0f', n)
      redis.call('SET', count, proposal .. record, 'PXAT', math.ceil(n / 1000) + 86400000)
    end
    if n > (tonumber(known[5]) or 0) then
      redis.call('HSET', space, 'max', proposal)
    end
    if redis.call('EXISTS', waits) == 1 then
      redis.call('ZREM', waits, string.match(ballot, '^%x+') .. ' ' .. string.match(about, '^%S+'))
    end
    return n > proposed and { 1, now, n } or n
  end
end

