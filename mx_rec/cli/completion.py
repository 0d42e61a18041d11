"""`mx_rec completion`: a shell script that completes commands, options and files of the command line.

The script is written from the parsers of all commands, so it knows what this version knows. Every shell gets the same:
commands first, then options after a dash, words where an option or argument has a fixed choice, and files elsewhere.
"""

import argparse
import dataclasses
import functools

_DESCRIPTION = """\
Prints the script for a shell. bash: source <(mx_rec completion bash), in ~/.bashrc. zsh: the same with zsh, in ~/.zshrc
after compinit. fish: mx_rec completion fish > ~/.config/fish/completions/mx_rec.fish
"""
_SHELLS = ("bash", "zsh", "fish")
_FILES = ("DIR", "FILE", "PATH")  # values of options of this name are files


@dataclasses.dataclass(frozen=True)
class _Argument:
    names: tuple[str, ...]  # none: a positional one
    help: str
    label: str  # of its value; empty: it takes none
    choices: tuple[str, ...]
    is_text: bool  # its value is no file
    is_many: bool  # may be given again


def add_command(commands) -> None:
    """Adds `completion` to the command line's subparsers."""
    parser = commands.add_parser("completion", help="print a script for shell completion", description=_DESCRIPTION)
    parser.add_argument("shell", choices=_SHELLS, help="for which shell")
    parser.set_defaults(run=functools.partial(run, commands))


def run(commands, options) -> int:
    """Prints the script for the commands that were added to `commands`; returns the exit status."""
    helps = {action.dest: action.help for action in commands._get_subactions()}
    arguments = {name: _arguments(parser) for name, parser in commands.choices.items()}
    write = {"bash": _bash, "zsh": _zsh, "fish": _fish}[options.shell]
    print("\n".join(write(helps, arguments)))
    return 0


def _arguments(parser):
    formatter = parser._get_formatter()
    found = []
    for action in parser._actions:
        if action.help is argparse.SUPPRESS:
            continue
        takes_value = action.nargs != 0 and not isinstance(action, argparse._HelpAction)
        found.append(
            _Argument(
                names=tuple(action.option_strings),
                help=formatter._expand_help(action) if action.help else "",
                label=(action.metavar or action.dest) if takes_value else "",
                choices=tuple(map(str, action.choices or ())),
                is_text=bool(action.option_strings) and str(action.metavar or action.dest).upper() not in _FILES,
                is_many=action.nargs in ("+", "*", argparse.REMAINDER) or isinstance(action, argparse._AppendAction),
            )
        )
    return found


def _options(arguments):
    return [argument for argument in arguments if argument.names]


def _positional(arguments):
    return [argument for argument in arguments if not argument.names]


# ---- bash.


def _bash(helps, commands):
    yield "# bash completion of mx_rec"
    yield "_mx_rec() {"
    yield '  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" words=""'
    yield "  COMPREPLY=()"
    yield '  if [ "$COMP_CWORD" -eq 1 ]; then'
    yield f'    words="{" ".join([*helps, "--help", "--version"])}"'
    yield "  else"
    yield '    case "${COMP_WORDS[1]} $prev" in'
    for name, arguments in commands.items():
        for option in _options(arguments):
            if option.label and (option.choices or option.is_text):
                yield f"      {'|'.join(_bash_word(f'{name} {one}') for one in option.names)})"
                yield f'        mapfile -t COMPREPLY < <(compgen -W "{" ".join(option.choices)}" -- "$cur")'
                yield "        return;;"
    yield "    esac"
    yield '    case "${COMP_WORDS[1]}" in'
    for name, arguments in commands.items():
        options = [one for option in _options(arguments) for one in option.names]
        yield f'      {name}) words="{" ".join([*options, *_bash_choices(arguments)])}";;'
    yield "    esac"
    yield "  fi"
    yield '  if [ "$COMP_CWORD" -gt 1 ] && [[ "$cur" != -* ]]; then'
    yield '    case "${COMP_WORDS[1]}" in'
    chosen = [name for name, arguments in commands.items() if _bash_choices(arguments)]
    if chosen:
        yield f"      {'|'.join(chosen)}) ;;"
    yield '      *) mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return;;'
    yield "    esac"
    yield "  fi"
    yield '  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")'
    yield "}"
    yield "complete -o filenames -F _mx_rec mx_rec"


def _bash_word(text):
    return f"'{text}'"


def _bash_choices(arguments):
    return [choice for argument in _positional(arguments) for choice in argument.choices]


# ---- zsh.


def _zsh(helps, commands):
    yield "#compdef mx_rec"
    yield "_mx_rec() {"
    yield "  local line state"
    yield "  _arguments -C '(- *)'{-h,--help}'[show help]' '(- *)--version[show the version]' \\"
    yield "    '1: :->command' '*:: :->rest'"
    yield '  case "$state" in'
    yield "    command)"
    yield "      local -a commands=("
    for name, text in helps.items():
        yield f"        '{name}:{_zsh_text(text)}'"
    yield "      )"
    yield "      _describe command commands;;"
    yield "    rest)"
    yield '      case "$line[1]" in'
    for name, arguments in commands.items():
        yield f"        {name})"
        yield f"          _arguments {' '.join(_zsh_spec(argument) for argument in arguments)};;"
    yield "      esac;;"
    yield "  esac"
    yield "}"
    yield 'if [ "$funcstack[1]" = _mx_rec ]; then _mx_rec "$@"; else compdef _mx_rec mx_rec; fi'


def _zsh_spec(argument):
    value = ""
    if argument.label or not argument.names:
        action = f"({' '.join(argument.choices)})" if argument.choices else "" if argument.is_text else "_files"
        value = f":{_zsh_text(str(argument.label).lower())}:{action}"
    if not argument.names:
        return f"'{'*' if argument.is_many else ''}{value}'"
    many = "*" if argument.is_many else ""
    return " ".join(f"'{many}{name}[{_zsh_text(argument.help)}]{value}'" for name in argument.names)


def _zsh_text(text):
    for special in ("\\", "[", "]", ":"):
        text = text.replace(special, "\\" + special)
    return text.replace("'", "'\\''")


# ---- fish.


def _fish(helps, commands):
    yield "# fish completion of mx_rec"
    yield "complete -c mx_rec -n __fish_use_subcommand -f -s h -l help -d 'show help'"
    yield "complete -c mx_rec -n __fish_use_subcommand -f -l version -d 'show the version'"
    for name, text in helps.items():
        yield f"complete -c mx_rec -n __fish_use_subcommand -f -a {name} -d {_fish_text(text)}"
    for name, arguments in commands.items():
        here = f"complete -c mx_rec -n '__fish_seen_subcommand_from {name}'"
        for argument in arguments:
            if argument.names:
                names = " ".join(f"-l {one[2:]}" if one.startswith("--") else f"-s {one[1:]}" for one in argument.names)
                yield f"{here} {names}{_fish_value(argument)} -d {_fish_text(argument.help)}"
            elif argument.choices:
                yield f"{here} -f -a {_fish_text(' '.join(argument.choices))}"


def _fish_value(argument):
    if argument.choices:
        return f" -x -a {_fish_text(' '.join(argument.choices))}"
    if argument.label:
        return " -x" if argument.is_text else " -r"
    return ""


def _fish_text(text):
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
