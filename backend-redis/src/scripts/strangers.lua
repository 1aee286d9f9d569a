-- What those need who hold and wait without us: to be asked after, and a turn, as our hand-overs leave them none.
--
-- entries  "turns" -> "COUNT SINCE", our hand-overs in a row, soon after a release to nobody as well; "rest" -> "UNTIL MS",
--          until when ours leave the lock to strangers, and for how long

local strangers = {}

-- Whether it is held by somebody to whom we have not granted it.
function strangers.hold(holder, grants)
  local _, _, owner = last_grant(grants)
  return holder and holder ~= owner
end

-- For how many milliseconds ours leave a free lock alone, if they do. It is over, too, where a clock that was set back
-- would make it longer than it was meant.
function strangers.rest(entries, now)
  local rest, longest = string.match(redis.call('HGET', entries, 'rest') or '', '^(%d+) (%d+)$')
  local left = rest and math.ceil((rest - now) / 1000) or 0
  return left > 0 and left <= tonumber(longest) and left
end

-- In how many milliseconds an entry of ours may have its turn, of what the lock has left; the first one asks.
function strangers.due(left, entries, grants, holder, first, now)
  if left == -2 then
    return strangers.rest(entries, now) or left
  elseif first and strangers.hold(holder, grants) then
    return left < 0 and POLL or math.min(left, POLL)
  end
  return left
end

-- What is said of a holder: of a stranger nothing, as whoever knows its value can release for it; while nobody
-- has the lock, who had it last. And whether it is behind a stranger that an entry is first.
function strangers.show(answer, grants, holder, first)
  local _, _, owner = last_grant(grants)
  if holder and holder ~= owner then
    answer[4], answer[5] = false, first and 1 or 0
  else
    answer[4], answer[5] = owner or false, 0
  end
end

-- One of ours has it from another.
function strangers.pass(entries, now, lease)
  local turns, since = string.match(redis.call('HGET', entries, 'turns') or '', '^(%d+) (%d+)$')
  redis.call('HSET', entries, 'turns', number((turns or 0) + 1) .. ' ' .. (since or now))
  redis.call('HDEL', entries, 'rest')
  keep(entries, lease)
end

-- One of ours has it so soon after a release to nobody that it is as if it had been handed on.
function strangers.again(entries, lease)
  local turns, since = string.match(redis.call('HGET', entries, 'turns') or '', '^(%d+) (%d+)$')
  if turns then
    redis.call('HSET', entries, 'turns', number(turns + 1) .. ' ' .. since)
    keep(entries, lease)
  end
end

-- Frees the lock for those who poll, if it has gone from one of ours to another for long; whether it did. Who is first
-- asks when that is over.
function strangers.have_their_turn(lock, queue, entries, channels, grants)
  local turns, since = string.match(redis.call('HGET', entries, 'turns') or '', '^(%d+) (%d+)$')
  if not turns or FOR == 0 then
    return false
  end
  local now = clock()
  if tonumber(turns) < AFTER and now - since < EVERY * 1000 then
    return false
  end
  local owner, more, _, _, _, inbox = first_live(queue, entries, now)
  if more or not may_wait(lock) then
    return false
  end
  free(lock)
  end_grant(grants)
  redis.call('HSET', entries, 'rest', number(now + FOR * 1000) .. ' ' .. FOR)
  redis.call('HDEL', entries, 'turns', 'revoked')
  keep(entries, FOR)
  if owner then
    tell(channels, inbox, 'due', owner, FOR, lock)
  end
  return true
end

-- Nobody of ours waits any more, unless there are `more`.
function strangers.forget(entries, more, grants)
  end_grant(grants)
  local turns = redis.call('HGET', entries, 'turns') or '0 ' .. clock()
  redis.call('HDEL', entries, 'turns', 'rest')
  if not more then
    keep_turns(entries, turns)
  end
end

