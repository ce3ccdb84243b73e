#!/bin/sh
# A hook: `hook.sh EVENT`. At SessionStart Habitus is found and noted, unless what was noted is as new as `habitus` on the
# path; the others start what was noted and nothing else, because every prompt waits for them. Whatever goes wrong, the
# agent goes on. Without a home nothing is noted: a session's server makes one, and a home that was moved stays away.
noted="${HABITUS_HOME:-$HOME/.habitus}/plugin"
read_note() {
  [ -r "$noted" ] && { IFS= read -r python && IFS= read -r script && IFS= read -r home; } < "$noted" &&
    [ -x "$python" ] && [ -r "$script" ]
}
ours=$(command -v habitus 2>/dev/null)
if [ "$1" = SessionStart ] && { ! read_note || [ "${ours:-$noted}" -nt "$noted" ]; }; then
  said=$(sh "$(dirname "$0")/habitus.sh" jobs hooks --note 2>&1 < /dev/null)
  failed=$?
  if [ -n "$said" ]; then printf '%s\n' "$said" | tail -n 1; fi
  [ "$failed" = 0 ] || exit 0
fi
read_note || exit 0
exec "$python" -IS "$script" "$1" "$home" "$python"
