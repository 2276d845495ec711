"""Rounds of several parties in turn, and what they say: medians and spreads."""
import statistics

from common import log


def interleave(parties, rounds):
    """parties: {name: function of no arguments -> number}. Runs A B, B A, A B, ... so that a slow minute
    of the machine meets all of them. -> {name: [number of each round]}."""
    values = {name: [] for name in parties}
    names = list(parties)
    for index in range(rounds):
        for name in names if index % 2 == 0 else reversed(names):
            value = parties[name]()
            values[name].append(value)
            log(f"  round {index + 1}  {name:<28} {value:.6g}")
    return values


def spread(values):
    """(max - min) / median."""
    return round((max(values) - min(values)) / statistics.median(values), 3)


def median(values):
    return statistics.median(values)


def significant(value, digits=4):
    return None if value is None else float(f"{value:.{digits}g}")
