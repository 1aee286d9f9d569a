-- What comes after whatever has changed; who asks for a lock alone needs less.

-- Hands on what `holder` does not have alone, unless nothing is to be granted, once the shares have ended whose leases are
-- over; as when a lock is handed on.
local function settle(lock, queue, entries, grants, channels, holder, now)
  if sharers and holder == '*' then
    now = now or clock()
    holder = sharers().purge(lock, entries, now)
  elseif holder or strangers and strangers.rest(entries, now or clock()) then
    return holder
  elseif sharers and redis.call('HGET', entries, 'load') then
    sharers().forget(lock, entries)
  end
  return hand_on(lock, queue, entries, grants, channels, now, holder)
end

