"""Links of Markdown files, for scripts/check-links and scripts/build-docs. Nothing but the standard library."""

import re

FENCE = re.compile(r"^( {0,3})(`{3,}|~{3,})[^\n]*\n.*?(?:^ {0,3}\2[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
SPAN = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
INLINE = re.compile(r"\]\(\s*<?([^()\s<>]+(?:\([^()\s]*\)[^()\s<>]*)*)>?(?:\s+(?:\"[^\"]*\"|'[^']*'))?\s*\)")
REFERENCE = re.compile(r"^ {0,3}\[[^\]]+\]:\s+<?([^\s>]+)>?", re.MULTILINE)
HTML = re.compile(r"<(?:a|img|source)\b[^>]*?\s(?:href|src|srcset)=[\"']([^\"']+)[\"']")
HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.+?)[ \t]*#*[ \t]*$", re.MULTILINE)
ANCHOR = re.compile(r"<a\s+(?:id|name)=[\"']([^\"']+)[\"']")


def blank(match):
    """As many lines as there were, so that line numbers stay right."""
    return "\n" * match.group(0).count("\n")


def prose(text):
    """The text without fenced code and comments."""
    return COMMENT.sub(blank, FENCE.sub(blank, text))


def links(text):
    """(line, target) of every link and picture."""
    plain = SPAN.sub(blank, prose(text))
    for pattern in (INLINE, REFERENCE, HTML):
        for match in pattern.finditer(plain):
            yield plain.count("\n", 0, match.start(1)) + 1, match.group(1)


def code_spans(text):
    """(line, text) of every `code span`."""
    plain = prose(text)
    for match in SPAN.finditer(plain):
        yield plain.count("\n", 0, match.start()) + 1, match.group(2).strip()


def anchors(text):
    """The names of a page's headings, as GitHub and MyST make them, and of its <a id=...>."""
    found = set(ANCHOR.findall(text))
    count = {}
    for match in HEADING.finditer(prose(text)):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match.group(1))
        slug = re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")
        seen = count.get(slug, 0)
        count[slug] = seen + 1
        found.add(f"{slug}-{seen}" if seen else slug)
    return found
