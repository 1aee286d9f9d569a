-- A string with an expiry; its value is known to its holder alone.

local function holder_of(lock, ask)
  local holder = redis.pcall('GET', lock)
  fails(holder, lock, ask)
  return holder
end

local function take(lock, owner, lease)
  redis.call('SET', lock, owner, 'PX', lease)
end

-- From whoever has it.
local give = take

local function free(lock)
  redis.call('DEL', lock)
end

-- Who polls is not seen.
local function may_wait()
  return true
end

