#!/usr/bin/env bash
# Runs `make test` on the current stack where this machine's glibc is too old for it: in a small Debian 13, made once with
# debootstrap and kept (CURRENT_ROOT, by default build/trixie), with the repository mounted in it.
# Exits as the tests do. Where such a folder can't be made, says loudly that they were skipped, and exits 0.
set -euo pipefail

root=$(realpath -m "${CURRENT_ROOT:-build/trixie}")
log=$PWD/build/debootstrap.log

skip() {
  printf '\n%s\n' "########################################################################"
  echo "SKIPPED: current stack not tested: $*"
  printf '%s\n\n' "########################################################################"
  exit 0
}

# All mounts are made in a mount namespace of this script's own: nothing outside ever sees them, so no clean-up of the
# folder can reach through them, and they are gone when the script ends, however it ends.
if [ "${1:-}" != --in-namespace ]; then
  [ "$(uname -sm)" = "Linux x86_64" ] || skip "it needs Linux on x86_64, this is $(uname -sm)"
  [ "$(id -u)" = 0 ] || skip "only root can make and enter the Debian folder (try: sudo make test-current)"
  unshare --mount --propagation private true 2>/dev/null || skip "this machine does not let root mount (a container?)"
  exec unshare --mount --propagation private "$0" --in-namespace
fi

get_debootstrap() {
  command -v debootstrap >/dev/null && return
  command -v apt-get >/dev/null || skip "debootstrap is not installed, and there is no apt-get to install it"
  echo "test-current: installing debootstrap"
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update && apt-get install --yes --no-install-recommends debootstrap; } >"$log" 2>&1 ||
    skip "debootstrap could not be installed (see $log): $(tail -n 1 "$log")"
}

# Made under another name first: a folder that is there is whole.
make_root() {
  get_debootstrap
  echo "test-current: making a Debian 13 folder in $root (about a minute)"
  rm -rf --one-file-system "$root.partial"
  mkdir -p "$root.partial"
  timeout 900 debootstrap --variant=minbase --include=python3,python3-venv,python3-dev,gcc,ca-certificates,make \
    trixie "$root.partial" >"$log" 2>&1 || skip "debootstrap failed (see $log): $(tail -n 1 "$log")"
  mv "$root.partial" "$root"
}

# What this machine says about names, certificates and package indexes holds in there too.
copy_settings() {
  local file
  for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/xdg/pip /etc/ssl/certs/ca-certificates.crt \
      "${HOME:-/root}/.config/pip" "${HOME:-/root}/.pip" \
      "${PIP_CONFIG_FILE:-}" "${PIP_CERT:-}" "${SSL_CERT_FILE:-}" "${REQUESTS_CA_BUNDLE:-}"; do
    [ -e "$file" ] || continue
    mkdir -p "$root$(dirname "$file")"
    cp -rL --remove-destination "$file" "$root$(dirname "$file")/"
  done
}

mkdir -p build
[ -d "$root" ] || make_root
copy_settings

home=${HOME:-/root}
mkdir -p "$root/repository" "$root$home"
mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind "$PWD" "$root/repository"

# The environment stays but for what names places outside. The virtual environment lies beside the repository, so that
# this machine's own .venv is left alone.
echo "test-current: make test in $root"
exec chroot "$root" /usr/bin/env --unset=PYENV_ROOT --unset=PYENV_VERSION --unset=PYTHONHOME --unset=PYTHONPATH \
  --unset=TMPDIR --unset=VIRTUAL_ENV HOME="$home" PATH=/usr/sbin:/usr/bin:/sbin:/bin \
  make --no-print-directory -C /repository test STACK=current VENV=/venv
