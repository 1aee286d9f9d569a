-- Goes on after release_free: somebody may wait, or has asked the holder to let go.

-- Each first write is one that a full server takes. Who holds is not in the queue.
if held then
  return let_go(lock, queue, entries, grants, channels) and 5 or 1
end
local score = redis.call('ZSCORE', queue, me)
local waited = drop_entry(queue, entries, me)
local resting = not holder and strangers and strangers.rest(entries, clock())
local _, more
if waited and (holder or resting) then
  tell_next(lock, queue, entries, grants, channels, holder, score)
elseif not holder and not resting then
  _, more = hand_on(lock, queue, entries, grants, channels)
end
return (waited and 2 or 0) + (more and 4 or 0)
