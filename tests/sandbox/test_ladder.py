"""The report of what this host can contain, and the socket filter instruction by instruction."""

import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from actors.sandbox import SandboxError, launcher, open_sandbox, probe
from actors.sandbox.ladder import LADDER, probe_rung
from actors.sandbox.run import FAMILIES

ROWS = [
    "network",
    "host loopback",
    "unix sockets",
    "other sockets",
    "files outside",
    "kernel objects",
    "memory",
    "disk",
    "processes",
    "survivors",
    "signals",
]


def test_report_names_the_first_rung_that_holds(tmp_path: Path) -> None:
    report = probe(tmp_path)
    assert list(report.matrix) == ROWS
    assert all(row.how for row in report.isolation)
    tried = [rung.name for rung in report.rungs]
    if report.kind == "none":
        assert tried[-4:] == ["docker", "podman", "sandbox-exec", "none"]
        assert report.remedy
    else:
        assert tried[-1] == report.kind
        assert report.rungs[-1].offered
        contained = [report.matrix[row] for row in ROWS if row not in ("memory", "processes")]
        assert contained.count("enforced") >= 5
    assert [rung.offered for rung in report.rungs[:-1]] == [False] * (len(tried) - 1)
    assert list(tmp_path.iterdir()) == [], "the probe leaves nothing behind"


def test_rungs_whose_parts_work_here_are_offered(tmp_path: Path) -> None:
    """A rung that we broke ourselves must not pass for one that the host does not have."""

    def works(*command: str) -> bool:
        if shutil.which(command[0]) is None:
            return False
        return subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0

    release = tuple(int(part) for part in os.uname().release.split(".")[:2])
    parts = {
        "bubblewrap": works(
            "bwrap", "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "--proc", "/proc"
        ),
        "namespaces": release >= (5, 12)
        and works("unshare", "--map-root-user", "--pid", "--fork", "--net", "--mount-proc"),
        "landlock": launcher.landlock_version() >= 3 and os.uname().machine in launcher.MACHINES,
    }
    found = {kind: probe_rung(kind, tmp_path) for kind in LADDER}
    assert {kind: rung.offered for kind, rung in found.items()} == parts, found


def test_none_is_never_offered_and_opened_only_on_purpose(tmp_path: Path) -> None:
    rung = probe_rung("none", tmp_path)
    assert not rung.offered
    assert {row.name: row.state for row in rung.isolation}["host loopback"] == "not enforced"
    assert "files outside" in rung.reason
    with pytest.raises(SandboxError, match="--unsafe-no-sandbox"):
        open_sandbox("none", tmp_path)
    assert open_sandbox("none", tmp_path, unsafe=True).kind == "none"


def test_host_without_any_rung_gets_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    report = probe(tmp_path, ("bubblewrap",))
    assert report.kind == "none"
    assert [rung.reason for rung in report.rungs[:2]] == [
        "the program bwrap is not installed",
        "not offered by this version (not installed here)",
    ]
    assert "bubblewrap" in report.remedy


ALLOW, KILL, REFUSE, ABSENT = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026


def decide(program: bytes, arch: int, number: int, *arguments: int) -> int:
    """Run a classic BPF program on one ``struct seccomp_data``, as the kernel does."""
    args = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("=IIQ6Q", number, arch, 0, *args)
    instructions = list(struct.iter_unpack("=HBBI", program))
    accumulator, at = 0, 0
    while True:
        code, jump_true, jump_false, value = instructions[at]
        at += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, value)
            case 0x15:
                at += jump_true if accumulator == value else jump_false
            case 0x35:
                at += jump_true if accumulator >= value else jump_false
            case 0x54:
                accumulator &= value
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"instruction {code:#x} is not one of the filter's")


CALLS = {
    "x86_64": {"socket": 41, "connect": 42, "socketpair": 53, "sendto": 44, "read": 0,
               "clone": 56, "unshare": 272},
    "aarch64": {"socket": 198, "connect": 203, "socketpair": 199, "sendto": 206, "read": 63,
                "clone": 220, "unshare": 97},
}  # fmt: skip
NO_FAMILY = 0x00050061


