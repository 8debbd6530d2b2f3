"""Bars of a few cells as SVG: python picture.py FOLDER MODEL-TYPE "TITLE" CELL:prefill|decode:LABEL .. [--engines NAME=LABEL ..]

Each panel has a cell's median rates; of an engine whose NAME ends with "-", that of its fastest variant.
"""

import argparse
import json
import os
import statistics
from xml.sax.saxutils import escape

import page as cells

STYLE = """text { font: 13px system-ui, sans-serif; fill: #333 } .title { font-weight: 600 } .note { font-size: 11px; fill: #777 }
 .own { fill: #2a7de1 } .other { fill: #b9bfc7 } @media (prefers-color-scheme: dark) { text { fill: #ddd } .note { fill: #999 } .other { fill: #5b626b } }"""
WIDTH, LEFT, BAR, STEP, PANEL = 250, 104, 15, 21, 30


def rate(measured, prefix, column):
    found = [[cells.rates(measured, s)[column] for s in result["samples"]] for name, result in measured["engines"].items()
             if (name.startswith(prefix) if prefix.endswith("-") else name == prefix) and "error" not in result]
    return max((statistics.median(v for v in one if v) for one in found if any(one)), default=None)


def panel(x, title, rates, labels):
    top, lines = max(r for r in rates if r), [f'<text class="title" x="{x}" y="{PANEL + 14}">{escape(title)}</text>']
    for i, (value, label) in enumerate(zip(rates, labels)):
        y = PANEL + 26 + i * STEP
        lines.append(f'<text x="{x + LEFT - 8}" y="{y + 12}" text-anchor="end">{escape(label)}</text>')
        if value is None:
            lines.append(f'<text class="note" x="{x + LEFT}" y="{y + 12}">does not run</text>')
            continue
        width = (WIDTH - LEFT - 56) * value / top
        lines.append(f'<rect class="{"other" if i else "own"}" x="{x + LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2"/>')
        lines.append(f'<text x="{x + LEFT + width + 5:.1f}" y="{y + 12}">{value:.0f}</text>')
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("model")
    parser.add_argument("title")
    parser.add_argument("panels", nargs="+")
    parser.add_argument("--engines", nargs="+", default=["bmc=bmc", "llama.cpp=llama.cpp", "ik_llama.cpp=ik_llama.cpp", "vllm=vLLM", "pace-=AMD-PACE"])
    options = parser.parse_args()
    prefixes, labels = zip(*(engine.split("=") for engine in options.engines))
    width, height = len(options.panels) * (WIDTH + 10), PANEL + 34 + len(labels) * STEP
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">')
    print(f"<title>{escape(options.title)}</title><style>{STYLE}</style>")
    print(f'<text class="note" x="0" y="16">{escape(options.title)}</text>')
    for i, spec in enumerate(options.panels):
        cell, phase, label = spec.split(":")
        measured = json.load(open(os.path.join(options.folder, f"{options.model}-{cell}.json")))
        column = {"prefill": 1, "decode": 2}[phase]
        print("\n".join(panel(i * (WIDTH + 10), label, [rate(measured, p, column) for p in prefixes], labels)))
    print("</svg>")


main()
