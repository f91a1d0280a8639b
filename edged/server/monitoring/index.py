"""The page at the root of the monitoring port: what there is, as links."""

from __future__ import annotations

from html import escape

from edged.version import EDGED_VERSION, NATS_VERSION

LINKS = (
    ("/varz", "General"),
    ("/jsz", "JetStream"),
    ("/connz", "Connections"),
    ("/accountz", "Accounts"),
    ("/accstatz", "Account statistics"),
    ("/subsz", "Subscriptions"),
    ("/routez", "Routes"),
    ("/leafz", "Leaf nodes"),
    ("/gatewayz", "Gateways"),
    ("/raftz", "Raft groups"),
    ("/healthz", "Health"),
    ("/metrics", "Prometheus metrics"),
    ("/debug/vars", "Process"),
)

_STYLE = """
body { font-family: system-ui, sans-serif; margin: 2rem; color: #223; background: #fff }
h1 { font-size: 1.4rem; font-weight: 600 }
table { border-collapse: collapse }
td { padding: 0.25rem 1.5rem 0.25rem 0 }
a { color: #1a56b0; text-decoration: none }
a:hover { text-decoration: underline }
code { color: #667 }
@media (prefers-color-scheme: dark) {
  body { color: #dde; background: #16181d }
  a { color: #8ab4f8 }
  code { color: #99a }
}
"""


def index(server_name: str, base_path: str) -> str:
    """The page in HTML. The name of a server is text from the configuration and is escaped."""
    base = escape(base_path.rstrip("/"), quote=True)
    rows = "\n".join(
        f'<tr><td><a href="{base}{path}">{title}</a></td><td><code>{base}{path}</code></td></tr>'
        for path, title in LINKS
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>edged {escape(server_name)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>edged {escape(EDGED_VERSION)}</h1>
<p>Server <b>{escape(server_name)}</b>, compatible with nats-server {escape(NATS_VERSION)}</p>
<table>
{rows}
</table>
</body>
</html>
"""
