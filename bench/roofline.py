"""Where the time of a GPT-2 step goes, by kind of node, against what the machine could do."""
import ours
from cases import GPT2, JOBS
from common import ROOT, log
from flops import products


def report(options):
    """A table: each kind's part of the step, and the part of its own time that its limit would take: the
    longer of its FLOPs at oneDNN's rate for the step's products and of its bytes at the rate of a copy
    outside of the caches (what stays in a cache may be above 100 %)."""
    log("rates of the machine")
    shapes = products(GPT2, "float32")
    rate = sum(shapes.values()) / sum(f / ours.matmul_rate(1, s) for s, f in shapes.items())
    copy = ours.copy_rate(1)
    log("profile")
    rows = ours.mw_bench(1, "profile", ROOT / JOBS["gpt2"], "--json", "--steps", options.steps(3))
    step = rows.pop()["seconds"]
    lines = [f"limits: {rate / 1e9:.1f} GFLOP/s, {copy / 1e9:.1f} GB/s; step {step * 1e3:.1f} ms, "
             f"its products alone {sum(shapes.values()) / rate * 1e3:.1f} ms",
             f"{'ms':>9} {'% step':>7} {'calls':>6} {'GFLOP/s':>8} {'GB/s':>7} {'% limit':>8}  kind"]
    for row in rows:
        seconds = row["seconds"]
        limit = max(row["flops"] / rate, row["bytes"] / copy)
        lines.append(f"{seconds * 1e3:9.3f} {100 * seconds / step:7.1f} {row['calls']:6d} "
                     f"{row['flops'] / seconds / 1e9:8.1f} {row['bytes'] / seconds / 1e9:7.1f} "
                     f"{100 * limit / seconds:8.1f}  {row['kind']}")
    inside = sum(row["seconds"] for row in rows)
    lines.append(f"{(step - inside) * 1e3:9.3f} {100 * (1 - inside / step):7.1f}  outside of nodes")
    return "\n".join(lines)
