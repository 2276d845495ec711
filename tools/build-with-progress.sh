#!/usr/bin/env bash
# tools/build-with-progress.sh FOLDER TARGET..: builds with ninja and shows how far it is: on a terminal as one line that
# is drawn over itself, elsewhere as a line for every tenth part. What compilers say of errors is printed as it is.
set -euo pipefail
folder=$1
shift
if [ -t 1 ]; then
  NINJA_STATUS='  %p  %f of %t, %e s  ' exec ninja -C "$folder" "$@"
fi
NINJA_STATUS='@%f %t %e ' ninja -C "$folder" "$@" | awk '
  /^@/ {
    done = substr($1, 2); all = $2
    if (done == all || 10 * done >= all * next_tenth) {
      printf "  %d of %d, %d s\n", done, all, $3
      fflush()
      next_tenth = int(10 * done / all) + 1
    }
    next
  }
  /^ninja: (Entering directory|no work to do)/ { next }
  { print; fflush() }'
