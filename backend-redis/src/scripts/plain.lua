-- What a lock is under a key of our own, which only we write: a string, the holder's owner id.

-- Who holds the lock, by `ask`, which is redis.call or redis.pcall; false if nobody does. A key of another type
-- is a lock of somebody else.
local function holder_of(lock, ask)
  return ask('GET', lock)
end

local function take(lock, owner, lease)
  redis.call('SET', lock, owner, 'PX', lease)
end

-- From whoever has it.
local give = take

-- Nobody has it now.
local function free(lock)
  redis.call('DEL', lock)
end

-- How whoever only looks asks.
local look = redis.pcall

-- Nobody else has it.
local strangers = false

