-- What nobody holds is granted to nobody while the server may have forgotten who holds it. It stands where a format
-- has what strangers need, who have the lock to themselves meanwhile.
--
-- ARGV  the last: until when, by this server's clock

local strangers = {}

-- For how many milliseconds nothing is granted, if that is so.
function strangers.rest(entries, now)
  local left = math.ceil((ARGV[#ARGV] - now) / 1000)
  return left > 0 and left
end

-- In how many milliseconds an entry may have its turn, of what the lock has left; -2 if nobody has it.
function strangers.due(left, entries, grants, holder, first, now)
  return left == -2 and strangers.rest(entries, now) or left
end

-- The lock is freed, and who is first asks when that is over; whether it is so.
function strangers.have_their_turn(lock, queue, entries, channels)
  local now = clock()
  local left = strangers.rest(entries, now)
  if not left then
    return false
  end
  free(lock)
  redis.call('HDEL', entries, 'revoked')
  local owner, _, _, _, _, inbox = first_live(queue, entries, now)
  if owner then
    tell(channels, inbox, 'due', owner, number(left), lock)
  end
  return true
end

-- That nobody has it, who is 0 for whoever asks.
function strangers.show(answer, grants, holder)
  if holder == 0 then
    answer[4], answer[5] = false, 2
  end
end

-- Nobody is there of whom anything is to be told or kept.
function strangers.hold() end
function strangers.pass() end
function strangers.again() end
function strangers.forget() end

