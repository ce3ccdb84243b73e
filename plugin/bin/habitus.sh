#!/bin/sh
# Habitus on this machine: the installation that was noted, else `habitus` on the path. It is never fetched by its name
# from a registry, because whoever owns the name there would run code in every session. Without one, it says how to
# install it; `mcp` then answers as a valid server without tools.
PATH="$PATH:$HOME/.local/bin"
if command -v habitus >/dev/null 2>&1; then exec habitus "$@"; fi
noted="${HABITUS_HOME:-$HOME/.habitus}/plugin"
if [ -r "$noted" ]; then
  { IFS= read -r python; } < "$noted"
  if [ -x "$python" ] && [ -x "$(dirname "$python")/habitus" ]; then exec "$(dirname "$python")/habitus" "$@"; fi
fi
how="Habitus is not installed. Install it from the source you trust, for example: uv tool install '/path/to/habitus[all]'"
echo "$how" >&2
[ "$1" = mcp ] || exit 1
# One JSON-RPC message a line. Only requests have an id, and only they are answered.
while IFS= read -r line || [ -n "$line" ]; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id"[[:space:]]*:[[:space:]]*\("[^"]*"\|-\{0,1\}[0-9][0-9]*\).*/\1/p')
  [ -n "$id" ] || continue
  case $(printf '%s' "$line" | sed -n 's/.*"method"[[:space:]]*:[[:space:]]*"\([^"]*\)".*/\1/p') in
    initialize)
      asked=$(printf '%s' "$line" | sed -n 's/.*"protocolVersion"[[:space:]]*:[[:space:]]*"\([0-9-]*\)".*/\1/p')
      result="{\"protocolVersion\":\"${asked:-2025-06-18}\",\"capabilities\":{\"tools\":{}},\"serverInfo\":{\"name\":\"habitus\",\"version\":\"0\"},\"instructions\":\"$how\"}" ;;
    ping) result="{}" ;;
    tools/list) result='{"tools":[]}' ;;
    *)
      printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"%s"}}\n' "$id" "$how"
      continue ;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
