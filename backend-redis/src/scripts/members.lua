-- The participants of a move.
--
-- KEYS  members: id -> "SESSION LEASE VALUE"; ends: ids, scored by until when their entries live
-- ARGV  "sign", id, ttl, session, a fresh lease of it, value; "unsign", id; or "look", one more than are shown
-- Reply: to "sign" the lease, which is the fresh one unless the entry is live and of that session; to "look"
-- {id, value} of each live entry, or their least number

local members, ends = KEYS[1], KEYS[2]
local action, id = ARGV[1], ARGV[2]
local now = clock()

-- Our ids and entries are shorter, in bytes. Text of another client is cut there.
local LONGEST_ID, LONGEST_ENTRY = 2048, 4096 + 128

-- Extends the life of a key to that of its last entry.
local function keep(key, ms)
  if redis.call('PTTL', key) < tonumber(ms) then
    redis.call('PEXPIRE', key, ms)
  end
end

if action == 'look' then
  local ids = redis.call('ZRANGE', ends, '(' .. number(now), '+inf', 'BYSCORE', 'LIMIT', 0, id)
  if #ids == tonumber(id) then
    return #ids
  end
  local live = {}
  for _, member in ipairs(ids) do
    local entry = string.sub(redis.call('HGET', members, member) or '', 1, LONGEST_ENTRY)
    live[#live + 1] = { string.sub(member, 1, LONGEST_ID), string.match(entry, '^%S+ %d+ (.*)$') }
  end
  return live
end

-- Changes nothing. A full server refuses a first write that may need memory, and no write after one that does not.
redis.call('ZREM', ends, '')
if action == 'unsign' then
  redis.call('ZREM', ends, id)
  return redis.call('HDEL', members, id)
end
for _, ended in ipairs(redis.call('ZRANGE', ends, '-inf', number(now), 'BYSCORE')) do
  redis.call('ZREM', ends, ended)
  redis.call('HDEL', members, ended)
end
local ttl, session, lease, value = tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6]
local its_session, its_lease = string.match(redis.call('HGET', members, id) or '', '^(%S+) (%d+) ')
if its_session == session then
  lease = its_lease
end
redis.call('HSET', members, id, session .. ' ' .. lease .. ' ' .. value)
redis.call('ZADD', ends, number(now + ttl * 1000), id)
keep(members, ttl)
keep(ends, ttl)
return lease
