-- Goes on after release_free: somebody may wait, or has asked the holder to let go.

if held then
  if redis.call('HGET', entries, 'revoked') == me then
    redis.call('HDEL', entries, 'revoked', 'revoker')
  end
  local _, more = hand_on(lock, queue, entries, grants, channels)
  return more and 5 or 1
end
local score = redis.call('ZSCORE', queue, me)
-- The first write, which a full server takes.
local waited = drop_entry(queue, entries, me)
local _, more
if waited and holder then
  tell_next(lock, queue, entries, channels, score)
elseif not holder then
  _, more = hand_on(lock, queue, entries, grants, channels)
end
return (waited and 2 or 0) + (more and 4 or 0)
