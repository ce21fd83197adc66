import contextlib
import ctypes
import http.server
import os
import queue
import signal
import site
import socket
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from host_jobs import ENVIRONMENT, FOREVER, SECONDS, UNTIL_SIGTERM, Job, said

from sagemaker_local_account.runtime import supervisor_request
from sagemaker_local_account.runtime.devices import write_stand_ins
from sagemaker_local_account.runtime.limit_watch import LimitWatch
from sagemaker_local_account.runtime.pod import CommandError, HostError
from sagemaker_local_account.runtime.supervisor import KEYCTL_JOIN_SESSION_KEYRING, SYS_KEYCTL, tell


def gate(folder: Path, name: str) -> Path:
    """A pipe that a host sees as /opt/ml/gate: reading it waits for `open_gate`."""
    pipe = folder / name / "opt" / "ml" / "gate"
    pipe.parent.mkdir(parents=True)
    os.mkfifo(pipe)
    return pipe


def open_gate(pipe: Path) -> None:
    pipe.write_text("go")


def await_status(process: psutil.Process, status: str) -> None:
    while process.status() != status:
        time.sleep(0.01)


def suspend(process: psutil.Process) -> None:
    """Stop a process before anything else happens: a signal alone may come after what it waits for."""
    process.suspend()
    await_status(process, psutil.STATUS_STOPPED)


@pytest.fixture
def endpoint() -> Iterator[int]:
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"the account")

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_each_host_has_its_own_name(tmp_path: Path):
    program = "import socket; print(socket.gethostname())"
    assert sorted(said(tmp_path, program, program)) == [("algo-1", "algo-1"), ("algo-2", "algo-2")]


def test_a_name_stands_for_the_hosts_address(tmp_path: Path):
    program = "import socket; print(socket.gethostbyname('algo-1'), socket.gethostbyname('algo-2'))"
    assert said(tmp_path, program, "") == [("algo-1", "10.0.0.1 10.0.0.2")]


def test_hosts_of_a_job_reach_each_other_by_name(tmp_path: Path):
    server = """
import socket
with socket.create_server(("", 29500)) as server:
    print("listening")
    print(server.accept()[0].recv(100).decode())
"""
    client = """
import socket
open("/opt/ml/gate").read()
socket.create_connection(("algo-1", 29500)).send(socket.gethostname().encode())
"""
    pipe = gate(tmp_path, "algo-2")
    with Job(tmp_path, server, client) as job:
        assert job.line() == ("algo-1", "listening")
        open_gate(pipe)
        assert job.line() == ("algo-1", "algo-2")


def test_two_jobs_listen_on_the_same_port_and_do_not_meet(tmp_path: Path):
    program = """
import socket
with socket.create_server(("0.0.0.0", 29500)) as server:
    print("listening")
    word = open("/opt/ml/gate").read()
    client = socket.create_connection(("algo-1", 29500))
    client.send(open("/etc/hostname").read().encode() + open("/opt/ml/word").read().encode())
    print(server.accept()[0].recv(100).decode().split()[1])
"""
    pipes = [gate(tmp_path / name, "algo-1") for name in ("first", "second")]
    for pipe, name in zip(pipes, ("first", "second"), strict=True):
        (pipe.parent / "word").write_text(name)
    with Job(tmp_path / "first", program) as first, Job(tmp_path / "second", program) as second:
        assert (first.line()[1], second.line()[1]) == ("listening", "listening")
        for pipe in pipes:
            open_gate(pipe)
        assert (first.line()[1], second.line()[1]) == ("first", "second")


def test_what_a_host_writes_to_opt_ml_is_in_its_own_folder(tmp_path: Path):
    said(tmp_path, "open('/opt/ml/here', 'w').write('mine')", "")
    assert (tmp_path / "algo-1/opt/ml/here").read_text() == "mine"
    assert not (tmp_path / "algo-2/opt/ml/here").exists()


