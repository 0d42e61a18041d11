"""The documentation: every public name is in the reference, and every link leads somewhere."""

import importlib
import inspect
import re
import subprocess

import pytest

from tests.shared.paths import ROOT

DOCS = ROOT / "docs"

# Where scripts import public names from. Modules stand for all of their `__all__`, packages for what they hand on.
MODULES = [
    "mx_rec",
    "mx_rec.core",
    "mx_rec.core.asc",
    "mx_rec.core.asc.helper",
    "mx_rec.core.embedding",
    "mx_rec.core.feature_process",
    "mx_rec.core.table_stats",
    "mx_rec.graph",
    "mx_rec.optimizers",
    "mx_rec.saver",
    "mx_rec.util",
    "mx_rec.util.initialize",
    "mx_rec.util.ops",
    "mx_rec.util.tf_version_adapter",
    "mx_rec.npu",
    "rec_sdk_common.communication.hccl.hccl_info",
    "rec_sdk_common.log",
    "rec_sdk_common.util.tf_adapter",
]
# And those of modules that do not list their own.
NAMES = {
    "mx_rec": ["reset_tables", "version"],
    "mx_rec.core.asc.feature_spec": ["FeatureSpec"],
    "mx_rec.core.asc.manager": ["start_asc_pipeline"],
    "mx_rec.graph.hooks": ["LookupSubgraphSlicerHook", "OrphanLookupKeySlicerHook"],
    "mx_rec.graph.modifier": ["GraphModifierHook", "modify_graph_and_start_emb_cache"],
    "mx_rec.optimizers.adagrad": ["create_hash_optimizer"],
    "mx_rec.optimizers.adagrad_by_addr": ["create_hash_optimizer_by_address"],
    "mx_rec.optimizers.base": ["CustomizedOptimizer"],
    "mx_rec.optimizers.ftrl": ["create_hash_optimizer"],
    "mx_rec.optimizers.ftrl_t": ["create_hash_optimizer"],
    "mx_rec.optimizers.ftrl_t_dense": ["create_ftrl_dense_optimizer"],
    "mx_rec.optimizers.gradient_descent": ["create_hash_optimizer"],
    "mx_rec.optimizers.gradient_descent_by_addr": ["create_hash_optimizer_by_addr"],
    "mx_rec.optimizers.lazy_adam": ["create_hash_optimizer"],
    "mx_rec.optimizers.lazy_adam_by_addr": ["create_hash_optimizer_by_address"],
    "mx_rec.optimizers.momentum": ["create_hash_optimizer"],
    "mx_rec.saver.sparse": ["export"],
    "mx_rec.util.communication.hccl_ops": [
        "allgather",
        "allreduce",
        "broadcast",
        "get_device_id",
        "get_local_rank_size",
        "get_rank_id",
        "get_rank_size",
    ],
    "mx_rec.util.communication.npu_ops": ["dropout"],
    "mx_rec.util.log": ["logger"],
    "mx_rec.util.variable": ["get_dense_and_sparse_variable"],
}
# Shown as a whole.
WHOLE = ["mx_rec.constants.constants", "mx_rec.serving"]
# Those of the contract that are modules, or have another home.
ELSEWHERE = {"hccl_ops": "mx_rec.util.communication.hccl_ops", "npu_ops": "mx_rec.util.communication.npu_ops"}


def public_names():
    found = {(module, name) for module, names in NAMES.items() for name in names}
    for path in MODULES:
        module = importlib.import_module(path)
        names = getattr(module, "__all__", None)
        if names is None:  # a package of _lazy.py
            names = [
                name
                for name in dir(module)
                if not name.startswith("_") and name not in ("TYPE_CHECKING", "attach", "version")
            ]
            names = [name for name in names if not inspect.ismodule(getattr(module, name)) or name in ELSEWHERE]
        found |= {(path, name) for name in names}
    return sorted(found)


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
    return {f"{module}.{name}", f"{home}.{getattr(value, '__name__', name)}"}


@pytest.mark.parametrize("module, name", public_names(), ids=lambda part: part)
def test_every_public_name_is_in_the_reference_and_says_what_it_is(module, name):
    value = getattr(importlib.import_module(module), name)
    assert homes(module, name) & directives(), f"add `::: {module}.{name}` to a page of docs/reference"
    if inspect.isfunction(value) or inspect.isclass(value):
        assert inspect.getdoc(value), f"{module}.{name} has no docstring"


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
