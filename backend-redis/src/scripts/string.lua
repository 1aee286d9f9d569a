-- A lock under a key of theirs; its value is known to its holder alone.

-- No more of it is read than can be an id of ours, however long it is.
local function holder_of(lock, ask)
  local holder = redis.pcall('GETRANGE', lock, 0, 2047)
  fails(holder, lock, ask)
  return (holder ~= '' or redis.call('EXISTS', lock) == 1) and holder
end

-- Who polls is not seen.
local function may_wait()
  return true
end

