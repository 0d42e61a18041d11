"""Pages of the documentation's site that are not in docs/ (mkdocs.yml, `hooks`).

The site's home is the README. Pages link to source files, examples and results as the repository has them, relative to
where the page lies; here every such file becomes a page of the site, and the links lead there. A link to what does not
exist is a warning, which `mkdocs build --strict` takes for an error.
"""

import logging
import os
import pathlib
import posixpath
import re

from mkdocs.structure.files import File

__all__ = ["on_files", "on_page_content", "on_page_markdown"]

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Files of the repository that are pages with a name of their own.
_PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
_CODE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_LANGUAGES = {".h": "cpp", ".cc": "cpp", ".py": "python", ".txt": "cmake", ".toml": "toml"}

_log = logging.getLogger("mkdocs.plugins.docs_pages")
_origins = {}  # page -> the file of the repository that it shows


def on_files(files, config):
    """Adds a page for every file that the pages link to, directly or by way of others."""
    _origins.clear()
    _origins.update({uri: f"docs/{uri}" for uri in (file.src_uri for file in files.documentation_pages())})
    _origins.update({uri: path for path, uri in _PAGES.items()})
    todo = list(_origins)
    while todo:
        page = todo.pop()
        for path in _targets(page):
            uri = _page_of(path)
            if uri in _origins or (ROOT / path).is_dir() or path.startswith("docs/"):
                continue
            _origins[uri] = path
            todo.append(uri)
    for uri, path in _origins.items():
        if not path.startswith("docs/"):
            if path.endswith(".png"):
                files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
            else:
                files.append(File.generated(config, uri, content=_content(path)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Leads links to where their files are on the site."""
    del config, files
    here = page.file.src_uri

    def lead(match):
        path = _resolve(_origins[here], match.group(1))
        if not (ROOT / path).exists():
            _log.warning("'%s' links to '%s', which is not there", _origins[here], match.group(1))
            return match.group(0)
        if (ROOT / path).is_dir():
            return match.group(0)  # MkDocs warns
        return posixpath.relpath(_page_of(path), posixpath.dirname(here) or ".") + (match.group(2) or "")

    return _outside_code(markdown, lambda text: _LINK.sub(lead, text))


def on_page_content(html, page, config, files):
    """Turns the names of pages in docstrings, such as docs/tuning.md, into links."""
    del config
    if not page.file.src_uri.startswith("reference/"):
        return html

    def link(match):
        if files.get_file_from_path(f"{match.group(1)}.md") is None:
            _log.warning("a docstring in '%s' names '%s', which is not there", page.file.src_uri, match.group(0))
        return f'<a href="../{match.group(1)}.html">{match.group(0)}</a>'

    return re.sub(r"docs/(\w+)\.md(?![^<]*</(?:a|code)>)", link, html)


def _targets(page):
    """The files, by their path in the repository, that the file of a page links to."""
    origin = _origins[page]
    if not origin.endswith(".md") or not (ROOT / origin).exists():
        return []
    found = []
    _outside_code(
        (ROOT / origin).read_text(encoding="utf-8"),
        lambda text: found.extend(_resolve(origin, match.group(1)) for match in _LINK.finditer(text)) or text,
    )
    return [path for path in found if (ROOT / path).exists()]


def _outside_code(markdown, change):
    """`markdown`, changed between its blocks of code."""
    parts, end = [], 0
    for block in _CODE.finditer(markdown):
        parts += [change(markdown[end : block.start()]), block.group(0)]
        end = block.end()
    return "".join([*parts, change(markdown[end:])])


def _resolve(origin, link):
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))


def _page_of(path):
    """Where a file of the repository is on the site."""
    if path in _PAGES:
        return _PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return path if path.endswith((".md", ".png")) else f"source/{path}.md"


def _content(path):
    text = (ROOT / path).read_text(encoding="utf-8")
    if path in _PAGES:
        return text
    hidden = "---\nsearch:\n  exclude: true\n---\n\n"
    if path.endswith(".md"):
        return hidden + text
    language = _LANGUAGES.get(os.path.splitext(path)[1], "text")
    return f"{hidden}# {path}\n\n````{language}\n{text}\n````\n"
