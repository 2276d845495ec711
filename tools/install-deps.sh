#!/usr/bin/env bash
# Installs the Debian packages of tools/apt-packages.txt that are missing. Asks nothing; needs no
# network and no rights when all are there. Prints the one command to run when it may not install.
set -euo pipefail
cd "$(dirname "$0")"

wanted=()
while read -r package condition _; do
  case "$package" in '' | '#'*) continue ;; esac
  if [ "${condition:-}" = "[ci]" ] && [ "${CI:-}" != "true" ]; then continue; fi
  wanted+=("$package")
done < apt-packages.txt

if ! command -v dpkg-query > /dev/null || ! command -v apt-get > /dev/null; then
  echo "install-deps: this is no Debian system; install the equivalents of:" >&2
  printf '  %s\n' "${wanted[@]}" >&2
  exit 1
fi

missing=()
for package in "${wanted[@]}"; do
  # One line per architecture of the package.
  if dpkg-query -W -f '${db:Status-Status}\n' "$package" 2> /dev/null | grep -qx installed; then
    continue
  fi
  missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi

if [ "$(id -u)" -eq 0 ]; then
  as_root=(env DEBIAN_FRONTEND=noninteractive)
elif command -v sudo > /dev/null && sudo -n true 2> /dev/null; then
  as_root=(sudo -n env DEBIAN_FRONTEND=noninteractive)
else
  echo "install-deps: ${#missing[@]} packages are missing. Run this, then try again:" >&2
  echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
  exit 1
fi
echo "install-deps: installing ${missing[*]}"
"${as_root[@]}" apt-get update -q
"${as_root[@]}" apt-get install -q -y --no-install-recommends "${missing[@]}"
