"""The commands `edged` and `edged-hub`: nats-server's command line, and a few words of our own before it.

Rules: main() returns the exit code and prints one line to stderr for whatever went wrong, saying what to do.
`edged` and `edged run` start the daemon; what else the first word may be stands in COMMANDS. Secrets of the
configuration are never printed. What only some commands need is imported by them: a daemon without a
configuration file holds no code for reading one.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edged.config.check import check_options
from edged.config.document import ConfigError
from edged.config.flags import FLAG_GROUPS, Flag, FlagError, ParsedFlags, apply_flags, parse_flags
from edged.config.options import Options
from edged.signals import SignalError, send_signal
from edged.version import EDGED_VERSION, NATS_VERSION

if TYPE_CHECKING:
    from edged.config.load import LoadedConfig

EXIT_OK = 0
EXIT_WRONG = 1

# Runs a daemon: the options, the file they come from, and how to put the flags on top of that file again.
Start = Callable[[Options, Path | None, Callable[[Options], Options]], int]


@dataclass(frozen=True, slots=True)
class Command:
    """A first word: how its arguments look in the help, what it does, and the function that does it."""

    arguments: str
    help: str
    run: Callable[[Sequence[str]], int]


def main(argv: Sequence[str] | None = None, start: Start | None = None) -> int:
    """Run the command line; argv is what follows the program name. `start` runs another daemon than edged."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = COMMANDS.get(arguments[0]) if arguments else None
    try:
        if command is None or command.run is run:
            return run(arguments if command is None else arguments[1:], start or _start_edge)
        return command.run(arguments[1:])
    except (ConfigError, FlagError, SignalError) as error:
        return _fail(str(error))


def _start_edge(options: Options, config_path: Path | None, reapply: Callable[[Options], Options]) -> int:
    # Importing the daemon takes the longest part of the start; a wrong command line should not wait for it.
    from edged.daemon import run as run_daemon

    return run_daemon(options, config_path, reapply)


def run(arguments: Sequence[str], start: Start = _start_edge) -> int:
    """Start the daemon, or do what a flag asks for instead."""
    flags = parse_flags(arguments)
    if flags.words:
        return _fail(f"unknown command {flags.words[0]!r}: see edged --help")
    action = next((action for name, action in _ACTIONS.items() if flags.value(name)), None)
    if action is not None:
        return action(flags)
    config = flags.value("c")
    loaded = None
    if config:
        from edged.config.load import load_file

        loaded = load_file(config, os.environ)
        _print_warnings(loaded)

    def reapply(options: Options) -> Options:
        """The flags on top of options; at a reload these come fresh from the file."""
        changed = apply_flags(replace(options, executable_name=program_name()), flags)
        check_options(changed)
        return changed

    options = reapply(loaded.options if loaded is not None else Options())
    # Until the daemon listens to signals Ctrl-C just ends it: there is nothing to put in order.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return start(options, Path(config) if config else None, reapply)


def program_name() -> str:
    """What the ports file and --signal know this program by."""
    name = Path(sys.argv[0]).name
    return "edged" if name in ("", "-c", "-m", "__main__.py") else name


def _fail(message: str) -> int:
    print(f"edged: {message}", file=sys.stderr)
    return EXIT_WRONG


def _print_warnings(loaded: "LoadedConfig") -> None:
    for warning in loaded.warnings:
        print(f"edged: warning: {warning}", file=sys.stderr)


def _test_config(flags: ParsedFlags) -> int:
    path = flags.value("c")
    if not path:
        return _fail("-t checks a configuration file: name it by -c <file>")
    loaded = _check_file(path)
    _print_warnings(loaded)
    print(f"edged: configuration file {path} is valid ({loaded.digest})", file=sys.stderr)
    return EXIT_OK


def _check_config(arguments: Sequence[str]) -> int:
    if len(arguments) != 1 or arguments[0].startswith("-"):
        return _fail("expected one file: edged check-config <file>")
    from edged.config.describe import describe

    loaded = _check_file(arguments[0])
    print(f"{arguments[0]} is valid")
    for line in describe(loaded.options):
        print(f"  {line}")
    for warning in loaded.warnings:
        print(f"warning: {warning}")
    return EXIT_OK


def _tune(arguments: Sequence[str]) -> int:
    from edged.tune_command import TuneError
    from edged.tune_command import run as run_tune

    try:
        return run_tune(arguments)
    except TuneError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return _fail("interrupted, nothing was left behind")


