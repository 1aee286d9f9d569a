-- What the server knows of the namespace. In another reign, or without its keys, it may have forgotten: another episode begins,
-- and it pauses from when that was first met.
--
-- KEYS  space
-- ARGV  run, 1 if it has followed another server or 0, terms, the pause in milliseconds of a manager that may hold by them or 0,
--       an id for a new episode, the format that the manager understands[, the episode that a look has found, what clocks it
--       had then, what those of all were, 1 if any server was told anything or 0]
-- Answer: the format of the namespace, if that is another, with nothing changed; or {now, 1 if it is whole or 0, largest number, 1 if it was whole in an earlier run and has that one's data or 0, 1 if it
-- was ever told anything, or met beside one that was, or 0, the longest of those pauses, terms, the episodes that were blank
-- beside it, what the clocks were, id, episode}

local run, terms, pause = ARGV[1], ARGV[3], tonumber(ARGV[4])
local fields = { 'run', 'whole', 'max', 'terms', 'beside', 'since', 'claims', 'used', 'pause', 'id', 'episode', 'format' }
local known = redis.call('HMGET', KEYS[1], unpack(fields))
if known[12] and known[12] ~= ARGV[6] then
  return known[12]
end
local whole, since, claims, paused = known[2] == '1', known[6] or '', known[7] == '1', tonumber(known[9]) or 0
if known[1] ~= run or not (whole or known[11]) then
  whole, claims, since, paused, known[11] = false, whole or claims, '', 0, ARGV[5]
  local begun = { 'run', run, 'whole', '0', 'claims', claims and '1' or '0', 'pause', '0', 'since', '', 'episode', ARGV[5] }
  redis.call('HSET', KEYS[1], unpack(begun))
elseif not whole and known[11] == ARGV[7] then
  if since == ARGV[8] then
    since = ARGV[9]
    redis.call('HSET', KEYS[1], 'since', since)
  end
  if not known[8] and ARGV[10] == '1' then
    known[8] = '1'
    redis.call('HSET', KEYS[1], 'used', '1')
  end
end
-- That outlasts the next reign.
if claims and ARGV[2] == '1' then
  claims = false
  redis.call('HSET', KEYS[1], 'claims', '0')
end
if not whole then
  -- Until somebody may hold by them, they are only proposed, and all servers prefer the same. A server that was ever told has an
  -- id: there somebody may.
  local is_proposed = known[4] and not known[10] and redis.sha1hex(terms) < redis.sha1hex(known[4])
  local is_better = known[4] and paused == 0 and (pause > 0 or is_proposed)
  if is_better or not known[4] then
    known[4] = terms
    redis.call('HSET', KEYS[1], 'terms', terms)
  end
  if paused < pause then
    paused = pause
    redis.call('HSET', KEYS[1], 'pause', text(pause))
  end
end
local flag = { [true] = 1, [false] = 0 }
return {
  clock(), flag[whole], tonumber(known[3]) or 0, flag[claims], known[8] and 1 or 0, paused,
  known[4] or '', known[5] or '', since, known[10] or '', known[11] or '',
}
