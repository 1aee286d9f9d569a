-- Where a lock has one holder at a time.

-- Whatever several hold together.
local sharers = false

-- Grants the lock, which nobody has any more, to the first live entry and tells its inbox; whom or, if to nobody, whether there
-- may be one behind more ended ones. The time is asked for if it is needed and not given.
local function hand_on(lock, queue, entries, grants, channels, now)
  local owner, more, now, ends, ttl, inbox, info = first_live(queue, entries, now)
  if not owner then
    return nil, more
  end
  -- What the last holder was asked ends with it.
  drop_entry(queue, entries, owner, 'revoked', 'revoker')
  local lease = lease_of(ends, ttl, now)
  give(lock, owner, lease)
  tell_granted(channels, inbox, owner, count(grants, owner, inbox, info, now), lock)
  if strangers then
    strangers.pass(entries, now, lease)
  end
  return owner
end

-- Hands the lock on unless `holder` has it, or nothing is to be granted; who has it now and, as above, more.
local function settle(lock, queue, entries, grants, channels, holder, now)
  if holder or strangers and strangers.rest(entries, now or clock()) then
    return holder
  end
  return hand_on(lock, queue, entries, grants, channels, now)
end