def _fsck(arguments: Sequence[str]) -> int:
    from edged.fsck_command import EXIT_UNREADABLE
    from edged.fsck_command import run as run_fsck
    from edged.store_arguments import StoreCommandError

    # 1 means damage here, so whatever else goes wrong has another status.
    try:
        return run_fsck(arguments)
    except (StoreCommandError, ConfigError) as error:
        _fail(str(error))
    except KeyboardInterrupt:
        _fail("interrupted, nothing was changed")
    return EXIT_UNREADABLE


def _inspect(arguments: Sequence[str]) -> int:
    from edged.inspect_command import EXIT_NOTHING
    from edged.inspect_command import run as run_inspect
    from edged.store_arguments import StoreCommandError

    try:
        return run_inspect(arguments)
    except (StoreCommandError, ConfigError) as error:
        _fail(str(error))
    except KeyboardInterrupt:
        _fail("interrupted")
    return EXIT_NOTHING


def _check_file(path: str) -> "LoadedConfig":
    """The file, and also whether its certificates can be used."""
    from edged.config.load import load_file

    loaded = load_file(path, os.environ)
    options = loaded.options
    blocks = (options, options.websocket, options.leafnodes, options.cluster)
    served = [block.tls for block in blocks if block is not None and block.tls is not None]
    if served:
        from edged.server.tls_context import TlsConfigError, server_context

        try:
            for tls in served:
                server_context(tls)
        except TlsConfigError as error:
            raise ConfigError(str(error)) from None
    return loaded


def _signal(flags: ParsedFlags) -> int:
    send_signal(flags.value("sl"), program_name())
    return EXIT_OK


def _version(_flags: ParsedFlags) -> int:
    # Tools look for nats-server's line, so it comes first and says nothing else.
    print(f"nats-server: v{NATS_VERSION}")
    print(f"edged: v{EDGED_VERSION}")
    return EXIT_OK


def _help(_flags: ParsedFlags) -> int:
    print("edged: durable messaging for the edge, compatible with NATS\n")
    print("Usage: edged [run] [flags]\n       edged <command> [arguments]\n")
    print("Commands:")
    for name, command in COMMANDS.items():
        print(f"  {f'{name} {command.arguments}'.strip():<34}{command.help}")
    for title, flags in FLAG_GROUPS:
        print(f"\n{title}:")
        for flag in flags:
            print(f"  {_shown(flag):<34}{flag.help}")
    print("\nFlags take one dash or two and override the configuration file; =false turns a switch off.")
    print("Every key of the file is explained in edged.conf.example.")
    return EXIT_OK


def _shown(flag: Flag) -> str:
    names = ", ".join(f"-{name}" if len(name) <= 3 and name != "net" else f"--{name}" for name in flag.names)
    return f"{names} {flag.placeholder}".rstrip()


def _help_tls(_flags: ParsedFlags) -> int:
    from edged.config.tls import CIPHER_SUITES, CURVES, INSECURE_CIPHER_SUITES

    print("A tls block at the top level is for clients; websocket, leafnodes and cluster have their own:\n")
    print('  tls {\n    cert_file: "server.pem"\n    key_file: "server-key.pem"')
    print(
        '    verify: true                # ask clients for a certificate\n    ca_file: "clients-ca.pem"\n  }'
    )
    for title, names in (
        ("cipher_suites", CIPHER_SUITES),
        ("cipher_suites that need allow_insecure_cipher_suites", INSECURE_CIPHER_SUITES),
        ("curve_preferences", CURVES),
    ):
        print(f"\n{title}:")
        for name in sorted(names):
            print(f"  {name}")
    return EXIT_OK


# What these flags ask for happens instead of starting; the first in this order wins.
_ACTIONS: dict[str, Callable[[ParsedFlags], int]] = {
    "v": _version,
    "h": _help,
    "help_tls": _help_tls,
    "sl": _signal,
    "t": _test_config,
}

COMMANDS: dict[str, Command] = {
    "run": Command("[flags]", "start the daemon, as without a command", run),
    "check-config": Command("<file>", "check a configuration file and say what it does", _check_config),
    "tune": Command("[DIR] [--seconds N] [--json]", "measure a disk and recommend settings for it", _tune),
    "fsck": Command("DIR [--salvage NEW_DIR]", "verify a store; save what can be read of it", _fsck),
    "inspect": Command("DIR [stream NAME | ...]", "show what is in the files of a store", _inspect),
    "help": Command("", "show this help", lambda _arguments: _help(ParsedFlags())),
    "version": Command("", "show the version", lambda _arguments: _version(ParsedFlags())),
}
