-- Tells an inbox; what PUBLISH has answered. Behind a line feed, `channels` has the message key, if there is one: the message is
-- signed with it. Whoever may not publish tells nobody, and what goes unheard is asked for later.
local function tell(channels, inbox, news, owner, value, lock)
  local prefix, key = string.match(channels, '^([^\n]*)\n?(.*)$')
  if key ~= '' then
    local message = table.concat({ news, owner, value, lock }, ' ')
    value = value .. '/' .. redis.sha1hex(key .. redis.sha1hex(key .. message))
  end
  return redis.pcall('PUBLISH', prefix .. inbox, table.concat({ news, owner, value, lock }, ' '))
end

