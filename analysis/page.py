"""report.html: one file that needs no network, no server and no other file.

Plotly's script stands in it once. A content security policy forbids every request, so that it stays
true. Tables sort by a click on a column; without scripts the page still reads, but for its figures.
"""

from collections.abc import Iterable, Mapping
from html import escape

from plotly.offline import get_plotlyjs

from analysis.claims import Answer
from analysis.content import Content
from analysis.plots.drawing import Drawing
from analysis.table import Table

CONFIG = {"displayModeBar": False, "displaylogo": False}
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)
WARNED = " class='warning'"
OPEN = ("means", "pairs", "change", "unfinished")
"""Tables shown at once beside the first; the others unfold, as do claims, which have a section."""


def figure_html(name: str, drawing: Drawing, script: bool | str) -> str:
    """A drawing's figure as HTML with a fixed id; "" when it has none.

    Args:
        script: False leaves plotly's script out; "directory" makes a page that loads it from
            plotly.min.js beside it.
    """
    if drawing.figure is None:
        return ""
    return str(
        drawing.figure.to_html(
            config=CONFIG,
            include_plotlyjs=script,
            full_html=script is not False,
            div_id=name,
            default_width="900px",
            default_height="520px",
        )
    )


def page(content: Content) -> str:
    """The whole page."""
    title, lead = escape(content.title), escape(content.description)
    parts = {
        "findings": ("What was found", _list(content.findings)),
        "verdicts": ("What was claimed", "".join(map(_verdict, content.answers))),
        "figures": ("Figures", "".join(_figures(content.drawings))),
        "tables": ("Tables", "".join(_tables(content.tables))),
        "limits": ("What this does not claim", _list(content.limits)),
        "record": ("Where the numbers come from", _facts(content.facts)),
    }
    links = "".join(
        f"<a href='#{name}'>{name.capitalize()}</a>" for name, (_, body) in parts.items() if body
    )
    return "\n".join(
        [
            "<!doctype html>",
            "<html lang='en'><head><meta charset='utf-8'>",
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            "<meta name='viewport' content='width=device-width, initial-scale=1'>",
            f"<title>{title}</title><style>{STYLE}</style>",
            f"<script>{get_plotlyjs()}</script></head>",
            f"<body><main><nav>{links}</nav>",
            f"<header><h1>{title}</h1><p class='lead'>{lead}</p></header>",
            *(_section(name, heading, body) for name, (heading, body) in parts.items()),
            f"</main><script>{SCRIPT}</script></body></html>",
            "",
        ]
    )


def _verdict(answer: Answer) -> str:
    kind = answer.verdict.replace(" ", "-")
    return (
        f"<div class='claim'><span class='verdict {kind}'>{answer.verdict}</span>"
        f"<div><b>{escape(answer.says or answer.name)}</b><p>{escape(answer.sentence)}</p></div>"
        "</div>"
    )


def _section(name: str, title: str, body: str) -> str:
    return f"<section id='{name}'><h2>{title}</h2>{body}</section>" if body else ""


def _list(sentences: Iterable[str]) -> str:
    items = "".join(
        f"<li{WARNED if text.startswith('Warning: ') else ''}>{escape(text)}</li>"
        for text in sentences
    )
    return f"<ul>{items}</ul>" if items else ""


def _figures(drawings: Mapping[str, Drawing]) -> Iterable[str]:
    number = 0
    for name, drawing in drawings.items():
        caption = escape(drawing.caption)
        if drawing.figure is None:
            yield f"<p class='absent'><b>{escape(drawing.title)}.</b> {caption}</p>"
            continue
        number += 1
        yield (
            f"<figure><div class='plot'>{figure_html(name, drawing, script=False)}</div>"
            f"<figcaption><b>Figure {number}. {escape(drawing.title)}.</b> {caption}</figcaption>"
            "</figure>"
        )


def _tables(tables: Iterable[Table]) -> Iterable[str]:
    shown = [table for table in tables if table.name != "claims"]
    for table in tables:
        opened = " open" if table is shown[0] or table.name in OPEN else ""
        yield (
            f"<details id='{escape(table.name)}'{opened}><summary>{escape(table.title)}</summary>"
            f"<p class='note'>{escape(table.caption)}</p>{_table(table)}</details>"
        )


