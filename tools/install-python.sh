#!/usr/bin/env bash
# Installs tools/python-packages.txt into a virtual environment of its own, build/python. Does
# nothing when that is there for the same list.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=build/python
if cmp -s tools/python-packages.txt "$folder/packages.txt"; then exit 0; fi
rm -rf "$folder"
python3 -m venv "$folder"
"$folder/bin/pip" install --quiet --disable-pip-version-check -r tools/python-packages.txt
cp tools/python-packages.txt "$folder/packages.txt"
