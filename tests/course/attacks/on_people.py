"""Attacks on readers of a report: texts that repaint a terminal or run in a page or a
spreadsheet."""

RAISED = (
    "\x1b[2J\x1b[1;1H\x1b[32mall checks passed\x1b[0m",
    "\x1b]0;a new title\x07",
    "\x1b]8;;http://127.0.0.1/\x1b\\click here\x1b]8;;\x1b\\",
    "\x9b2J",
    "\u202edessap skcehc lla\u202c",
    "wrong\rall checks passed",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</td></table></div><h1>4 of 4</h1><script>alert(1)</script>",
    "`<script>alert(1)</script>`",
    "{{ 7 * 7 }}{% include '/etc/passwd' %}",
    "[bold red]4 of 4[/] [/nothing] [link=http://127.0.0.1/]x[/link]",
    '=HYPERLINK("http://127.0.0.1/")',
    "\ud800 a\0b",
)
LEARNERS = (
    "=cmd|' calc'!A0",
    "@SUM(1)",
    "\x1b[2J\x1b[32mbest",
    "[bold red]best",
    "<script>alert(1)<%2fscript>",
    "\u202etsrif",
    "x' onmouseover='alert(1)",
)
WRITTEN = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[a link](javascript:alert(1))",
    "<iframe src='http://127.0.0.1/'></iframe>",
    "<object data='data:text/html,<script>alert(1)</script>'></object>",
    "\x1b[2Jwell done",
)
