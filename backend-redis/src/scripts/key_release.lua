-- As release_free, on a key that other libraries take too.

local lock, queue, entries, grants = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local channels, me = ARGV[1], ARGV[2]

local holder = holder_of(lock, redis.pcall, grants, me)
local held = holder == me
if held and redis.call('EXISTS', entries) == 0 then
  free(lock)
  end_grant(grants)
  keep_turns(entries, '0 ' .. clock())
  return 1
end

