-- Frozen: as version 0.1 at ceac613 ran it, for backend-redis/tests/redis/earlier.rs. Never changed.
-- Goes on after release_free: somebody may wait, or has asked the holder to let go.

if held then
  if redis.call('HGET', entries, 'revoked') == me then
    local revoker = redis.call('HGET', entries, 'revoker')
    redis.call('HDEL', entries, 'revoked', 'revoker')
    redis.pcall('PUBLISH', channels .. revoker, 'ended ' .. me .. ' 0 ' .. lock)
  end
  hand_on(lock, queue, entries, grants, channels)
  return 1
end
-- The first write, which a full server takes.
local waited = drop_entry(queue, entries, me)
if not holder then
  hand_on(lock, queue, entries, grants, channels)
end
return waited and 2 or 0
