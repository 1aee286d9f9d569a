-- Sends a message to an inbox, signed if there is a message key; returns what PUBLISH replied. Without the right to publish
-- no message arrives, and the next renewal finds what it would have said. An inbox "{TAG}ID" is a channel of the slot of TAG,
-- which the lock lies in, too. If nobody hears it there, or without the right to publish there, it goes to the inbox ID.
local function tell(channels, inbox, news, owner, value, lock)
  local prefix, key = string.match(channels, '^([^\n]*)\n?(.*)$')
  if key ~= '' then
    local unsigned = table.concat({ news, owner, value, lock }, ' ')
    value = value .. '/' .. redis.sha1hex(key .. redis.sha1hex(key .. unsigned))
  end
  local message = table.concat({ news, owner, value, lock }, ' ')
  local tag, id = string.match(inbox, '^({%w+})(.+)$')
  if tag then
    local told = redis.pcall('SPUBLISH', string.gsub(prefix, 'inbox:$', '') .. tag .. ':inbox:' .. id, message)
    if type(told) == 'number' and told > 0 then
      return told
    end
    inbox = id
  end
  return redis.pcall('PUBLISH', prefix .. inbox, message)
end

