-- Tells the first of those who wait that is there, and has no place any more: whoever asks again has one. Where messages
-- are not allowed, nobody is told.
local function wake(waits, channels, vote)
  for _ = 1, 100 do
    local first = redis.call('ZRANGE', waits, 0, 0)[1]
    if not first then
      return
    end
    local owner, inbox = string.match(first, '^(%x+) (.*)$')
    redis.call('ZREM', waits, first)
    local heard = tell(channels, inbox or '', 'freed', owner or '', '0', vote)
    if type(heard) == 'table' or heard > 0 then
      return
    end
  end
end

