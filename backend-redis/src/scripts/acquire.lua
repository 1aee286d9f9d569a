-- Goes on after acquire_free: the lock is held, or somebody waits and it was taken too early.

if type(holder) == 'table' then
  holder = holder_of(lock, redis.call, grants, me)
end
local now = clock()
if sharers and holder == '*' then
  holder = sharers().purge(lock, entries, now)
end

-- The request was repeated, because its answer was lost.
if holder == me then
  redis.call('PEXPIRE', lock, ttl)
  local _, counter, owner = last_grant(grants)
  return owner == me and counter or count(grants, me, inbox, info, now)
end

local resting = not holder and strangers and strangers.rest(entries, now)
if not holder then
  if sharers and redis.call('HGET', entries, 'load') then
    sharers().forget(lock, entries)
  end
  local first, more = first_live(queue, entries, now)
  if not resting and (first == me or not (first or more)) then
    take(lock, me, ttl)
    if strangers then
      strangers.again(entries, ttl)
    end
    if first then
      drop_entry(queue, entries, me)
    end
    return count(grants, me, inbox, info, now)
  end
  if first and not resting then
    holder = hand_on(lock, queue, entries, grants, channels, now)
  else
    -- Who comes next goes on to look for the first one.
    redis.call('DEL', lock)
  end
elseif sharers and holder == '*' then
  hand_on(lock, queue, entries, grants, channels, now, holder)
end

local wanted = false
