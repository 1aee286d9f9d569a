-- What a lock is that other libraries take too, under a key of theirs; what it is in theirs follows.
--
-- ARGV  the last: "POLL AFTER EVERY FOR", how often whoever is first asks after a stranger's lock, and when
--       strangers have their turn: after so many hand-overs, or so long, for so long; in milliseconds

local POLL, AFTER, EVERY, FOR = string.match(ARGV[#ARGV], '^(%d+) (%d+) (%d+) (%d+)$')
POLL, AFTER, EVERY, FOR = tonumber(POLL), tonumber(AFTER), tonumber(EVERY), tonumber(FOR)

-- Within so many milliseconds of a release to nobody, ours take the lock before a client that polls is likely to see it free.
local SOON = math.ceil(FOR / 3)

-- The lock is free and nobody of ours waits: the turns so far, for whoever of ours takes it soon.
local function keep_turns(entries, turns)
  if FOR > 0 then
    redis.call('HSET', entries, 'turns', turns)
    redis.call('PEXPIRE', entries, SOON)
  end
end

-- The holder has released: whoever writes its id after that is a foreign client.
local function end_grant(grants)
  local record, counted = string.gsub(redis.call('GET', grants) or '', '^(%d+ )(%x)', '%1~%2')
  if counted == 1 then
    redis.call('SET', grants, record, 'KEEPTTL')
  end
end

-- How whoever only looks asks.
local look = redis.call

-- What is no lock of this format is left alone, and said.
local function refuse(lock, found)
  local kind = redis.pcall('TYPE', lock).ok or 'thing of another type'
  error({ err = 'NOLOCK the key "' .. lock .. '" is a ' .. kind .. found })
end

-- Whether an answer is an error, of which those about the type are told as ours.
local function fails(answer, lock, ask)
  local wrong = type(answer) == 'table' and answer.err
  if wrong and ask == redis.call then
    if string.find(wrong, '^WRONGTYPE') then
      refuse(lock, '')
    end
    error({ err = wrong })
  end
  return wrong
end

