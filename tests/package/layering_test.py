"""Rules about who may know whom, which no compiler checks."""

import ast
import io
import re
import subprocess
import sys
import tokenize

import pytest

from tests.shared.paths import ROOT

NATIVE = sorted(p for p in (ROOT / "native").rglob("*") if p.suffix in (".h", ".cc"))
PYTHON = sorted(p for p in (ROOT / "mx_rec").rglob("*.py") if not p.name.endswith("_test.py"))


def test_only_native_tf_includes_tensorflow():
    include = re.compile(r'^\s*#\s*include\s*["<]tensorflow/', re.MULTILINE)
    including = {p.relative_to(ROOT).parts[:2] for p in NATIVE if include.search(p.read_text())}
    assert including <= {("native", "tf")}


# The rooms of the package, each with what lies beneath it: a module imports only modules of its own room and of rooms
# further up in this list. Where a room means files beside the package's __init__, it is their names.
ROOMS = (
    ("_version", "_lazy", "_log", "_doors"),
    ("__init__",),
    ("_check", "constants"),
    ("_config",),
    ("_process",),  # all that changes
    ("_native",),  # the C interface of the core
    ("_ranks",),  # the ranks that train together
    ("checkpoint",),
    ("transaction",),
    ("reading",),
    ("_tf",),  # the border to TensorFlow
    ("_ops",),
    ("_tables",),
    ("_lowering",),
    ("_sessions",),
    ("saver",),
    ("core",),
    ("optimizers",),
    ("graph",),
    ("util",),
    ("serving", "validator", "npu"),
    ("demo",),
    ("cli",),
    ("__main__",),
)
# What imports no TensorFlow, so that tools start in a moment and need none.
WITHOUT_TENSORFLOW = ("_check", "_config", "_process", "_native", "checkpoint", "transaction", "reading")


def _room(module):
    """The name of a module's room: of a folder of mx_rec, or of a file beside its __init__."""
    return (module.split(".") + ["__init__"])[1]


def _imports(path):
    """The modules of mx_rec that a file imports, anywhere in it, but for type checkers."""
    tree = ast.parse(path.read_text())
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module.split(".")[0] == "mx_rec":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "mx_rec")


def test_every_room_knows_only_those_beneath_it():
    level = {name: number for number, names in enumerate(ROOMS) for name in names}
    wrong = []
    for path in PYTHON:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for imported in _imports(path):
            here, there = _room(module), _room(imported)
            if there == "version":  # mx_rec.version()
                continue
            if here != there and level[here] <= level[there]:
                wrong.append(f"{module} imports {imported}: '{there}' does not lie beneath '{here}'")
    assert not wrong, "\n".join(wrong)


# What loads the ops registers their gradients, too, which the files of the ops above it have.
LOADER = "mx_rec._ops.library"


def test_modules_do_not_import_one_another_in_a_circle():
    # Nor inside of functions, which hides a circle and does not open it.
    paths = {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in PYTHON}
    imported = {
        name: {one if one in paths else one.rpartition(".")[0] for one in _imports(path)} & set(paths) - {name}
        for name, path in paths.items()
    }
    imported[LOADER] = set()

    def reached(name):
        found, waiting = set(), [name]
        while waiting:
            new = imported[waiting.pop()] - found
            found |= new
            waiting += new
        return found

    reach = {name: reached(name) for name in paths}
    assert [[other for other in reach[name] if name in reach[other]] for name in paths if name in reach[name]] == []


