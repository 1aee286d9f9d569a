-- Shows names; changes nothing.
--
-- KEYS  vote, count, waits of each
-- Answer, of each: {how many wait, ballot or nothing, record of that vote if there is one}

local answers = {}
for i = 1, #KEYS / 3 do
  local voted = redis.call('GET', KEYS[3 * i - 2])
  local record = redis.call('GET', KEYS[3 * i - 1]) or ''
  local _, counted = string.match(record, '^(%d+) (%S+)')
  answers[i] = { redis.call('ZCARD', KEYS[3 * i]), voted or '', voted and counted == voted and record or '' }
end
return answers
