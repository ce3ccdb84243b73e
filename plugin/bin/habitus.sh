#!/bin/sh
# Habitus on this machine: `habitus` on the path, else by uvx. Without either it says how to install it.
PATH="$PATH:$HOME/.local/bin"
if command -v habitus >/dev/null 2>&1; then exec habitus "$@"; fi
if command -v uvx >/dev/null 2>&1; then exec uvx --quiet --from 'habitus[all]' habitus "$@"; fi
echo "Habitus is not installed: uv tool install 'habitus[all]'" >&2
exit 127
