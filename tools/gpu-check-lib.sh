# Lines of JSON, commands with a time limit, and numbers, for tools/gpu-check: that sets $results (where lines are
# kept), $quick (1: figures mean nothing) and $most_s (no limit is longer; empty: as each case has it).
# shellcheck shell=bash disable=SC2034,SC2154

judged_count=0
met_count=0
skipped_count=0
failed=0
began_all=$SECONDS

# say JSON: prints and keeps a line, and counts it. One that is not met fails the whole; with --quick only one
# that has to pass or says what went wrong.
say() {
  printf '%s\n' "$1" | tee -a "$results"
  case "$1" in
    *'"met":true'*) judged_count=$((judged_count + 1)) met_count=$((met_count + 1)) ;;
    *'"met":false'*) judged_count=$((judged_count + 1)) ;;
    *'"skipped":'*) skipped_count=$((skipped_count + 1)) ;;
  esac
  case "$quick:$1" in
    0:*'"met":false'* | 1:*'"target":"passes"'*'"met":false'* | 1:*'"met":false'*'"error":'*) failed=1 ;;
  esac
}

# finish CODE: the last line, and the end
finish() {
  local counts="\"judged\":$judged_count,\"met\":$met_count,\"skipped\":$skipped_count"
  say "{\"case\":\"gpu-check\",$counts,\"seconds\":$((SECONDS - began_all))}"
  exit "$1"
}

# quoted TEXT: as a string of JSON
quoted() {
  printf '"%s"' "$(printf '%s' "$1" | tr '\n\t\r' '   ' | LC_ALL=C tr -d '\000-\037' | sed 's/["\\]/\\&/g')"
}

# field NAME FILE: the last value of that name in lines of JSON: a number, or a text as it is between its quotes
field() { sed -n -E "s/.*\"$1\": ?(\"(([^\"\\\\]|\\\\.)*)\"|([^\",}]+)).*/\\2\\4/p" "$2" | tail -n 1; }

# keep FILE JOB: says the whole lines of a command with the job they are of. What JSON has no number for is null
# there and meets no target.
keep() {
  local line
  while IFS= read -r line; do
    say "$line"
  done < <(sed -n -E "s/^(\\{\"case\":\"([^\"\\\\]|\\\\.)*\"),(.*\\})\$/\\1,\"job\":\"$2\",\\3/p" "$1" |
    sed -E '/:-?(nan|inf)[,}]/ { s/"met":true/"met":false/; s/:-?(nan|inf)([,}])/:null\2/g }')
}

# ---- time ----
child=     # the command that runs now
limit_s=0  # of the last command
took_s=0

# within SECONDS COMMAND...: its exit code. In the background, so that a signal to this script ends it.
within() {
  local began=$SECONDS status
  limit_s=$1
  if [ -n "$most_s" ] && [ "$most_s" -lt "$limit_s" ]; then limit_s=$most_s; fi
  shift
  timeout -k 10 "$limit_s" "$@" &
  child=$!
  wait "$child"
  status=$?
  child=
  took_s=$((SECONDS - began))
  return "$status"
}

# why STATUS LOG: what went wrong with the last command, in one line; nothing where nothing did
why() {
  local status=$1 how="exit code $1" last
  if [ "$status" = 0 ]; then return; fi
  if [[ "$status" =~ ^(124|137)$ ]] && [ "$took_s" -ge "$limit_s" ]; then
    echo "took longer than $limit_s s"
    return
  fi
  [ "$status" -le 128 ] || how="signal $((status - 128))"
  # Without what this shell says of a signal.
  last=$(grep -v -e '^[[:space:]]*$' -e '^tools/gpu-check-lib.sh: line' "$2" 2> /dev/null | tail -n 1 |
    sed 's/^[[:space:]]*//' | cut -c 1-400)
  echo "${last:+$last, }$how"
}

# judge CASE SECONDS ERROR [FIELDS]: a case that is met when there is no error; its log is $out/CASE.log
judge() {
  local line="{\"case\":\"$1\",\"value\":$2,\"unit\":\"s\",\"target\":\"passes\"" more="${4:-},\"log\":\"$out/$1.log\"}"
  if [ -z "$3" ]; then
    say "$line,\"met\":true$more"
  else
    say "$line,\"met\":false,\"error\":$(quoted "$3")$more"
  fi
}

# passes CASE SECONDS COMMAND...: a case that is met when the command succeeds within the time
passes() {
  local name=$1 limit=$2 error
  shift 2
  within "$limit" "$@" > "$out/$name.log" 2>&1
  error=$(why $? "$out/$name.log")
  judge "$name" "$took_s" "$error"
  [ -z "$error" ]
}

# tests_pass CASE SECONDS COMMAND...: the same of a program of GoogleTest. It succeeds, too, when all it has is
# skipped: then it shows nothing.
tests_pass() {
  local name=$1 limit=$2 log=$out/$1.log error ran
  shift 2
  within "$limit" "$@" > "$log" 2>&1
  error=$(why $? "$log")
  ran=$(grep -c '^\[ *OK \]' "$log")
  if [ -z "$error" ] && [ "$ran" = 0 ]; then
    error="no test ran: $(awk '/: Skipped$/ { getline; print; exit }' "$log")"
  fi
  judge "$name" "$took_s" "$error" \
    ",\"tests\":$ran,\"skipped_tests\":$(grep -c '^\[  SKIPPED \].* ms)$' "$log")"
}

# ---- numbers ----
is_number() { [[ "$1" =~ ^-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?$ ]]; }

# median: of the numbers above 0 on stdin; nothing where one of the lines is none
median() {
  sort -g | awk '
    !/^[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?$/ || $1 <= 0 { bad = 1 }
    { v[NR] = $1 }
    END { if (NR && !bad) printf "%.6g\n", (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'
}

# quotient A B
quotient() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.4g", a / b }'; }

# compares A OPERATOR B: true or false, for "met"
compares() {
  awk -v a="$1" -v operator="$2" -v b="$3" \
    'BEGIN { print (operator == "<=" ? a + 0 <= b + 0 : a + 0 >= b + 0) ? "true" : "false" }'
}
