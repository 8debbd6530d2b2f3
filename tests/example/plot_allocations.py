"""Plots the time of generation against T, the number of allocations of the BMC cache policy.

    python3 plot_allocations.py MODEL.bmc CHART.svg [TOKENS]

Prints a table as well. bmc.py must be found: installed, or by PYTHONPATH=lib/python.
"""

import sys
import time

import bmc


def seconds(model: bmc.Model, allocations: int, tokens: int) -> float:
    """The best time of three runs, with a context for exactly these tokens."""
    times = []
    for _ in range(3):
        with bmc.Session(model, context=tokens + 8, kv=f"bmc:T={allocations}") as session:
            start = time.perf_counter()
            session.generate("Once upon a time", max_tokens=tokens, ignore_eos=True)
            times.append(time.perf_counter() - start)
    return min(times)


def chart(points: list) -> str:
    """An SVG of (T, seconds), T on a logarithmic axis by rank."""
    width, height, top = 640, 360, 1.1 * max(s for _, s in points)
    at = [(60 + i * (width - 90) / max(len(points) - 1, 1), height - 40 - s / top * (height - 70)) for i, (_, s) in enumerate(points)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
    labels = "".join(f'<text x="{x:.1f}" y="{height - 20}" text-anchor="middle">{t}</text>'
                     f'<text x="{x:.1f}" y="{y - 8:.1f}" text-anchor="middle">{s:.3f}</text>' for (x, y), (t, s) in zip(at, points))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">'
            f'<text x="{width / 2}" y="{height - 4}" text-anchor="middle">T, allocations</text><text x="4" y="14">seconds</text>'
            f'<polyline points="{line}" fill="none" stroke="black"/>{labels}</svg>\n')


def main() -> None:
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    tokens = int(sys.argv[3]) if len(sys.argv) == 4 else 256
    with bmc.Model(sys.argv[1]) as model:
        points = [(t, seconds(model, t, tokens)) for t in (1, 2, 4, 8, 16, 32) if t <= tokens]
    print("T\tseconds")
    for t, s in points:
        print(f"{t}\t{s:.4f}")
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(chart(points))


if __name__ == "__main__":
    main()
