-- How a lock goes from one to the next, and what those hear who wait for it.

-- When an entry that nobody tells anything may have its turn: the lock's lease is over, and so is the
-- entry before it, at `ends`, which would have asked. In milliseconds from now; negative if the lock
-- has no end.
local function due(lock, queue, entries, grants, holder, ends, now)
  local left = redis.call('PTTL', lock)
  if strangers then
    left = strangers.due(left, entries, grants, holder, ends == now, now)
  elseif sharers then
    left = sharers.due(left, lock, queue, entries, holder, ends == now, now)
  end
  if left == -1 then
    return left
  elseif left == -2 then
    -- Free: there are more ended entries than one call drops.
    return 0
  end
  return math.max(left, math.ceil((ends - now) / 1000))
end

-- What the holder had goes to whom it is handed on, or it is free; whether it is while somebody may wait behind
-- more ended entries.
local function let_go(lock, queue, entries, grants, channels)
  if strangers and strangers.have_their_turn(lock, queue, entries, channels) then
    return false
  end
  local owner, more = hand_on(lock, queue, entries, grants, channels)
  if not owner then
    free(lock)
    redis.call('HDEL', entries, 'revoked', 'revoker')
    if strangers then
      strangers.forget(entries)
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
    redis.pcall('PUBLISH', channels .. inbox, 'due ' .. owner .. ' ' .. number(asks) .. ' ' .. lock)
  end
end

-- What somebody hears who has to wait: when to ask, the last grant, and who holds, which that may name; `first` if
-- nobody of ours is before it.
local function waits(lock, entries, grants, holder, asks, first)
  local answer = { 0, asks, last_record(grants), type(holder) == 'string' and string.sub(holder, 1, LONGEST) }
  if strangers then
    strangers.show(answer, grants, holder, first)
  elseif sharers then
    sharers.show(answer, lock, entries, holder)
  end
  return answer
end

