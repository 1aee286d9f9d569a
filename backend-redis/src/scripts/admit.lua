-- Returns until when the server may have forgotten holders: the pause begins when a manager first connects to this run of it.
--
-- KEYS  origin: "RUN SINCE PAUSE", of the run of the server that this was written in
-- ARGV  the pause, in milliseconds
-- Reply: {1, until when}, or {0, pause} if the other managers have another one

local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local known, since, pause = string.match(redis.call('GET', KEYS[1]) or '', '^(%x+) (%d+) (%d+)$')
if known and pause ~= ARGV[1] then
  return { 0, pause }
end
local now = clock()
-- A clock that was set back is not waited for.
if known ~= run or since - now > 0 then
  since = now
  -- A full server takes what follows a first write that frees.
  redis.call('DEL', KEYS[1])
  redis.call('SET', KEYS[1], run .. ' ' .. since .. ' ' .. ARGV[1])
end
return { 1, number(since + ARGV[1] * 1000) }