def test_a_host_has_its_own_home_and_temporary_folder(tmp_path: Path):
    program = "import os; open('/tmp/t', 'w'); open(os.path.expanduser('~/h'), 'w')"
    said(tmp_path, program, environment={**ENVIRONMENT, "HOME": "/root"})
    assert (tmp_path / "algo-1/tmp/t").exists()
    assert (tmp_path / "algo-1/home/h").exists()


def test_a_host_sees_no_file_of_the_machine_outside_its_system_folders(tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("")
    assert said(tmp_path, f"import os; print(os.path.exists({str(secret)!r}))") == [("algo-1", "False")]


def test_a_host_sees_of_the_machines_settings_what_programs_read_and_no_secret(tmp_path: Path):
    program = "import os; print(*os.listdir('/etc')); print(*os.listdir('/etc/ssl')); print(open('/etc/passwd').read())"
    settings, ssl, *passwd = [line for _, line in said(tmp_path, program)]
    assert {"hosts", "nsswitch.conf", "passwd", "ssl"} <= set(settings.split())
    secret = {
        "shadow",
        "gshadow",
        "ssh",
        "pip.conf",
        "npmrc",
        "gitconfig",
        "environment",
        "machine-id",
        "sudoers",
        "fstab",
    }
    assert secret & set(os.listdir("/etc")), "the machine has some of these"
    assert not secret & set(settings.split())
    assert "certs" in ssl.split()
    assert "private" not in ssl.split()
    assert [line.split(":")[0] for line in passwd if line] == ["root", "nobody"]


def test_an_images_own_users_are_a_hosts(tmp_path: Path):
    (tmp_path / "image" / "etc").mkdir(parents=True)
    (tmp_path / "image" / "etc" / "passwd").write_text(
        "root:x:0:0:root:/root:/bin/sh\ntrainer:x:1000:1000::/app:/bin/sh\n"
    )
    assert said(tmp_path, "import pwd; print(pwd.getpwuid(1000).pw_name)") == [("algo-1", "trainer")]


def test_the_machines_system_folders_are_read_only(tmp_path: Path):
    program = """
for path in ("/usr/x", "/etc/nsswitch.conf", "/proc/sys/kernel/hostname"):
    try:
        open(path, "a").write("x")
    except OSError:  # read-only, or for an ordinary user not even permitted
        print("refused")
"""
    assert [line for _, line in said(tmp_path, program)] == ["refused"] * 3


def test_a_host_has_no_key_of_the_persons_keyring(tmp_path: Path):
    libc = ctypes.CDLL(None, use_errno=True)
    keyctl = SYS_KEYCTL[os.uname().machine]
    assert libc.syscall(ctypes.c_long(keyctl), ctypes.c_long(KEYCTL_JOIN_SESSION_KEYRING), None) > 0
    subprocess.run([sys.executable, "-c", KEYS, str(keyctl), "add"], check=True)
    search = [sys.executable, "-c", KEYS, str(keyctl), "search"]
    assert subprocess.run(search, capture_output=True, text=True).stdout == "found\n"
    assert said(tmp_path, ("python", *search[1:])) == [("algo-1", "Required key not available")]


KEYS = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
number, session = int(sys.argv[1]), -3
if sys.argv[2] == "add":  # add_key(2), whose number is two before keyctl's
    key = libc.syscall(number - 2, b"user", b"persons-key", b"secret", ctypes.c_size_t(6), session)
else:
    key = libc.syscall(number, 10, session, b"user", b"persons-key", 0)
print("found" if key > 0 else os.strerror(ctypes.get_errno()))
"""


def test_a_host_cannot_make_the_machines_folders_writable(tmp_path: Path):
    program = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.mount(b"none", b"/usr", None, 32 | 4096, None)
print(os.strerror(ctypes.get_errno()))
# In namespaces that it makes itself, where it may mount, what is read-only and what is covered stays so.
assert libc.unshare(0x10000000 | 0x20000) == 0
result = libc.mount(b"none", b"/usr", None, 32 | 4096, None)
print("/usr", os.strerror(ctypes.get_errno()) if result else "done")
result = libc.umount2(b"/proc/keys", 2)
print("/proc/keys", os.strerror(ctypes.get_errno()) if result else "done")
"""
    assert said(tmp_path, program) == [
        ("algo-1", "Operation not permitted"),
        ("algo-1", "/usr Operation not permitted"),
        ("algo-1", "/proc/keys Invalid argument"),
    ]


def test_the_images_files_are_at_their_own_paths(tmp_path: Path):
    for path in ("app/x.py", "opt/ml/code/train.py"):
        (tmp_path / "image" / path).parent.mkdir(parents=True)
        (tmp_path / "image" / path).write_text(f"print({path!r})")
    with Job(tmp_path, ("sh", "-c", "python x.py; python /opt/ml/code/train.py"), working_directory="/app") as job:
        assert [job.line()[1], job.line()[1]] == ["app/x.py", "opt/ml/code/train.py"]


@pytest.mark.parametrize("folder", ["usr/local/bin", "bin", "usr/bin"])
def test_an_image_may_add_a_command_beside_the_machines(tmp_path: Path, folder: str):
    command = tmp_path / "image" / folder / "greet"
    command.parent.mkdir(parents=True)
    command.write_text("#!/bin/sh\necho hello | cat\n")
    command.chmod(0o755)
    assert said(tmp_path, ("greet",)) == [("algo-1", "hello")]


def test_a_host_may_change_the_images_files_and_only_for_itself(tmp_path: Path):
    (tmp_path / "image/app").mkdir(parents=True)
    (tmp_path / "image/app/x").write_text("as built")
    program = "print(open('/app/x').read()); open('/app/x', 'w').write('changed'); print(open('/app/x').read())"
    assert said(tmp_path, program) == [("algo-1", "as built"), ("algo-1", "changed")]
    assert (tmp_path / "image/app/x").read_text() == "as built"


def test_the_environment_is_exactly_the_plans(tmp_path: Path):
    environment = {"PATH": "/usr/bin:/bin", "SM_X": "ä b"}
    assert sorted(said(tmp_path, ("env",), environment=environment)) == [
        ("algo-1", "PATH=/usr/bin:/bin"),
        ("algo-1", "SM_X=ä b"),
    ]


def test_the_accounts_endpoint_is_at_localhost_in_every_host(tmp_path: Path, endpoint: int):
    program = f"import urllib.request; print(urllib.request.urlopen('http://localhost:{endpoint}').read().decode())"
    assert sorted(said(tmp_path, program, program, port=endpoint)) == [
        ("algo-1", "the account"),
        ("algo-2", "the account"),
    ]


def test_no_other_port_of_the_machine_is_reachable(tmp_path: Path, endpoint: int):
    program = f"import socket; print(socket.socket().connect_ex(('127.0.0.1', {endpoint})))"
    assert said(tmp_path, program, port=9) == [("algo-1", "111")]


def test_no_address_outside_the_job_is_reachable(tmp_path: Path):
    program = "import os, socket; print(os.strerror(socket.socket().connect_ex(('192.0.2.1', 80))))"
    assert said(tmp_path, program) == [("algo-1", "Network is unreachable")]


def test_exit_codes_come_by_host_and_are_negative_for_a_signal(tmp_path: Path):
    with Job(tmp_path, ("true",), "exit(3)", FOREVER, ("sh", "-c", "nothing-like-it")) as job:
        job.line()
        job.kill_host("algo-3")
        assert job.wait(SECONDS) == {"algo-1": 0, "algo-2": 3, "algo-3": -9, "algo-4": 127}


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("train", 'exec: "train": executable file not found in $PATH (algo-1)'),
        ("/opt/train", 'exec: "/opt/train": stat /opt/train: no such file or directory (algo-1)'),
        ("/etc/hostname", 'exec: "/etc/hostname": permission denied (algo-1)'),
    ],
)
def test_a_host_whose_command_is_not_there_is_not_started(tmp_path: Path, command: str, message: str):
    job = Job(tmp_path, (command,), environment={"PATH": "/usr/bin:/bin"})
    with pytest.raises(CommandError) as error:
        job.start()
    assert str(error.value) == message
    assert job.all_lines() == [("algo-1", message.removesuffix(" (algo-1)"))]