def _is_op_knowledge(node):
    """Whether an expression counts an op's inputs or outputs, edits them or its attributes, or names an op of ours."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value.startswith("Mxrec")
    if isinstance(node, ast.Attribute):
        return node.attr in ("get_attr", "_set_attr", "_update_input")
    if isinstance(node, ast.Subscript):
        counted = ast.walk(node.value)
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
        counted = [node.value]
    else:
        return False
    return any(isinstance(inner, ast.Attribute) and inner.attr in ("inputs", "outputs") for inner in counted)


def test_only_ops_and_tf_know_the_places_in_an_op():
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for path in PYTHON
        if _room(".".join(path.relative_to(ROOT).with_suffix("").parts)) not in ("_ops", "_tf")
        for node in ast.walk(ast.parse(path.read_text()))
        if _is_op_knowledge(node)
    ]
    assert not found, "\n".join(found)


def _is_at_the_border(path):
    return path.relative_to(ROOT).parts[1] == "_tf"


def _private_names(tree):
    """The attributes with an underscore that a file reaches for and does not define itself, with their lines."""
    in_classes = {inner for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for inner in ast.walk(node)}
    attributes = [
        node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and re.match("_[A-Za-z]", node.attr)
    ]
    # A function outside of classes that takes `self` is a patch, and `self` an object of TensorFlow.
    of_self = {node for node in attributes if ast.unparse(node.value) in ("self", "cls")}
    own = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    own |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {node.attr for node in of_self & in_classes if isinstance(node.ctx, ast.Store)}
    for node in attributes:
        if node.attr not in own or node in of_self - in_classes:
            yield node.lineno, ast.unparse(node)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr", "setattr", "delattr"):
            if re.match("'_[A-Za-z]", ast.unparse(node.args[1])):
                yield node.lineno, ast.unparse(node)


def test_only_tf_knows_private_names_of_tensorflow():
    found = []
    for path in PYTHON:
        if _is_at_the_border(path):
            continue
        tree = ast.parse(path.read_text())
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        for line, name in _private_names(tree):
            # Python's own: threads and frames, the end of a process, and the parser of arguments.
            if not name.startswith(("sys._", "os._exit")) and path.name != "completion.py":
                found.append(f"{path.relative_to(ROOT)}:{line}: {name}")
        for node in ast.walk(tree):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []
            if any(re.match(r"tensorflow\.python\b|tensorflow_estimator\b", module) for module in modules):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")
            # Where patches are made, a string may be the name of what they stand in for.
            if "Patch" in names and isinstance(node, ast.Constant) and re.fullmatch("_[a-z]\\w*", str(node.value)):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")
    assert not found, "\n".join(found)


def test_tests_use_what_tensorflow_promises():
    # Where there is nothing of the kind, a module of tests/shared knows how else.
    imports = re.compile(r"^(?:from|import) tensorflow(?:\.python|_estimator)\b", re.MULTILINE)
    tests = [p for folder in ("tests", "mx_rec") for p in (ROOT / folder).rglob("*_test.py")]
    assert [str(p.relative_to(ROOT)) for p in tests if imports.search(p.read_text())] == []


def test_only_tf_hangs_notes_on_objects_of_tensorflow():
    found = [
        f"{path.relative_to(ROOT)}:{token.start[0]}: {token.string}"
        for path in PYTHON
        if not _is_at_the_border(path)
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
        if token.type != tokenize.COMMENT and re.search(r"\b_mx_rec_", token.string)
    ]
    assert not found, "\n".join(found)


# What a module may keep that changes: the process's state, and two libraries that are loaded when first asked for.
MUTABLES = {"mx_rec/_process.py: process", "mx_rec/_native/library.py: core", "mx_rec/_ops/library.py: ops"}
_MUTABLE = re.compile(
    r"(\w+\.)*(list|dict|set|bytearray|defaultdict|deque|Counter|OrderedDict|count|cycle|\w*Lock|Condition|Event|"
    r"\w*Semaphore|Barrier|local|ContextVar|Weak\w*|\w*Queue|Random|SimpleNamespace|Process|Part)(\[.*\])?"
)
_CHANGING = "append add clear discard extend insert pop popitem remove reverse setdefault sort update".split()
_DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)


def _own_statements(body):
    """The statements that run when a module is imported."""
    for statement in body:
        yield statement
        for field in ("body", "orelse", "finalbody", "handlers"):
            if not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                yield from _own_statements(getattr(statement, field, []))


def _changed(tree):
    """The names that something in a file changes in place: by an item, or by a method."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            yield node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING:
            yield node.func.value


