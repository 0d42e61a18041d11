"""The documentation: every public name is in the reference, and every link leads somewhere."""

import importlib
import inspect
import re
import subprocess

import pytest

from mx_rec._tables.sparse_table import BaseSparseEmbedding
from tests.shared import contract
from tests.shared.paths import ROOT
from tests.shared.public_names import ELSEWHERE, public_names

DOCS = ROOT / "docs"

# Shown as a whole.
WHOLE = ["mx_rec.constants.constants", "mx_rec.serving"]


def directives():
    """What the pages of the reference show: full names."""
    pages = [page.read_text() for page in (DOCS / "reference").glob("*.md")]
    return {name for page in pages for name in re.findall(r"^::: (\S+)$", page, re.MULTILINE)}


def homes(module, name):
    """The full names under which a public name may stand in the reference."""
    if name in ELSEWHERE:
        return {shown for shown in directives() if shown.startswith(ELSEWHERE[name] + ".")}
    value = getattr(importlib.import_module(module), name)
    home = getattr(value, "__module__", None)
    if name == "logger":
        return {"mx_rec.util.log.logger"}
    full = {f"{module}.{name}", f"{home}.{getattr(value, '__name__', name)}"}
    # Names of a module that is shown as a whole are on the page of the module.
    return full | {whole for whole in WHOLE for one in full if one.startswith(f"{whole}.")}


@pytest.mark.parametrize("module, name", public_names(), ids=lambda part: part)
def test_every_public_name_is_in_the_reference_and_says_what_it_is(module, name):
    value = getattr(importlib.import_module(module), name)
    assert homes(module, name) & directives(), f"add `::: {module}.{name}` to a page of docs/reference"
    if inspect.isfunction(value) or inspect.isclass(value):
        assert inspect.getdoc(value), f"{module}.{name} has no docstring"


# Names of the contract that are modules, whose own names are shown; and what is not the package's to explain.
MODULES = {"npu_plugin", "npu_unary_ops", "util"}
FOREIGN = {"RewriterConfig", "__version__", "eos_map", "tf"}


@pytest.mark.parametrize("name", contract.NAMES, ids=lambda name: f"{name.name} of {name.modules[0]}")
def test_every_name_of_the_contract_is_in_the_reference(name):
    if name.name in FOREIGN:
        return
    if name.name in MODULES:
        value = getattr(importlib.import_module(name.modules[0]), name.name)
        assert all(homes(value.__name__, part) & directives() for part in value.__all__)
        return
    assert set().union(*(homes(module, name.name) for module in name.modules)) & directives()


# Of a table: what the package itself asks.
INTERNAL = """
    add_anchor bind_anchor check_same content count_lookup is_trained_on lookup_count lookups native_limit reads tier
""".split()


def test_every_member_of_a_table_is_in_the_reference_and_says_what_it_is():
    page = (DOCS / "reference" / "tables.md").read_text()
    shown = re.search(r"BaseSparseEmbedding\n    options:\n      members: \[(.*)\]", page).group(1).split(", ")
    members = {name for name in vars(BaseSparseEmbedding) if not name.startswith("_")} - set(INTERNAL)
    assert set(shown) == members | {"variable", "send_count"}  # made by __init__
    assert [name for name in members if not inspect.getdoc(getattr(BaseSparseEmbedding, name))] == []


def test_the_reference_shows_nothing_that_is_not_there():
    for shown in sorted(directives()):
        module, _, name = shown.rpartition(".")
        if shown not in WHOLE:
            assert hasattr(importlib.import_module(module), name), shown
    assert set(WHOLE) <= directives()


# ---- Links.

PAGES = [*DOCS.rglob("*.md"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))]


def without_code(text):
    return re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page):
    headings = re.findall(r"^#+ (.*)$", without_code(page.read_text()), re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title)).strip() for title in headings]
    return {re.sub(r"[-\s]+", "-", title.lower()) for title in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page.name}: {link}"


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r"[\w/]+\.md", (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]))
    generated = {"index.md", "contributing.md", "changelog.md"}
    assert listed == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} | generated


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    mkdocs = ROOT / ".venv-docs" / "bin" / "mkdocs"
    if not mkdocs.exists():
        pytest.skip("`make docs` has not been run: no .venv-docs")
    done = subprocess.run(
        [mkdocs, "build", "--strict", "--site-dir", tmp_path], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    page = (tmp_path / "reference" / "tables.html").read_text()
    assert "device_vocabulary_size" in page and 'href="../disk_tier.html"' in page
    # Nothing is loaded from elsewhere.
    assert not re.findall(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="(?:https?:)?//(?!squidfunk)', page)