def test_a_host_does_not_see_hidden_commands_of_system_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(supervisor_request, "_own_commands", lambda: ["/usr/bin/env"])
    python = tmp_path / "environment"
    venv.EnvBuilder(symlinks=True).create(python)
    program = ("sh", "-c", "ls /usr/bin/env /usr/bin/ls 2>&1")
    assert said(tmp_path, program, python=python)[1:] == [("algo-1", "/usr/bin/ls")]


def test_a_folder_of_packages_that_python_names_and_is_not_there_is_no_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As Python of Debian names ``lib/python3/dist-packages`` of a virtual environment."""
    folders = [*site.getsitepackages(), str(tmp_path / "dist-packages")]
    monkeypatch.setattr(site, "getsitepackages", lambda: folders)
    python = tmp_path / "environment"
    venv.EnvBuilder(symlinks=True).create(python)
    assert said(tmp_path, ("echo", "runs"), python=python) == [("algo-1", "runs")]


def test_waiting_for_hosts_that_run_ends_with_the_timeout(tmp_path: Path):
    with Job(tmp_path, FOREVER) as job:
        assert job.wait(0.01) is None
        assert job.first_exit(0.01) is None


def test_a_host_that_fails_is_told_while_the_others_run(tmp_path: Path):
    with Job(tmp_path, FOREVER, "exit(4)") as job:
        assert job.first_exit(SECONDS) == ("algo-2", 4)
        assert job.wait(0) is None


def test_a_signal_reaches_the_command_of_every_host(tmp_path: Path):
    program = UNTIL_SIGTERM.format("ready")
    with Job(tmp_path, program, program) as job:
        job.line(), job.line()
        job.signal(signal.SIGTERM)
        assert job.wait(SECONDS) == {"algo-1": 7, "algo-2": 7}


def test_a_host_that_is_killed_is_lost_and_the_others_run_on(tmp_path: Path):
    with Job(tmp_path, FOREVER, FOREVER) as job:
        job.line(), job.line()
        job.kill_host("algo-1")
        assert job.first_exit(SECONDS) == ("algo-1", -9)
        job.signal(signal.SIGTERM)
        assert job.wait(SECONDS) == {"algo-1": -9, "algo-2": 7}


def test_a_host_that_is_killed_before_its_command_runs_has_ended_and_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    job = Job(tmp_path, FOREVER)
    monkeypatch.setattr(LimitWatch, "start", lambda _: job.kill_host("algo-1"))  # while `start` waits for the host
    with job:
        assert job.wait(SECONDS) == {"algo-1": -signal.SIGKILL}
        assert job.lost == {"algo-1"}


def test_a_host_that_is_killed_before_it_has_a_network_fails_the_start_of_no_other() -> None:
    link, of_host = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    of_host.close()
    with link:
        tell(link)


def test_what_a_command_leaves_running_ends_with_it(tmp_path: Path):
    with Job(tmp_path, ("sh", "-c", "sleep 1000 & exit 5")) as job:
        assert job.wait(SECONDS) == {"algo-1": 5}
        names = []
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # one that an earlier test started, and that has just ended
                names.append(process.name())
        assert {"sh", "sleep"}.isdisjoint(names)


def test_all_lines_are_given_before_a_host_is_said_to_have_ended(tmp_path: Path):
    with Job(tmp_path, "for number in range(100_000): print(number)") as job:
        assert job.first_exit(SECONDS) == ("algo-1", 0)
        assert [line for _, line in job.all_lines()] == [str(number) for number in range(100_000)]


def test_lines_of_both_streams_are_whole_and_text(tmp_path: Path):
    program = """