def _table(table: Table) -> str:
    kinds = [" class='n'" if column.number else "" for column in table.columns]
    head = "".join(
        f"<th{kind}>{escape(column.title)}</th>"
        for kind, column in zip(kinds, table.columns, strict=True)
    )
    rows = "".join(
        "<tr>"
        + "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, cells, strict=True))
        + "</tr>"
        for cells in table.styled(escape, "<b>{}</b>")
    )
    return (
        f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        "</div>"
    )


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts)
    return f"<dl>{rows}</dl>"


STYLE = """
:root{--ink:#1f2933;--muted:#697586;--line:#e6e9ee;--link:#0072b2}
*{box-sizing:border-box}
body{margin:0;color:var(--ink);background:#fff;
 font:16px/1.55 Inter,'Helvetica Neue',Helvetica,Arial,'Liberation Sans',sans-serif}
main{max-width:980px;margin:0 auto;padding:0 32px 80px}
nav{position:sticky;top:0;z-index:9;background:#fff;border-bottom:1px solid var(--line);
 padding:12px 0;font-size:14px}
nav a{color:var(--muted);text-decoration:none;margin-right:22px}
nav a:hover{color:var(--link)}
h1{font-size:32px;line-height:1.2;margin:40px 0 6px;letter-spacing:-.01em}
h2{font-size:21px;margin:52px 0 14px;padding-top:8px}
section{scroll-margin-top:48px}
.lead{font-size:18px;color:var(--muted);margin:0;max-width:46em}
ul{padding-left:20px;margin:0}li{margin:7px 0;max-width:52em}
#findings li{font-size:17px}
li.warning{list-style:none;margin-left:-20px;padding:9px 14px;border-left:3px solid #d55e00;
 background:#fdf3ec;border-radius:0 4px 4px 0}
figure{margin:0 0 44px}
.plot{overflow-x:auto;width:fit-content;max-width:100%;padding:6px;
 border:1px solid var(--line);border-radius:6px}
figcaption,.note,.absent{font-size:14px;color:var(--muted);margin:10px 2px 0;max-width:62em}
figcaption b,.absent b{color:var(--ink)}
.absent{margin:0 0 24px}
details{border-top:1px solid var(--line)}
details:last-of-type{border-bottom:1px solid var(--line)}
summary{cursor:pointer;padding:11px 2px;font-weight:600}
summary:hover{color:var(--link)}
.note{margin:0 2px 12px}
.scroll{overflow-x:auto;margin-bottom:20px}
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums;width:100%}
th,td{padding:6px 11px;border-bottom:1px solid var(--line);text-align:left;white-space:nowrap}
td.w{white-space:normal;min-width:26em}
th{font-weight:600;border-bottom:1.5px solid #9aa5b1;cursor:pointer;vertical-align:bottom}
th.n,td.n{text-align:right}
th[data-order]::after{content:' \\2191';color:var(--link)}
th[data-order='-1']::after{content:' \\2193'}
tbody tr:hover{background:#f6f8fa}
dl{display:grid;grid-template-columns:max-content 1fr;gap:5px 22px;margin:0;font-size:14px}
dt{color:var(--muted)}dd{margin:0;overflow-wrap:anywhere}
.claim{display:grid;grid-template-columns:118px 1fr;gap:4px 18px;padding:11px 0;
 border-top:1px solid var(--line)}
.claim p{margin:3px 0 0;font-size:14px;color:var(--muted);max-width:58em}
.verdict{align-self:start;justify-self:start;margin-top:2px;padding:1px 9px;border-radius:10px;
 font-size:12.5px;font-weight:600;white-space:nowrap;color:#5a4300;background:#f7ecc9}
.supported{color:#0b4f3c;background:#d3efe5}.contradicted{color:#7d2a00;background:#fbdccb}
.unanswered{color:#454f5b;background:#e9edf1}
@media print{nav{display:none}figure,tr{break-inside:avoid}}
"""

SCRIPT = """
document.querySelectorAll('th').forEach(function (head) {
  head.addEventListener('click', function () {
    var body = head.closest('table').tBodies[0], at = head.cellIndex;
    var order = head.dataset.order === '1' ? -1 : 1;
    function value(row) {
      var text = row.cells[at].textContent;
      var number = parseFloat(text.replace(/,/g, '').replace('\\u2212', '-'));
      return head.className === 'n' ? (isNaN(number) ? Infinity * order : number) : text;
    }
    head.parentNode.querySelectorAll('th').forEach(function (h) { delete h.dataset.order; });
    head.dataset.order = order;
    Array.from(body.rows).sort(function (a, b) {
      var x = value(a), y = value(b);
      return order * (x < y ? -1 : x > y ? 1 : 0);
    }).forEach(function (row) { body.appendChild(row); });
  });
});
"""
