-- Shows names; changes nothing.
--
-- KEYS  lock, queue, entries, grants, sharers of each
-- Answer, of each: {how many wait, 1 or, if it is free, 0[, record of the holder's grant, or, if it is none
-- of ours, what its lease has left: negative if that has no end]}; where it is shared, 2 and
-- weight, capacity and record of each holder

-- So many of a queue are looked at; those after them count although they may have ended.
local LOOKED_AT = 50

-- The end of a queue, found by halves: a command that counts would want a right of its own.
local function length(queue)
  local low, high = LOOKED_AT, 2 * LOOKED_AT
  while redis.call('ZRANGE', queue, high - 1, high - 1)[1] do
    low, high = high, 2 * high
  end
  while high - low > 1 do
    local middle = math.floor((low + high) / 2)
    if redis.call('ZRANGE', queue, middle - 1, middle - 1)[1] then
      low = middle
    else
      high = middle
    end
  end
  return low
end

local now = clock()
local answers = {}
for i = 1, #KEYS / 5 do
  local lock, queue, entries, grants = KEYS[5 * i - 4], KEYS[5 * i - 3], KEYS[5 * i - 2], KEYS[5 * i - 1]
  local looked_at = redis.call('ZRANGE', queue, 0, LOOKED_AT - 1)
  local waiting = #looked_at < LOOKED_AT and 0 or length(queue) - LOOKED_AT
  for _, owner in ipairs(looked_at) do
    if live_until(entries, owner, now) then
      waiting = waiting + 1
    end
  end
  local holder = holder_of(lock, look, grants)
  local answer = { waiting, holder and 1 or 0 }
  local record, _, owner = last_grant(grants)
  if holder and owner == holder then
    answer[3] = record
  elseif holder and not (sharers and holder == '*') then
    answer[3] = redis.call('PTTL', lock)
  end
  if sharers and holder == '*' then
    sharers().list(answer, lock, entries, now)
    answer[2] = answer[3] and 2 or 0
  end
  answers[i] = answer
end
return answers
