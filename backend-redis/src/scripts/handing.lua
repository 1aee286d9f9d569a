-- How a lock goes from one to the next, and what those hear who wait for it.

-- When an entry that nobody tells anything may have its turn: the lock's lease is over, and so is the
-- entry before it, at `ends`, which would have asked. In milliseconds from now; negative if the lock
-- has no end.
local function due(lock, queue, entries, grants, holder, ends, now)
  local left = redis.call('PTTL', lock)
  if strangers then
    left = strangers.due(left, entries, grants, holder, ends == now, now)
  elseif sharers and holder == '*' then
    left = sharers().due(lock, queue, entries, ends == now, now)
  end
  if left == -1 then
    return left
  elseif left == -2 then
    -- Free: there are more ended entries than one call drops.
    return 0
  end
  return math.max(left, math.ceil((ends - now) / 1000))
end

-- Grants the lock, which nobody has any more or, if there is a `holder`, several share, to the first live entry, and on while
-- they fit together, and tells their inboxes; who has it then, and whether somebody may be next behind more that have ended than
-- a call drops. The time is asked for if it is needed and not given.
local function hand_on(lock, queue, entries, grants, channels, now, holder)
  local owner, more, now, ends, ttl, inbox, info, wanted = first_live(queue, entries, now)
  if not owner then
    return holder, more
  end
  -- Where one holds alone, whatever it wants.
  wanted = sharers and wanted
  if holder and not sharers().fit(lock, entries, wanted) then
    return holder, sweep == 0
  end
  -- What the last holder was asked ends with it.
  drop_entry(queue, entries, owner, 'revoked')
  -- Not less than what the entry has: its owner may count on that until its next refresh. It has no more
  -- than its ttl, whatever a clock that was set back makes of it.
  local grace = math.min(math.ceil(ttl / 6), GRACE)
  local lease = math.min(math.max(math.ceil((ends - now) / 1000), grace), tonumber(ttl))
  if not wanted then
    give(lock, owner, lease)
  end
  local counter = count(grants, owner, inbox, info, now)
  if wanted then
    sharers().join(lock, entries, holder, owner, wanted, lease, counter, inbox, info, now)
  end
  tell(channels, inbox, 'granted', owner, counter, lock)
  if strangers then
    strangers.pass(entries, now, lease)
  end
  if wanted then
    return hand_on(lock, queue, entries, grants, channels, now, '*')
  end
  return owner
end

-- What somebody hears who has to wait: when to ask, the last grant, and who holds, which that may name; `first` if
-- nobody of ours is before it.
local function waits(lock, entries, grants, holder, asks, first)
  local answer = { 0, asks, last_record(grants), type(holder) == 'string' and string.sub(holder, 1, LONGEST) }
  if strangers then
    strangers.show(answer, grants, holder, first)
  elseif sharers and holder == '*' then
    sharers().show(answer, lock, entries)
  end
  return answer
end

