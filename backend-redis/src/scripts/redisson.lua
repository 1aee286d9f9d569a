-- A hash with an expiry, of one field: the holder's, and how often it has entered. Ours is the owner id as a client of
-- theirs would be called, in its first thread.

-- A client of theirs waits on this channel, and adds no braces where the name has some.
local function channel(lock)
  if string.find(lock, '{', 1, true) then
    return 'redisson_lock__channel:' .. lock
  end
  return 'redisson_lock__channel:{' .. lock .. '}'
end

local function field(owner)
  local part = function(from, to) return string.sub(owner, from, to) end
  return table.concat({ part(1, 8), part(9, 12), part(13, 16), part(17, 20), part(21) }, '-') .. ':1'
end

-- Only who is one of ours is named: `me`, or who was granted it last. Nothing of the hash is read, as it may be large.
local function holder_of(lock, ask, grants, me)
  local count = redis.pcall('HLEN', lock)
  if fails(count, lock, ask) then
    return count
  elseif count == 0 then
    return false
  end
  if count == 1 then
    for _, owner in ipairs({ me or '', string.match(redis.call('GET', grants) or '', '^%d+ (%x+) ') }) do
      if #owner == 32 and redis.call('HEXISTS', lock, field(owner)) == 1 then
        return owner
      end
    end
    if redis.call('HEXISTS', lock, 'mode') == 0 then
      return ':'
    end
  end
  -- A read-write lock, or none at all.
  if ask == redis.call then
    refuse(lock, ' with more than a holder')
  end
  return {}
end

-- A full server refuses the first of these, so nothing may be written before it.
local function take(lock, owner, lease)
  redis.call('HSET', lock, field(owner), 1)
  redis.call('PEXPIRE', lock, lease)
end

local function give(lock, owner, lease)
  redis.call('DEL', lock)
  take(lock, owner, lease)
end

-- Who waits sleeps until it hears of this, and understands numbers alone.
local function free(lock)
  redis.call('DEL', lock)
  redis.pcall('PUBLISH', channel(lock), '0')
end

-- Without the right to see who listens, somebody may.
local function may_wait(lock)
  local listen = redis.pcall('PUBSUB', 'NUMSUB', channel(lock))
  return listen.err or tonumber(listen[2]) > 0
end

