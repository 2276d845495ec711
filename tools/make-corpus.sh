#!/usr/bin/env bash
# tools/make-corpus.sh OUT: writes a training text of 4.2 MB to OUT: the King James Bible from
# Debian's bible-kjv package (public domain, plain ASCII English prose). One verse per line without
# its reference, a blank line before each chapter. Does nothing when OUT has that text already.
set -euo pipefail
if [ $# -ne 1 ]; then
  echo "usage: $0 OUT" >&2
  exit 2
fi
out=$1
least_bytes=4000000

if [ -f "$out" ] && [ "$(wc -c < "$out")" -ge "$least_bytes" ]; then exit 0; fi
if ! command -v bible > /dev/null; then
  echo "make-corpus: the program 'bible' is missing; run: sudo apt-get install -y bible-kjv" >&2
  exit 1
fi

mkdir -p "$(dirname "$out")"
temporary=$(mktemp "$out.XXXXXX")
trap 'rm -f "$temporary"' EXIT
# bible -f: one verse per line after its reference, "Gen1:1 In the beginning ...".
bible -f gen1:1-rev22:21 < /dev/null | LC_ALL=C awk '
  {
    chapter = $1
    sub(/:.*/, "", chapter)
    if (chapter != last && NR > 1) print ""
    last = chapter
    sub(/^[^ ]+ +/, "")
    print
  }' > "$temporary"
size=$(wc -c < "$temporary")
if [ "$size" -lt "$least_bytes" ]; then
  echo "make-corpus: got only $size bytes from 'bible', expected $least_bytes or more" >&2
  exit 1
fi
chmod 644 "$temporary"
mv "$temporary" "$out"
