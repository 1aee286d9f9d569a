-- Says until when the server may have forgotten who holds what: until the pause after the first that came to this run of
-- it is over.
--
-- KEYS  origin: "RUN SINCE PAUSE", of the run of the server that wrote what is there
-- ARGV  the pause, in milliseconds
-- Answer: {1, until when}, or {0, pause} if everybody else has another one

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
