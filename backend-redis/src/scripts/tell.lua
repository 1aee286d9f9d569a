-- Sends a message to an inbox, signed if there is a message key; returns what PUBLISH replied. Without the right to publish
-- no message arrives, and the next renewal finds what it would have said.
local function tell(channels, inbox, news, owner, value, lock)
  local prefix, key = string.match(channels, '^([^\n]*)\n?(.*)$')
  if key ~= '' then
    local message = table.concat({ news, owner, value, lock }, ' ')
    value = value .. '/' .. redis.sha1hex(key .. redis.sha1hex(key .. message))
  end
  return redis.pcall('PUBLISH', prefix .. inbox, table.concat({ news, owner, value, lock }, ' '))
end

