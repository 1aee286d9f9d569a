-- What becomes of a lock, and of those who wait for it, when somebody leaves.

-- What the holder had goes to whom it is handed on, or it is free; whether it is while somebody may wait behind
-- more ended entries.
local function let_go(lock, queue, entries, grants, channels)
  if strangers and strangers.have_their_turn(lock, queue, entries, channels, grants) then
    return false
  end
  local owner, more = hand_on(lock, queue, entries, grants, channels)
  if not owner then
    free(lock)
    redis.call('HDEL', entries, 'revoked')
    if strangers then
      strangers.forget(entries, more, grants)
    end
  end
  return more
end

-- The entry that came before the next one of `score` has left: that one hears when to ask, if its next
-- refresh comes later.
local function tell_next(lock, queue, entries, grants, channels, holder, score)
  local owner, its = unpack(redis.call(
    'ZRANGE', queue, '(' .. score, '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES'))
  local entry = owner and redis.call('HGET', entries, owner) or ''
  local ttl, inbox = string.match(string.sub(entry, 1, LONGEST), '^(%d+) (%S+) ')
  if not ttl then
    return
  end
  local now = clock()
  local asks = due(lock, queue, entries, grants, holder, before(queue, entries, its, now), now)
  if asks >= 0 and asks < ((live_until(entries, owner, now) or now) - now) / 1000 - ttl * 2 / 3 then
    tell(channels, inbox, 'due', owner, number(asks), lock)
  end
end

