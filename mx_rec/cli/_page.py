"""Pieces of an HTML page that is one file: headings, figures and tables. Texts are escaped here, but for what is an
Html already; the style is in _page.css."""

import pathlib
from collections.abc import Sequence
from typing import Optional

from mx_rec.cli._charts import text


class Html(str):
    """A text that is markup already."""


def document(title: str, content: str) -> str:
    """Returns the page. It forbids browsers to load or run anything, whatever a name in it might hold."""
    style = pathlib.Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title><style>{style}</style></head><body><main>{content}</main></body></html>\n"
    )


def header(title: str, lead: str, facts: dict[str, str]) -> str:
    """Returns the page's first heading; `lead` is markup."""
    cards = "".join(f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in facts.items())
    return f'<header><h1>{text(title)}</h1><p class="lead">{lead}</p></header><dl class="facts">{cards}</dl>'


def section(anchor: str, title: str, content: str) -> str:
    """Returns a section; `content` is markup."""
    heading = f"{anchor}-title"
    return (
        f'<section id="{anchor}" aria-labelledby="{heading}"><h2 id="{heading}">{text(title)}</h2>{content}</section>'
    )


def grid(figures: Sequence[str]) -> str:
    """Figures side by side as the window allows."""
    return f'<div class="grid">{"".join(figures)}</div>'


def figure(title: str, chart: str, caption: str = "", data: str = "", legend: Optional[Sequence[str]] = None) -> str:
    """Returns a chart with its heading, a caption, and a table of its numbers to open; `chart`, `data` are markup."""
    parts = [f"<figure><figcaption>{text(title)}</figcaption>"]
    if caption:
        parts.append(f"<p>{text(caption)}</p>")
    if legend is not None:
        names = "".join(f'<li><i class="c{i}"></i>{text(name)}</li>' for i, name in enumerate(legend))
        parts.append(f'<ul class="legend">{names}</ul>')
    parts.append(chart)
    if data:
        parts.append(f"<details><summary>as numbers</summary>{data}</details>")
    return "".join(parts) + "</figure>"


def table(head: Sequence[str], lines: Sequence[Sequence[str]], numbers_from: int) -> str:
    """Returns a table, whose columns from this one on are numbers."""
    kinds = ["" if i < numbers_from else ' class="number"' for i in range(len(head))]
    titles = "".join(f'<th scope="col"{kind}>{text(name)}</th>' for kind, name in zip(kinds, head))
    rows = "".join(
        "<tr>" + "".join(f"<td{kind}>{_markup(cell)}</td>" for kind, cell in zip(kinds, line)) + "</tr>"
        for line in lines
    )
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def alert(kind: str, message: str) -> str:
    """Something that must be seen."""
    return f'<p class="alert" role="alert"><b>{text(kind)}:</b> {text(message)}</p>'


def note(message: str) -> str:
    """Something that explains."""
    return f'<p class="note">{text(message)}</p>'


def _markup(cell):
    return cell if isinstance(cell, Html) else text(cell)