@pytest.mark.parametrize("machine", sorted(CALLS))
def test_filter_of_a_run_that_shares_our_network(machine: str) -> None:
    program, arch, calls = (
        launcher.system_call_filter(machine, ()),
        launcher.MACHINES[machine],
        CALLS[machine],
    )
    for family in (1, 2, 10, 16, 17, 40):  # unix, inet, inet6, netlink, packet, vsock
        for kind in (1, 2, 3, 1 | 0o2000000):
            assert decide(program, arch, calls["socket"], family, kind) == REFUSE
    assert decide(program, arch, calls["connect"], 3) == REFUSE
    assert decide(program, arch, 425) == ABSENT  # io_uring_setup
    flags = 0o2000000 | 0o4000  # SOCK_CLOEXEC | SOCK_NONBLOCK
    assert decide(program, arch, calls["socketpair"], 1, 1) == ALLOW
    assert decide(program, arch, calls["socketpair"], 1, 1 | flags) == ALLOW
    for kind in (2, 3, 5, 2 | flags):  # datagram, raw (a datagram too), seqpacket
        assert decide(program, arch, calls["socketpair"], 1, kind) == REFUSE
    assert decide(program, arch, calls["socketpair"], 30, 1) == REFUSE  # TIPC
    assert decide(program, arch, calls["read"], 0) == ALLOW
    assert decide(program, arch, 0x40000000 | calls["socket"], 2, 1) == ABSENT  # x32
    foreign = [known for known in launcher.MACHINES.values() if known != arch]
    for other in (*foreign, 0x40000003):  # 32-bit x86 has its own socketcall
        assert decide(program, other, calls["read"]) == KILL


@pytest.mark.parametrize("machine", sorted(CALLS))
def test_filter_of_a_run_with_its_own_network(machine: str) -> None:
    program = launcher.system_call_filter(machine, FAMILIES)
    arch, calls = launcher.MACHINES[machine], CALLS[machine]
    for kind in (1, 2, 3, 1 | 0o2000000):
        assert [decide(program, arch, calls["socket"], family, kind) for family in FAMILIES] == [
            ALLOW
        ] * len(FAMILIES)
        for family in (0, 17, 29, 30, 31, 38, 40, 42, 44):
            assert decide(program, arch, calls["socket"], family, kind) == NO_FAMILY
            assert decide(program, arch, calls["socketpair"], family, kind) == NO_FAMILY
        assert decide(program, arch, calls["socketpair"], 1, kind) == ALLOW
    assert decide(program, arch, calls["connect"], 3) == ALLOW


@pytest.mark.parametrize("machine", sorted(CALLS))
@pytest.mark.parametrize("families", [(), FAMILIES])
def test_no_filter_lets_a_user_namespace_through(machine: str, families: tuple[int, ...]) -> None:
    program = launcher.system_call_filter(machine, families)
    arch, calls = launcher.MACHINES[machine], CALLS[machine]
    new_user, thread = 0x10000000, 0x3D0F00
    assert decide(program, arch, calls["unshare"], new_user) == REFUSE
    assert decide(program, arch, calls["clone"], new_user | 17) == REFUSE
    assert decide(program, arch, calls["clone"], 17) == ALLOW  # fork
    assert decide(program, arch, calls["clone"], thread) == ALLOW
    assert decide(program, arch, 435, 0) == ABSENT  # clone3
    assert decide(program, arch, 425) == ABSENT  # io_uring_setup
    assert decide(program, arch, 0x40000000 | calls["socket"], 2, 1) == ABSENT  # x32


@pytest.mark.parametrize("machine", sorted(CALLS))
def test_no_filter_lets_a_run_leave_something_in_the_kernel(machine: str) -> None:
    arch, ipc = launcher.MACHINES[machine], launcher.SHARED_IPC[machine].values()
    shared, own = (launcher.system_call_filter(machine, families) for families in ((), FAMILIES))
    for call in launcher.KEPT_BY_THE_KERNEL[machine].values():
        assert decide(shared, arch, call) == decide(own, arch, call) == ABSENT
    assert {decide(shared, arch, call) for call in ipc} == {ABSENT}
    assert {decide(own, arch, call) for call in ipc} == {ALLOW}, "it has a namespace of its own"
