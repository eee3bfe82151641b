"""Texts that are something else to whoever reads them next: a terminal, a browser, a wiki, an XML
parser, a shell, SLURM, a log collector."""

from __future__ import annotations

ANSI = (
    "\x1b[2J\x1b[H",
    "\x1b]0;title\x07",
    "\x1b]8;;http://evil.example\x07link\x1b]8;;\x07",
    "\x1b]52;c;cm0gLXJm\x07",
    "\x1bP+q544e\x1b\\",
    "\x9b31m",
    "\x9d0;title\x9c",
    "\r READY ",
    "\b\b\b\b\bREADY",
    "\x07\x0e\x0f",
    "\x7f\x7f",
    "\u202eYDAER",
    "\u2066\u2069\u200b\u200d",
    "\u2028\u2029\x85",
    "\x00\x01\x1f",
    "\ud800x\udfff",
)
HTML = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)",
    '" onmouseover="alert(1)" x="',
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "</style><style>*{display:none}</style>",
    "</title></head><body onload=alert(1)>",
    "<!--",
    "--><script>alert(1)</script><!--",
    "&lt;script&gt;",
    "&#x3c;script&#x3e;",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "<a href=//evil.example>x</a>",
    "</td></tr></table>",
    "\\u003cscript\\u003e",
)
MARKDOWN = (
    "[x](http://evil.example)",
    "![x](http://evil.example/x.png)",
    "| a | b |",
    "`code`",
    "```\n# head\n```",
    "\n# head\n",
    "**bold** _it_ ~~gone~~",
    "@everyone #1",
    "<details><summary>x",
    "[x]: http://evil.example",
    "- [x] done",
    "\\|",
)
XML = (
    "]]>",
    "<![CDATA[x]]>",
    "<?xml version='1.0'?>",
    "<!DOCTYPE x [<!ENTITY a SYSTEM 'file:///etc/passwd'>]>&a;",
    "&a;",
    "</testcase><testcase name='x'>",
)
SHELL = (
    "$(id)",
    "`id`",
    "; id",
    "| id",
    "&& id",
    "' ; id ; '",
    '" ; id ; "',
    "-oProxyCommand=id",
    "x[$(id)]",
    "> /tmp/x",
)
HOSTS = ("n1,n2", "n[1-9]", "ALL", "n1 n2", "@all", "../n1", "n1;n2")
LINES = (
    "a\nREADY",
    "a\r\nREADY",
    'x"} 1\npreflight_ready 1\nx{a="',
    "::error::x",
    "a\n::set-output name=x::y",
    "OK | ready=1",
    "a\vb\fc",
)
PAYLOADS = (*ANSI, *HTML, *MARKDOWN, *XML, *SHELL, *HOSTS, *LINES)
