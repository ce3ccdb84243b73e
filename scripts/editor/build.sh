#!/bin/sh
# Build what the web page borrows into src/habitus/web/static/vendor: CodeMirror as one file, htmx as it is, and the
# licences of both. Only for whoever changes them: what it makes is kept, and nobody else needs node.
set -eu
cd "$(dirname "$0")"
vendor=$(cd ../../src/habitus/web/static/vendor && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp editor.js "$work"
cd "$work"
npm init -y >/dev/null
npm install --silent --no-audit --no-fund htmx.org@4.0.0 esbuild@0.28.2 \
  @codemirror/commands@6 @codemirror/language@6 @codemirror/state@6 @codemirror/view@6 @lezer/highlight@1 @lezer/markdown@1
npx esbuild editor.js --bundle --minify --format=iife --target=es2022 --legal-comments=none --outfile="$vendor/codemirror.js"
cp node_modules/htmx.org/dist/htmx.min.js "$vendor/htmx.js"
for package in htmx.org @codemirror/view @codemirror/state @codemirror/language @codemirror/commands @lezer/common \
  @lezer/highlight @lezer/lr @lezer/markdown @marijn/find-cluster-break crelt style-mod w3c-keyname; do
  version=$(node -p "require('./node_modules/$package/package.json').version")
  printf '## %s %s\n\n' "$package" "$version"
  cat "node_modules/$package/LICENSE"
  printf '\n'
done > "$vendor/LICENSES.md"