def _mutables(tree):
    """The names of a module and of its classes that something changes, or may: lists and the like that have no name of
    a constant, or one but are changed; what is made to change, such as locks, caches and counters; names that functions
    bind anew, and attributes that they set on a class."""
    changed = {ast.unparse(node).rpartition(".")[2] for node in _changed(tree)}
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    for statement in _own_statements([*tree.body, *(inner for one in classes for inner in one.body)]):
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for name in (node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)):
                is_constant = name.strip("_").isupper() or name in ("__all__", "_fields_")
                value = statement.value
                if isinstance(value, _DISPLAYS) and not (is_constant and name not in changed):
                    yield name
                elif isinstance(value, ast.Call) and _MUTABLE.fullmatch(ast.unparse(value.func)):
                    yield name
        elif isinstance(statement, ast.FunctionDef) and any(
            "cache" in ast.unparse(d) and "cached_property" not in ast.unparse(d) for d in statement.decorator_list
        ):
            yield statement.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield from node.names
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            # Outside of classes, `cls` is one that is being made.
            if ast.unparse(node.value) in {"type(self)", *(one.name for one in classes)} or (
                ast.unparse(node.value) == "cls" and any(node in ast.walk(one) for one in classes)
            ):
                yield ast.unparse(node)


def test_no_module_keeps_what_changes():
    # It is in Parts (mx_rec/_process.py), so that it can be found, and ends with mx_rec.
    found = {f"{path.relative_to(ROOT)}: {name}" for path in PYTHON for name in _mutables(ast.parse(path.read_text()))}
    assert len(MUTABLES) <= 3 and found == MUTABLES


def test_rooms_for_files_alone_import_no_tensorflow():
    found = [
        str(path.relative_to(ROOT))
        for path in PYTHON
        if _room(".".join(path.relative_to(ROOT).with_suffix("").parts)) in WITHOUT_TENSORFLOW
        and "import tensorflow" in path.read_text()
    ]
    assert found == []


def test_no_python_runs_inside_a_training_step():
    # A Python function in the graph holds the interpreter lock and dies with the process that made the graph.
    forbidden = {"py_func", "py_function", "numpy_function", "eager_py_func"}
    found = []
    for path in PYTHON:
        with tokenize.open(path) as source:
            for token in tokenize.generate_tokens(source.readline):
                if token.type == tokenize.NAME and token.string in forbidden:
                    found.append(f"{path.relative_to(ROOT)}:{token.start[0]}: {token.string}")
    assert found == []


def test_the_package_never_imports_the_vendor_s_names():
    # A script may bring a file tf_adapter.py of its own, which stands in for ours.
    statement = re.compile(r"^\s*(?:from|import)\s+(?:npu_bridge|npu_device|rec_sdk_common|tf_adapter)\b", re.MULTILINE)
    assert [str(p.relative_to(ROOT)) for p in PYTHON if statement.search(p.read_text())] == []


def test_functions_that_share_a_name_with_a_module_are_functions():
    script = """
import mx_rec.saver.saver, mx_rec.saver
for name in dir(mx_rec.saver) + ["lenient"]:
    assert name.startswith("_") or type(getattr(mx_rec.saver, name)).__name__ == "function", name
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    "statement",
    [
        "import mx_rec",
        "from mx_rec.core.asc.feature_spec import FeatureSpec",
        "from mx_rec.util.initialize import init, get_rank_id",
        "from rec_sdk_common.communication.hccl.hccl_info import get_rank_id",
        "from rec_sdk_common.log import logger",
        "import npu_bridge, npu_device",
    ],
)
def test_light_imports_do_not_import_tensorflow(statement):
    script = f"import sys\n{statement}\nassert 'tensorflow' not in sys.modules"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
