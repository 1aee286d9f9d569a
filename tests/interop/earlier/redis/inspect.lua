-- Frozen: as version 0.1 at ceac613 ran it, for backend-redis/tests/redis/earlier.rs. Never changed.
-- Shows names; changes nothing.
--
-- KEYS  lock, queue, entries, grants of each
-- Answer, of each: {live entries, 1 if it is held[, counter, since, info]}

local now = clock()
local answers = {}
for i = 1, #KEYS / 4 do
  local lock, queue, entries, grants = KEYS[4 * i - 3], KEYS[4 * i - 2], KEYS[4 * i - 1], KEYS[4 * i]
  local live = 0
  for _, owner in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
    if tonumber(redis.call('HGET', entries, 'u:' .. owner) or 0) > now then
      live = live + 1
    end
  end
  local holder = redis.pcall('GET', lock)
  local answer = { live, holder and 1 or 0 }
  local counter, owner, since, _, info = last_grant(grants)
  if holder and owner == holder then
    answer[3], answer[4], answer[5] = number(counter), since, info
  end
  answers[i] = answer
end
return answers
