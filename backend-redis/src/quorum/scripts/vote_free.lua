-- Votes for whoever asks, if nobody has the vote.
--
-- KEYS  vote, count, waits, space
-- ARGV  ballot, ttl, proposal, "SINCE INBOX INFO", what was agreed on, whether it waits (1 or 0), whether it may have a
--       place among those who wait (1 or 0), run
-- Answer: n, or {1, now, n}: it has voted; {0, now, milliseconds, ballot[, record]} another has the vote, and may have lost
-- it then; {2, now} the request is of an earlier round; {3, now} it may have forgotten votes, and nobody has said which;
-- {4, now[, terms]} something else was agreed on

local vote, count, waits, space = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ballot, ttl, proposal, about, terms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local has_place, run = ARGV[7] == '1', ARGV[8]

local known = redis.call('HMGET', space, 'run', 'whole', 'terms', 'floor', 'max')
local proposed, max = tonumber(proposal), tonumber(known[5]) or 0
local voted, last
if not has_place and known[1] == run and known[2] == '1' and known[3] == terms and proposed > tonumber(known[4]) and proposed <= max then
  -- A full server refuses this, and may have more to say below.
  voted = redis.pcall('SET', vote, ballot, 'NX', 'PX', ttl, 'GET')
  if not voted then
    -- No clock is asked: the number is above the last one, and the key lives until a day after it. Where no number is
    -- remembered nothing is written.
    local ends = string.format('%.0f', math.ceil(proposed / 1000) + 86400000)
    last = redis.call('SET', count, proposal .. ' ' .. ballot .. ' ' .. about, 'XX', 'PXAT', ends, 'GET') or ''
    local counted = tonumber(string.match(last, '^%d+'))
    -- It was free: what follows is not even defined.
    if counted and counted < proposed then
      return proposed
    end
  end
end