import os
for part in (b"a", b"b\\n", b"\\xff\\n", b"\\n", "\\u00e4".encode()[:1], "\\u00e4".encode()[1:], b"\\nlast"):
    os.write(2, part)
"""
    assert [line for _, line in said(tmp_path, program)] == ["ab", "\ufffd", "", "ä", "last"]


def test_a_command_has_nothing_on_its_standard_input(tmp_path: Path):
    assert said(tmp_path, "import sys; print(repr(sys.stdin.read()))") == [("algo-1", "''")]


def test_a_host_has_no_file_open_that_is_not_its_own(tmp_path: Path):
    assert said(tmp_path, "import os; print(sorted(os.listdir('/proc/self/fd'))[:-1])") == [
        ("algo-1", "['0', '1', '2']")
    ]


def test_a_host_sees_its_own_processes_only(tmp_path: Path):
    program = "import os; print(os.getpid(), [name for name in os.listdir('/proc') if name.isdigit()])"
    assert said(tmp_path, program) == [("algo-1", "1 ['1']")]


def test_a_command_is_process_1_which_gets_no_sigterm_that_it_does_not_handle(tmp_path: Path):
    pipe = gate(tmp_path, "algo-1")
    waiting = ("bash", "-c", "echo running; read word < /opt/ml/gate; exit 3")
    with Job(tmp_path, waiting, FOREVER) as job:
        job.line(), job.line()
        job.signal(signal.SIGTERM)
        assert job.first_exit(SECONDS) == ("algo-2", 7)
        open_gate(pipe)
        assert job.wait(SECONDS) == {"algo-1": 3, "algo-2": 7}


def test_a_command_that_ends_before_a_signal_is_read_has_its_own_exit_code_and_is_not_lost(tmp_path: Path):
    pipe = gate(tmp_path, "algo-1")
    with Job(tmp_path, ("bash", "-c", "echo running; read word < /opt/ml/gate; exit 3"), FOREVER) as job:
        job.line(), job.line()
        supervisor, command = psutil.Process(job._supervisor.pid), psutil.Process(job._watch.processes["algo-1"])
        keeper = command.parent()
        suspend(keeper)
        job.signal(signal.SIGTERM)
        assert job.first_exit(SECONDS) == ("algo-2", 7)
        open_gate(pipe)
        await_status(command, psutil.STATUS_ZOMBIE)
        suspend(supervisor)
        keeper.resume()
        keeper.wait()
        supervisor.resume()
        assert job.wait(SECONDS) == {"algo-1": 3, "algo-2": 7}
        assert job.lost == set()


def test_a_supervisor_that_is_killed_before_a_signal_is_read_loses_its_hosts(tmp_path: Path):
    with Job(tmp_path, FOREVER, FOREVER) as job:
        job.line(), job.line()
        supervisor = psutil.Process(job._supervisor.pid)
        suspend(supervisor)
        job.signal(signal.SIGTERM)
        supervisor.kill()
        assert job.wait(SECONDS) == {"algo-1": -9, "algo-2": -9}
        assert job.lost == {"algo-1", "algo-2"}


def test_the_toolkit_counts_the_gpus_of_the_plan(tmp_path: Path):
    program = "from sagemaker_training.environment import num_gpus; print(num_gpus())"
    write_stand_ins(tmp_path / "algo-1" / "devices", "ml.p4d.24xlarge", 8)
    write_stand_ins(tmp_path / "algo-2" / "devices", "ml.c5.xlarge", 0)
    assert sorted(said(tmp_path, program, program)) == [("algo-1", "8"), ("algo-2", "0")]


def test_a_host_that_cannot_be_started_is_named_and_nothing_is_left(tmp_path: Path):
    before = psutil.Process().children()
    job = Job(tmp_path, FOREVER, FOREVER, working_directory="/usr/nowhere")
    with pytest.raises(HostError, match=r"algo-\d could not be started: .*Read-only file system: '/usr/nowhere'"):
        job.start()
    assert psutil.Process().children() == before


def test_closing_leaves_no_process(tmp_path: Path):
    before = psutil.Process().children(recursive=True)
    with Job(tmp_path, FOREVER, FOREVER) as job:
        job.line(), job.line()
        processes = [process for process in psutil.Process().children(recursive=True) if process not in before]
    assert len(processes) >= 6
    assert [process for process in processes if process.is_running()] == []


def test_closing_ends_the_wait_of_another_thread(tmp_path: Path):
    with Job(tmp_path, FOREVER) as job:
        codes: queue.Queue[dict[str, int] | None] = queue.Queue()
        waiting = threading.Thread(target=lambda: codes.put(job.wait()))
        waiting.start()
    assert codes.get(timeout=SECONDS) == {"algo-1": -9}
    waiting.join()


def test_closing_twice_is_closing_once(tmp_path: Path):
    with Job(tmp_path, FOREVER) as job:
        job.close()


def test_no_mount_is_ever_seen_outside(tmp_path: Path):
    before = Path("/proc/self/mounts").read_text()
    with Job(tmp_path, FOREVER) as job:
        job.line()
        assert Path("/proc/self/mounts").read_text() == before
    assert sorted(path.name for path in (tmp_path / "algo-1").iterdir()) == ["home", "opt", "tmp"]


ACCOUNT = """
import os, sys, threading
from pathlib import Path
from sagemaker_local_account.runtime.pod import Pod
from sagemaker_local_account.runtime.spec import ContainerSpec, PodSpec

