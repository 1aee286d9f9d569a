-- A lock under a key of theirs; its value is known to its holder alone.

local function holder_of(lock, ask)
  local holder = redis.pcall('GET', lock)
  fails(holder, lock, ask)
  return holder
end

-- Who polls is not seen.
local function may_wait()
  return true
end

