-- Takes the lock, or joins the queue for it.
--
-- KEYS  lock, queue, entries, grants
-- ARGV  channels, owner id, ttl, whether to queue (1 or 0), inbox, info
-- Answer: counter or, in the queue or turned away, {0, last counter, ask in[, since, info]}; who does not
-- queue asks again only if that is 0

local lock, queue, entries, grants = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local channels, me, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3])
local queues, inbox, info = ARGV[4] == '1', ARGV[5], ARGV[6]

-- A full server refuses this, and may have more to say below to who holds already.
local taken = redis.call('EXISTS', queue) == 0 and redis.pcall('SET', lock, me, 'NX', 'PX', ARGV[3])
-- Nobody waits, and it was free: what follows is not even defined.
if taken and taken.ok then
  local time = redis.call('TIME')
  -- Counters are compared as text: they have 16 digits until the year 2286, and a shorter one is found out below.
  local now = time[1] .. string.sub('00000' .. time[2], -6)
  -- As `count` does; it lives for a day after the counter's value.
  local record = now .. ' ' .. me .. ' ' .. now .. ' ' .. inbox .. ' ' .. info
  local last = redis.call('SET', grants, record, 'EX', '86401', 'GET')
  if not last or string.sub(last, 1, 16) < now then
    return now
  end
  -- The clock was set back: it is held, and counted below as a repeated request is.
  local counted = tonumber(string.match(last, '^%d+')) or 0
  redis.call('SET', grants, last, 'PXAT', string.format('%.0f', counted / 1000 + 86400000))
end

