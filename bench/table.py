"""The kept results as a Markdown table."""
import json

from cases import REGISTRY
from common import ROOT, RUNS

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
# What else a target asks of our side.
_ALSO = {"over_own_float32": "× own float32", "over_plan": "× the plan", "percent_of_step": "% of the step",
         "page_core_percent": "% of a core"}
_UNITS = {"tokens_per_s": "tokens/s", "us": "µs", "us_per_node": "µs per node", "peak_rss_mib": "MiB",
          "seconds": "s", "milliseconds": "ms", "percent": "%", "gb_per_s": "GB/s", "ms_per_gib": "ms per GiB"}


def _value(field):
    """The main number of an object, with its unit and the object's name."""
    if not field:
        return ""
    if "error" in field:
        return field["error"]
    for key, unit in _UNITS.items():
        if key in field:
            number = field[key]
            text = f"{number:,.0f}" if number >= 1000 else f"{number:g}"
            also = [f"({field[other]:.3g} {words})" for other, words in _ALSO.items() if other in field]
            return " ".join(part for part in (text, unit, *also, field.get("name", "")) if part)
    return ""


def _row(result):
    def cell(value):
        return ("" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)).replace("|", "/")

    verdict = "yes" if result["met"] else "**missed**"
    return "| " + " | ".join([result["name"], cell(_value(result["ours"])), cell(_value(result["peer"])),
                              cell(result["ratio"]), cell(result["limit_ratio"]), cell(result["target"]),
                              verdict]) + " |"


def make():
    results = []
    for name in REGISTRY:
        path = RUNS / f"{name}.json"
        if path.exists():
            results.append(json.loads(path.read_text(encoding="utf-8")))
    if not results:
        return "no results yet: run bench/run"
    machines = sorted({f"{r['machine']['cpu']}, {r['machine']['cores']} cores" for r in results})
    lines = ["| case | ours | peer | ratio | of the limit | target | met |", "|---|---|---|---|---|---|---|"]
    lines += [_row(result) for result in results]
    met = sum(bool(result["met"]) for result in results)
    return "\n".join(lines) + f"\n\n{met} of {len(results)} met. Machine: {'; '.join(machines)}."


def write():
    """Puts the table between the markers of README.md; returns what to print."""
    text, readme = make(), ROOT / "README.md"
    old = readme.read_text(encoding="utf-8")
    begin, end = old.find(BEGIN), old.find(END)
    if begin < 0 or end < begin:
        return text
    readme.write_text(old[:begin] + BEGIN + "\n" + text + "\n" + old[end:], encoding="utf-8")
    return "README.md has the table"
