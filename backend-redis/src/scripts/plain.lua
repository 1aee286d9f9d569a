-- A lock under a key of our own, which only we write.

-- Who holds the lock, by `ask`, which is redis.call or redis.pcall; false if nobody does. A key of another type
-- is a lock of somebody else.
local function holder_of(lock, ask)
  return ask('GET', lock)
end

-- How whoever only looks asks.
local look = redis.pcall

-- Nobody else has it.
local strangers = false

