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

local function holder_of(lock, ask)
  local fields = redis.pcall('HRANDFIELD', lock, 2)
  if fails(fields, lock, ask) then
    return fields
  elseif not fields[1] then
    return false
  elseif fields[2] or fields[1] == 'mode' then
    -- A read-write lock, or none at all.
    if ask == redis.call then
      refuse(lock, ' with more than a holder')
    end
    return fields
  end
  local owner = string.gsub(string.sub(fields[1], 1, 36), '-', '')
  return #owner == 32 and field(owner) == fields[1] and owner or ':' .. fields[1]
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

