-- Goes on after release_free: somebody may wait, or has asked the holder to let go.

-- Each first write is one that a full server takes. Who holds is not in the queue.
if held then
  return let_go(lock, queue, entries, grants, channels) and 5 or 1
end
if sharers and holder == '*' and sharers().leave(lock, entries, me) then
  local _, more = settle(lock, queue, entries, grants, channels, holder)
  return more and 5 or 1
end
local score = redis.call('ZSCORE', queue, me)
local waited = drop_entry(queue, entries, me)
local resting = not holder and strangers and strangers.rest(entries, clock())
-- Who has left may have been all that somebody waited for.
local has_it, more = settle(lock, queue, entries, grants, channels, holder)
if waited and (holder or resting) then
  tell_next(lock, queue, entries, grants, channels, has_it, score)
end
return (waited and 2 or 0) + (more and 4 or 0)
