# Of the log of a CTest run: seconds of processor time by suite, beside the budget of each.
# awk -v preset=NAME -f tools/test-times.awk tests/budget.txt LOG
# A suite above its budget is marked. That fails nothing: a slow or busy machine is no defect.
FILENAME == ARGV[1] {
  if ($1 == preset) budget[$2] = $3
  next
}
$0 ~ /Test +#[0-9]+: / {
  name = $0
  sub(/.*Test +#[0-9]+: /, "", name)
  sub(/ .*/, "", name)
  if (name ~ /^GetParam/) next
  parts = split(name, part, "/")
  suite = part[1]
  if (parts > 2 || part[1] == "unit" || part[1] == "conformance") suite = part[1] "/" part[2]
  if (part[1] == "virtual" || part[1] == "e2e" && part[2] != "control") suite = part[1]
  if (match($0, /[0-9.]+ sec/)) spent[suite] += substr($0, RSTART, RLENGTH - 4)
}
END {
  printf "%s: seconds of each suite, and its budget\n", preset
  for (suite in spent) {
    limit = suite in budget ? budget[suite] : "none"
    mark = limit == "none" || spent[suite] > limit ? "  <- above its budget (tests/budget.txt)" : ""
    printf "  %-26s %7.1f %7s%s\n", suite, spent[suite], limit, mark | "sort"
  }
  close("sort")
}
