# SPDX-License-Identifier: Apache-2.0
"""The few shapes of which the pictures of the pages are made, as lines of SVG."""

INK = "#1f2933"


def text(x, y, words, size=12, anchor="start", weight="normal", fill=INK):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
            f'font-weight="{weight}" fill="{fill}">{words}</text>')


def box(x, y, width, height, fill, edge=None):
    stroke = f' stroke="{edge}"' if edge else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}" fill="{fill}"{stroke}/>'


def line(x1, y1, x2, y2, colour=INK, width=1.5, arrow=False):
    head = ' marker-end="url(#arrow)"' if arrow else ""
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
            f'stroke="{colour}" stroke-width="{width}"{head}/>')


def write(path, width, height, shapes):
    arrow = ('<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
             'orient="auto"><path d="M0,0 L8,4 L0,8 z"/></marker></defs>\n')
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height:.0f}" '
                   f'font-family="sans-serif" font-size="12">\n'
                   + (arrow if any("#arrow" in shape for shape in shapes) else "")
                   + '<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(shapes) + "\n</svg>\n")
