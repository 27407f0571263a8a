"""Against whoever reads: texts that repaint a terminal, run in a page or in a spreadsheet."""

from __future__ import annotations

RAISED = {
    "ansi": "\x1b[2J\x1b[1;1H\x1b[32mall checks passed\x1b[0m",
    "title": "\x1b]0;you have been had\x07",
    "link": "\x1b]8;;http://127.0.0.1/\x1b\\click here\x1b]8;;\x1b\\",
    "c1": "\x9b2J",
    "bidi": "\u202edessap skcehc lla\u202c",
    "carriage": "wrong\rall checks passed",
    "script": "<script>alert(1)</script>",
    "image": "<img src=x onerror=alert(1)>",
    "closing": "</td></table></div><h1>4 of 4</h1><script>alert(1)</script>",
    "code": "`<script>alert(1)</script>`",
    "jinja": "{{ 7 * 7 }}{% include '/etc/passwd' %}",
    "markup": "[bold red]4 of 4[/] [/nothing] [link=http://127.0.0.1/]x[/link]",
    "formula": '=HYPERLINK("http://127.0.0.1/")',
    "surrogate": "\ud800 alone",
    "nul": "a\0b",
}
LEARNERS = {
    "formula": "=cmd|' calc'!A0",
    "at": "@SUM(1)",
    "ansi": "\x1b[2J\x1b[32mbest",
    "markup": "[bold red]best",
    "script": "<script>alert(1)<%2fscript>",
    "bidi": "\u202etsrif",
    "quote": "x' onmouseover='alert(1)",
}
WRITTEN = {
    "script": "<script>alert(1)</script>",
    "event": "<img src=x onerror=alert(1)>",
    "address": "[a link](javascript:alert(1))",
    "frame": "<iframe src='http://127.0.0.1/'></iframe>",
    "data": "<object data='data:text/html,<script>alert(1)</script>'></object>",
    "ansi": "\x1b[2Jwell said",
}
