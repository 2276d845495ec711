#!/usr/bin/env bash
# tests/python/run.sh BINARY ACTOR_WORKER [TEST...]: installs the package of python/ with pip into a folder of its own, and
# runs its tests against a real controller and workers.
# Exits with 77 where the packages of tools/install-python.sh are not there; with CI=true they have to be.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
export MESHWRIGHT_BINARY=$1 MESHWRIGHT_ACTOR_WORKER=$2
shift 2

python=${MESHWRIGHT_PYTHON:-$root/build/python/bin/python}
if ! "$python" -c 'import google.protobuf, grpc, mypy, numpy' 2> /dev/null; then
  echo "not installed: grpcio, protobuf, numpy and mypy (tools/install-python.sh)"
  if [ "${CI:-}" = true ]; then exit 1; fi
  exit 77
fi
unset MESHWRIGHT_ADDRESS MESHWRIGHT_TOKEN MESHWRIGHT_TLS_DIR
export PYTHONDONTWRITEBYTECODE=1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp -r "$root/python" "$folder/source" # pip builds beside it
"$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation \
  --target "$folder/site" "$folder/source"
export PYTHONPATH=$folder/site
cd "$root/tests/python"
"$python" -W error::ResourceWarning -m unittest "${@:-discover}"
