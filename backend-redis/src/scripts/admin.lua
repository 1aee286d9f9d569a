-- What administrators ask of own.lua and foreign.lua; base.lua says how.

if operation == 'revoke' then
  local grace = ARGV[3]
  write_on_a_full_server(queue)
  local holder = holder_of(lock, redis.call, grants)
  if sharers and holder == '*' then
    local now = clock()
    holder = sharers().purge(lock, entries, now)
    if holder then
      local answer = { 2, 0 }
      sharers().revoke(answer, lock, entries, channels, grace, now)
      local _, more = settle(lock, queue, entries, grants, channels, holder, now)
      answer[2] = more and 1 or 0
      return answer
    end
  end
  if not holder then
    settle(lock, queue, entries, grants, channels, holder)
    return { 0 }
  end
  local answer = { 1, redis.call('PTTL', lock), 0 }
  local record, _, owner = last_grant(grants)
  if grace == 'force' then
    grace = '0'
    answer[3] = let_go(lock, queue, entries, grants, channels) and 1 or 0
  elseif not (foreign and foreign.hold(holder, grants)) then
    -- The message of an earlier revocation may have been lost: the shortest grace counts.
    local noted = asked_of(entries, holder)
    if noted and tonumber(noted) < tonumber(grace) then
      grace = noted
    end
    redis.call('HSET', entries, 'revoked', holder .. ' ' .. grace)
    keep(entries, math.max(answer[2], 1))
  end
  -- A foreign client has no inbox.
  if owner == holder then
    local inbox = string.match(record, '^%d+ %S+ %d+ (%S+)') or ''
    tell(channels, inbox, 'revoked', holder, grace, lock)
    answer[4] = record
  end
  return answer
end

-- Changes nothing.
if operation == 'inspect' then
  -- So many entries of a queue are read; those behind them count although they may have ended.
  local READ = 50

  -- Finds the end of a queue by halves: a command that counts would need a right of its own.
  local function length(queue)
    local low, high = READ, 2 * READ
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
    local first = redis.call('ZRANGE', queue, 0, READ - 1)
    local waiting = #first < READ and 0 or length(queue) - READ
    for _, owner in ipairs(first) do
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
end

