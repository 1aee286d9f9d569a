-- A lock that is a string with an expiry: its value is the holder's owner id, or what another library has put there.

local function take(lock, owner, lease)
  redis.call('SET', lock, owner, 'PX', lease)
end

-- From whoever has it.
local give = take

-- Nobody has it now.
local function free(lock)
  redis.call('DEL', lock)
end