folder = Path(sys.argv[1])
(folder / "image").mkdir()
def host(number):
    return ContainerSpec(
        f"algo-{number}", None, "ml.m5.large", 2, f"10.0.0.{number}", 0, folder / f"algo-{number}", folder / "image",
        Path(sys.prefix), {"PATH": "/usr/bin:/bin"}, ("sh", "-c", sys.argv[2]), "/",
    )
job = Pod(PodSpec("job", (host(1), host(2)), 9, folder), on_line=lambda name, line: print(line, flush=True))
job.start()
print(job.wait(), flush=True)
job.close()
"""


def test_nothing_outlives_an_account_that_is_killed(tmp_path: Path):
    command = [sys.executable, "-c", ACCOUNT, str(tmp_path), "sleep 1000 & echo running; wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as account:
        try:
            assert account.stdout is not None
            assert [account.stdout.readline(), account.stdout.readline()] == ["running\n", "running\n"]
            processes = psutil.Process(account.pid).children(recursive=True)
        finally:
            account.kill()
    # The supervisor, its network, and for each host a keeper and the command's two.
    assert len(processes) == 8
    _, alive = psutil.wait_procs(processes, timeout=SECONDS)
    assert alive == []


# An ordinary user may be unable to read the interpreter's folder, so it is shown to them at another place.
AS_NOBODY = """
import ctypes, os, sys
folder, base, package, account = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x20000) == 0
assert libc.mount(b"none", b"/", None, 16384 | (1 << 18), None) == 0
for source, name in ((base, "python"), (package, "package")):
    os.mkdir(f"{folder}/{name}")
    assert libc.mount(source.encode(), f"{folder}/{name}".encode(), None, 4096 | 16384, None) == 0
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
os.environ["PYTHONPATH"] = f"{folder}/package"
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
python = f"{folder}/python/bin/python{sys.version_info.major}.{sys.version_info.minor}"
os.execv(python, [python, "-c", account, f"{folder}/state", "id -u; hostname"])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests here have run as an ordinary user")
def test_an_ordinary_user_may_run_hosts_and_is_root_in_there():
    import sagemaker_local_account

    package = Path(sagemaker_local_account.__file__).parent.parent
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "state").mkdir()
        os.chown(Path(folder) / "state", 65534, 65534)
        result = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, folder, sys.base_prefix, str(package), ACCOUNT],
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    assert result.stderr == ""
    assert sorted(result.stdout.splitlines()) == ["0", "0", "algo-1", "algo-2", "{'algo-1': 0, 'algo-2': 0}"]


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("user_namespaces", "`sudo sysctl user.max_user_namespaces=10000` would allow it"),
        (
            "net_namespaces",
            "no disk is full: a limit of namespaces is reached, of which each host has one of each kind: ",
        ),
    ],
)
def test_a_machine_that_refuses_namespaces_says_so(limit: str, said: str):
    program = (
        "from sagemaker_local_account.runtime.namespace_check import namespaces_refused; print(namespaces_refused())"
    )
    shell = f'echo 0 > /proc/sys/user/max_{limit}; exec "$0" -c "$1"'
    result = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", shell, sys.executable, program],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert "could not be started" in result.stdout
    assert said in result.stdout
