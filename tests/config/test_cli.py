"""The command line: Go's way of writing flags, what they change, and what is printed."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import trustme

from edged import cli
from edged.cli import main
from edged.config.document import ConfigError
from edged.config.flags import FLAG_GROUPS, FlagError, apply_flags, parse_flags
from edged.config.jetstream_options import JetStreamOptions
from edged.config.load import load_text
from edged.config.options import Options, TlsOptions
from edged.signals import SignalError, processes, send_signal
from edged.version import EDGED_VERSION, NATS_VERSION

NATS_SERVER = Path(sys.executable).parent / "nats-server"


def flagged(*arguments: str, config: str = "") -> Options:
    options = load_text(config, {}).options if config else Options()
    return apply_flags(options, parse_flags(arguments))


@pytest.mark.parametrize(
    "written", [["-p", "5"], ["--port", "5"], ["-port=5"], ["--p=5"], ["-p", "1", "-p", "0x5"]]
)
def test_flag_takes_one_dash_or_two_and_its_value_after_equals_or_space(written: list[str]) -> None:
    assert flagged(*written).port == 5


def test_boolean_flag_takes_a_value_only_after_equals() -> None:
    assert flagged("-D").logging.debug
    assert not flagged("-D=false").logging.debug
    assert not flagged("--logtime=f").logging.logtime
    assert parse_flags(["-D", "false"]).words == ("false",)


def test_two_dashes_alone_end_the_flags() -> None:
    assert parse_flags(["-D", "--", "-V"]).words == ("-V",)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prot", "1"], "unknown flag --prot: did you mean --port?"),
        (["--zzzzzzz"], "unknown flag --zzzzzzz: see edged --help"),
        (["-p"], "flag -p needs a value: <port>"),
        (["-p", "x"], "flag -p needs a number: <port>"),
        (["--tls=maybe"], "flag --tls is true or false: write --tls or --tls=false"),
    ],
)
def test_wrong_flag_is_named_with_a_remedy(arguments: list[str], message: str) -> None:
    with pytest.raises(FlagError) as caught:
        parse_flags(arguments)
    assert str(caught.value) == message


def test_flags_override_the_file() -> None:
    config = (
        "port: 1\nhost: h\ndebug: true\nhttp_port: 2\njetstream { store_dir: a, domain: d }\nserver_name: n"
    )
    options = flagged("-p", "9", "-D=false", "-sd", "b", "-n", "m", "-a", "", config=config)
    assert (options.port, options.host, options.server_name, options.http_port) == (9, "0.0.0.0", "m", 2)
    assert not options.logging.debug
    assert options.jetstream == JetStreamOptions(store_dir="b", domain="d")


def test_combined_log_flags_set_each_switch() -> None:
    logging = flagged("-DVV").logging
    assert (logging.debug, logging.trace, logging.trace_verbose) == (True, True, True)
    logging = flagged("-DV").logging
    assert (logging.debug, logging.trace, logging.trace_verbose) == (True, True, False)


def test_jetstream_flag_turns_it_on_and_off() -> None:
    assert flagged("-js", "-sd", "x").jetstream == JetStreamOptions(store_dir="x")
    assert flagged("-sd", "x", "--jetstream").jetstream == JetStreamOptions(store_dir="x")
    assert flagged("-js=false", config="jetstream: enabled").jetstream is None


def test_tls_flags_replace_the_block_of_the_file() -> None:
    config = "tls { cert_file: a, key_file: b, timeout: 9 }"
    expected = TlsOptions(cert_file="c", key_file="k", ca_file="ca", verify=True)
    written = ["--tlscert", "c", "--tlskey", "k", "--tlsverify", "--tlscacert", "ca"]
    assert flagged(*written, config=config).tls == expected
    assert flagged("--tls=false", config=config).tls is None
    with pytest.raises(ConfigError, match="--tlscert"):
        flagged("--tls", config=config)


def test_cluster_flags_build_a_cluster() -> None:
    options = flagged(
        "--cluster", "nats://u:p@h:-1", "--cluster_name", "c", "--routes", "nats://a:1, nats://b:2"
    )
    assert options.cluster is not None
    cluster = options.cluster
    assert (cluster.host, cluster.port, cluster.user, cluster.password) == ("h", -1, "u", "p")
    assert (cluster.name, cluster.routes) == ("c", ("nats://a:1", "nats://b:2"))
    with pytest.raises(ConfigError, match="--cluster"):
        flagged("--routes", "nats://a:1")
    with pytest.raises(ConfigError, match="password"):
        flagged("--cluster", "nats://u@h:1")


@pytest.mark.real
def test_every_flag_of_nats_server_is_known() -> None:
    known = {name for _title, flags in FLAG_GROUPS for flag in flags for name in flag.names}
    said = subprocess.run([NATS_SERVER, "--help"], capture_output=True, text=True, check=True).stdout
    words = {word.strip(",") for line in said.splitlines() for word in line.replace(",--", " --").split()}
    theirs = {word.lstrip("-") for word in words if word.startswith("-") and word.strip("-")}
    assert theirs
    assert theirs <= known


def test_version_has_nats_servers_line_first(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--version"], ["-v"], ["version"]):
        assert main(arguments) == 0
        assert capsys.readouterr().out == f"nats-server: v{NATS_VERSION}\nedged: v{EDGED_VERSION}\n"


def test_help_shows_every_flag_and_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    for _title, flags in FLAG_GROUPS:
        for flag in flags:
            assert all(f"-{name}" in said for name in flag.names)
    assert all(command in said for command in cli.COMMANDS)
    assert max(len(line) for line in said.splitlines()) < 140
    assert main(["--help_tls"]) == 0
    assert "TLS_AES_128_GCM_SHA256" in capsys.readouterr().out


def test_unknown_command_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["frobnicate"]) == 1
    assert capsys.readouterr().err == "edged: unknown command 'frobnicate': see edged --help\n"


def test_t_checks_a_file_and_prints_its_digest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.conf"
    path.write_text("port: 4222\n")
    assert main(["-t", "-c", str(path)]) == 0
    said = capsys.readouterr().err
    assert said.startswith(f"edged: configuration file {path} is valid (sha256:")
    path.write_text("prot: 4222\n")
    assert main(["-c", str(path), "-t"]) == 1
    assert capsys.readouterr().err.startswith(f"edged: {path}:1:1: unknown key 'prot'")
    assert main(["-t"]) == 1


def test_check_config_explains_and_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.conf"
    path.write_text(
        "port: 4333\nprof_port: 1\nauthorization { token: hush }\njetstream { domain: d, sync: '2s' }\n"
    )
    assert main(["check-config", str(path)]) == 0
    said = capsys.readouterr().out
    assert "clients: 0.0.0.0:4333" in said
    assert "login: a token" in said
    assert "sync interval 2s, domain d" in said
    assert "warning:" in said
    assert "hush" not in said
    assert main(["check-config", str(tmp_path / "missing.conf")]) == 1
    assert main(["check-config"]) == 1


def test_check_looks_at_certificates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        issued = trustme.CA().issue_cert("localhost")
        issued.private_key_pem.write_to_path(str(tmp_path / f"{name}.key"))
        issued.cert_chain_pems[0].write_to_path(str(tmp_path / f"{name}.pem"))
    path = tmp_path / "a.conf"
    path.write_text(f"tls {{ cert_file: '{tmp_path}/a.pem', key_file: '{tmp_path}/a.key' }}")
    assert main(["-t", "-c", str(path)]) == 0
    path.write_text(f"tls {{ cert_file: '{tmp_path}/a.pem', key_file: '{tmp_path}/b.key' }}")
    capsys.readouterr()
    assert main(["-t", "-c", str(path)]) == 1
    assert "b.key" in capsys.readouterr().err


def test_run_hands_options_path_and_flags_to_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.conf"
    path.write_text("port: 1\nserver_name: n\n")
    started: list[tuple[Options, Path | None, Callable[[Options], Options]]] = []

    def run(options: Options, config_path: Path | None, reapply: Callable[[Options], Options]) -> int:
        started.append((options, config_path, reapply))
        return 7

    # The daemon itself has its own tests; here it only has to be called.
    daemon = ModuleType("edged.daemon")
    monkeypatch.setattr(daemon, "run", run, raising=False)
    monkeypatch.setitem(sys.modules, "edged.daemon", daemon)
    monkeypatch.setattr(sys, "argv", ["/usr/bin/edged-x"])
    handler = signal.getsignal(signal.SIGINT)
    assert main(["run", "-c", str(path), "-p", "9"]) == 7
    options, config_path, reapply = started[0]
    assert (options.port, options.server_name, options.executable_name) == (9, "n", "edged-x")
    assert config_path == path
    assert reapply(replace(Options(), port=3, server_name="new")).port == 9
    assert main([]) == 7
    # Starting changes what Ctrl-C does; here it goes on ending the tests.
    signal.signal(signal.SIGINT, handler)
    assert started[1][1] is None


def test_interrupting_a_start_ends_it_without_a_word() -> None:
    program = (
        "import os, signal, sys, types\n"
        "daemon = types.ModuleType('edged.daemon')\n"
        "daemon.run = lambda *_: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.modules['edged.daemon'] = daemon\n"
        "from edged.cli import main\n"
        "main([])\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, b"")


def test_flags_that_contradict_the_file_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.conf"
    path.write_text("authorization { users: [{user: a}] }\n")
    assert main(["-c", str(path), "--user", "b"]) == 1
    assert "either one user or token, or a list of users" in capsys.readouterr().err


def test_signal_without_a_known_command_or_process_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--signal", "dance"]) == 1
    assert "reload, reopen, ldm, quit, term, stop" in capsys.readouterr().err
    for who in ("reload=abc", "reload=1", "reload=0", "reload=-5", "reload=1=2", "reload=/no/such/file"):
        with pytest.raises(SignalError):
            send_signal(who, "edged")
    with pytest.raises(SignalError, match="no no-such-program process is running"):
        send_signal("reload", "no-such-program")


@pytest.mark.real
def test_signal_reaches_a_process_by_id_by_file_and_by_name(tmp_path: Path) -> None:
    program = tmp_path / "edged-signal-test"
    program.write_text("import signal\nprint('ready', flush=True)\nsignal.pause()\n")
    for form in ("id", "file", "name", "prefix"):
        with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            (tmp_path / "pid").write_text(f"{process.pid}\n")
            assert list(processes(program.name)) == [process.pid]
            who = {
                "id": f"={process.pid}",
                "file": f"={tmp_path}/pid",
                "name": "",
                "prefix": f"={process.pid}*",
            }
            assert send_signal(f"term{who[form]}", program.name) == (process.pid,)
            assert process.wait(10) == -signal.SIGTERM
    assert os.getpid() not in processes(program.name)
