# SPDX-License-Identifier: Apache-2.0
"""The tables of the fault bench: a row per kind, and the measured figures next to the wanted figures."""

import re
import statistics
from collections import Counter

WANTED_DEATH_MEDIAN_S, WANTED_STOP_WORST_S, WANTED_START_WORST_S = 0.8, 3.0, 10.0


def figures(values):
    """Returns median and maximum as text."""
    if not values:
        return "-", "-"
    return f"{statistics.median(values):.2f}", f"{max(values):.2f}"


def timed(results):
    """Returns the seconds of cases with several processes that had to notice the fault and ended because of it."""
    return [result.seconds for result in results
            if result.effect and result.processes > 1 and result.status != 0 and not result.hung]


def by_kind(results):
    rows = ["| fault | n | no effect | survived | bad | resumed | median s | max s | verdict |",
            "|---|---|---|---|---|---|---|---|---|"]
    for kind in dict.fromkeys(result.kind for result in results):
        of_kind = [result for result in results if result.kind == kind]
        effective = [result for result in of_kind if result.effect]
        bad = [result for result in of_kind if result.bad]
        ended = [result.seconds for result in effective if result.status != 0 and not result.hung]
        survivors = sum(result.status == 0 for result in effective)
        resumes = sum(result.resumed_from is not None for result in of_kind)
        median, worst = figures(ended)
        hangs = sum(result.hung for result in bad)
        verdict = f"{hangs} hang" if hangs else "bad" if bad else "good" if effective else "not hit"
        rows.append(f"| {kind} | {len(of_kind)} | {len(of_kind) - len(effective)} | {survivors} | {len(bad)} | "
                    f"{resumes} | {median} | {worst} | {verdict} |")
    return rows


def summary(results):
    """Compares detection times with the wanted times."""
    deaths = timed(r for r in results if r.group == "death" and r.phase == "running")
    stops = timed(r for r in results if r.group == "stop" and r.phase == "running")
    starts = timed(r for r in results if r.effect and r.phase == "start" and r.group in ("start", "death", "stop"))
    hangs = sum(r.hung for r in results)
    rows = ["| figure | found | wanted | |", "|---|---|---|---|"]

    def row(name, value, wanted):
        reached = "" if value is None else "reached" if value <= wanted else "**missed**"
        rows.append(f"| {name} | {'-' if value is None else f'{value:.2f}'} | {wanted:g} | {reached} |")
    row("hangs", hangs, 0)
    row(f"death while running, median of {len(deaths)}, s", statistics.median(deaths) if deaths else None,
        WANTED_DEATH_MEDIAN_S)
    rows.append(f"| death while running, worst, s | {figures(deaths)[1]} | | |")
    row(f"stop while running, worst of {len(stops)}, s", max(stops, default=None), WANTED_STOP_WORST_S)
    row(f"start, worst of {len(starts)}, s", max(starts, default=None), WANTED_START_WORST_S)
    resumes = [r for r in results if r.resumed_from is not None]
    wrong = sum(any("losses" in problem or "steps [" in problem for problem in r.bad) for r in results)
    rows.append(f"| resumed runs | {len(resumes)} | | |")
    row("runs with wrong losses", wrong, 0)
    row("cases with anything wrong", sum(bool(r.bad) for r in results), 0)
    return rows


def pattern_of(problem):
    """Returns a problem without its figures, so that equal problems are counted together."""
    text = re.split(r"; |: error:| at PC=", problem)[0]
    return re.sub(r"(?<!status )(?<!status -)(?<!of )(?<!of -)\b[0-9a-f]*\d[0-9a-f]*", "N", text)[:120]


def findings(results):
    """Returns problems with their counts and kinds, most frequent first."""
    counts, kinds = Counter(), {}
    for result in results:
        for pattern in {pattern_of(problem) for problem in result.bad}:
            counts[pattern] += 1
            kinds.setdefault(pattern, Counter())[result.kind] += 1
    return [f"{count:4}  {pattern}   [{', '.join(f'{kind} {n}' for kind, n in kinds[pattern].most_common(6))}]"
            for pattern, count in counts.most_common()]
