"""Shell completion: what the scripts complete, as far as the shells are there."""

import shutil
import subprocess

import pytest

from mx_rec import __main__

COMMANDS = ["demo", "inspect", "verify", "diff", "prune", "export", "completion"]


@pytest.fixture
def script(capsys):
    def print_it(shell):
        assert __main__.main(["completion", shell]) == 0
        return capsys.readouterr().out

    return print_it


def run(shell, program, **options):
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    return subprocess.run([shell, *program], capture_output=True, text=True, check=True, **options).stdout.split("\n")


def bash(script, tmp_path, *words):
    program = f'{script}\nCOMP_WORDS=(mx_rec {" ".join(words)} ""); COMP_CWORD={len(words) + 1}\n'
    if words and words[-1].endswith("<"):  # still being typed
        program = f"{script}\nCOMP_WORDS=(mx_rec {' '.join(words)[:-1]}); COMP_CWORD={len(words)}\n"
    return [
        line
        for line in run("bash", ["-c", program + '_mx_rec; printf "%s\\n" "${COMPREPLY[@]}"'], cwd=tmp_path)
        if line
    ]


def test_bash_completes_commands_options_choices_and_files(script, tmp_path):
    (tmp_path / "a run").mkdir()
    text = script("bash")
    assert set(COMMANDS) <= set(bash(text, tmp_path))
    assert bash(text, tmp_path, "ins<") == ["inspect"]
    assert {"--table", "--key", "--hist", "--json"} <= set(bash(text, tmp_path, "inspect", "--<"))
    assert bash(text, tmp_path, "inspect", "--ta<") == ["--table"]
    assert bash(text, tmp_path, "inspect") == ["a run"]
    assert bash(text, tmp_path, "inspect", "--table") == []
    assert bash(text, tmp_path, "demo", "--dir") == ["a run"]
    assert bash(text, tmp_path, "export", "--format") == ["npy", "parquet", "original"]
    assert bash(text, tmp_path, "export", "--format", "pa<") == ["parquet"]
    assert bash(text, tmp_path, "completion") == ["-h", "--help", "bash", "zsh", "fish"]
    assert bash(text, tmp_path, "completion", "f<") == ["fish"]


def test_zsh_reads_its_script(script):
    run("zsh", ["-f", "-c", f"autoload -U compinit; compinit -D\n{script('zsh')}\n[[ $_comps[mx_rec] = _mx_rec ]]"])


def test_fish_completes_commands_options_and_choices(script):
    text = script("fish")

    def completed(line):
        lines = run("fish", ["--no-config", "-c", f"{text}\ncomplete -C '{line}'"])
        return {one.split("\t")[0] for one in lines if one}

    assert set(COMMANDS) <= completed("mx_rec ")
    assert completed("mx_rec inspect --ta") == {"--table"}
    assert completed("mx_rec export --format ") == {"npy", "parquet", "original"}
    assert completed("mx_rec completion ") == {"bash", "zsh", "fish"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_option_of_every_command_is_there(script, shell):
    text = script(shell)
    for name in COMMANDS:
        assert name in text
    for option in ("no-check", "dry-run", "batch-size", "slots", "keep"):
        assert option in text


def test_the_scripts_are_good_shell(script):
    for shell in ("bash", "zsh", "fish"):
        if shutil.which(shell):
            subprocess.run([shell, "-n"], input=script(shell), text=True, check=True)


def test_another_shell_is_refused(capsys):
    with pytest.raises(SystemExit):
        __main__.main(["completion", "tcsh"])
    assert "invalid choice: 'tcsh'" in capsys.readouterr().err
