"""What limits say, on trees of files as systems have them."""

import resource
from collections.abc import Callable, Mapping

import pytest

from clearhead.machine.memory import MemoryLimit, memory_limits

Make = Callable[[Mapping[str, str]], list[MemoryLimit]]
MACHINE = {"proc/meminfo": "MemTotal: 9000000 kB\nMemAvailable:    3000 kB\n"}
FREE = 3_072_000
V2 = "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
CPU = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
UNIFIED = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
TOP = "sys/fs/cgroup"


@pytest.fixture
def found(tmp_path, monkeypatch) -> Make:
    """What is left on a system of these files."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    def made(files: Mapping[str, str]) -> list[MemoryLimit]:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text, encoding="utf-8")
        return memory_limits(tmp_path)

    return made


def v2(folder: str, *, maximum: str = "max", high: str = "max", current: int = 0, stat: str = "") -> dict[str, str]:
    place = f"{TOP}/{folder}".rstrip("/")
    files = {"max": maximum, "high": high, "current": f"{current}", "stat": stat}
    return {f"{place}/memory.{name}": f"{text}\n" for name, text in files.items()}


def v1(folder: str, *, limit: int, usage: int = 0, stat: str = "") -> dict[str, str]:
    place = f"{TOP}/memory/{folder}".rstrip("/")
    return {
        f"{place}/memory.limit_in_bytes": f"{limit}\n",
        f"{place}/memory.usage_in_bytes": f"{usage}\n",
        f"{place}/memory.stat": stat,
    }


def process(groups: str, mounts: str) -> dict[str, str]:
    return {**MACHINE, "proc/self/cgroup": groups, "proc/self/mountinfo": mounts}


def test_a_system_that_says_nothing(found: Make):
    assert found({}) == []


def test_a_machine_without_groups(found: Make):
    assert found(MACHINE) == [MemoryLimit(FREE, "of free memory")]


JOB = process("0::/batch.slice/job 7.scope\n", V2)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (JOB, FREE),
        (JOB | v2("batch.slice/job 7.scope"), FREE),
        # The own group's limit, one around it, and the smallest of several.
        (JOB | v2("batch.slice/job 7.scope", maximum="2000000", current=1_500_000), 500_000),
        (JOB | v2("batch.slice/job 7.scope") | v2("batch.slice", maximum="700000", current=100_000), 600_000),
        (JOB | v2("batch.slice/job 7.scope", maximum="900000") | v2("batch.slice", maximum="800000"), 800_000),
        (JOB | v2("batch.slice/job 7.scope", maximum="800000") | v2("batch.slice", maximum="900000"), 800_000),
        (JOB | v2("batch.slice/job 7.scope", high="400000", maximum="900000"), 400_000),
        # Caches of files are given back, shared memory is not.
        (
            JOB
            | v2(
                "batch.slice/job 7.scope",
                maximum="2000000",
                current=1_500_000,
                stat="anon 1\nactive_file 200000\ninactive_file 100000\nslab_reclaimable 7\nshmem 9\nfile 900000\n",
            ),
            800_007,
        ),
        (JOB | v2("batch.slice/job 7.scope", maximum="10", current=30), 0),
        # A group beside it is none of its own.
        (JOB | v2("batch.slice/job 7.scope") | v2("batch.slice/job", maximum="10"), FREE),
        # A container's own view: its group is the top of what is mounted, by whatever name it has outside.
        (process("0::/\n", V2) | v2("", maximum="5000"), 5000),
        (process("0::/docker/9f\n", V2.replace(" / /sys", " /docker/9f /sys")) | v2("", maximum="5000"), 5000),
        (process("0::/docker/9f/in\n", V2.replace(" / /sys", " /docker/9f /sys")) | v2("in", maximum="50"), 50),
        # Paths that lead nowhere here: the closest group that can be seen is the one that is mounted.
        (process("0::/docker/9f\n", V2) | v2("", maximum="5000"), 5000),
        (process("0::/../../job\n", V2) | v2("", maximum="5000"), 5000),
        (process("0::/docker/9f\n", V2.replace(" / /sys", " /elsewhere /sys")) | v2("", maximum="5000"), 5000),
        (process("0::/gone (deleted)\n", V2) | v2("gone", maximum="5000"), 5000),
        # A mount of somebody else's group is not taken for one's own.
        (
            process("0::/job\n", "50 1 0:28 /other /sys/fs/cgroup/x rw - cgroup2 cgroup2 rw\n" + V2)
            | v2("job", maximum="900000")
            | v2("x", maximum="10"),
            900_000,
        ),
        # A place with a space in its name.
        (
            process("0::/\n", V2.replace("/sys/fs/cgroup", "/sys/fs/cgroup/a\\040b")) | v2("a b", maximum="5000"),
            5000,
        ),
        # Lines that are not as they should be.
        (process("nonsense\n0::\n", "31\n - \n" + V2) | v2("", maximum="12x"), FREE),
    ],
)
def test_version_2(files: dict[str, str], expected: int, found: Make):
    assert found(files)[0].n_bytes == expected


V1_JOB = process("9:name=systemd:/job\n4:memory,hugetlb:/slurm/job_1\n1:cpu:/\n0::/user.slice\n", CPU + V1 + UNIFIED)
UNLIMITED = 9_223_372_036_854_771_712


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (V1_JOB | v1("slurm/job_1", limit=UNLIMITED), FREE),
        (V1_JOB | v1("slurm/job_1", limit=1_000_000, usage=600_000), 400_000),
        (
            V1_JOB | v1("slurm/job_1", limit=1_000_000, usage=600_000, stat="cache 7\ntotal_inactive_file 5\n"),
            400_005,
        ),
        (V1_JOB | v1("slurm/job_1", limit=UNLIMITED) | v1("slurm", limit=30), 30),
        (V1_JOB | v1("", limit=40), 40),
        # A machine with both: whichever has the memory controller sets the limit.
        (V1_JOB | v1("slurm/job_1", limit=UNLIMITED) | v2("unified/user.slice", maximum="50"), 50),
    ],
)
def test_version_1_and_both(files: dict[str, str], expected: int, found: Make):
    assert found(files)[0].n_bytes == expected


def test_a_limit_names_its_file(found: Make):
    room = found(JOB | v2("batch.slice/job 7.scope", high="400000"))[0]
    assert str(room) == "0.4 MB that the control group leaves (/sys/fs/cgroup/batch.slice/job 7.scope/memory.high)"


@pytest.mark.parametrize(("kind", "taken", "option"), [("RLIMIT_AS", 100, "-v"), ("RLIMIT_DATA", 40, "-d")])
def test_limits_of_addresses(kind: str, taken: int, option: str, found: Make, monkeypatch):
    page, infinity = resource.getpagesize(), resource.RLIM_INFINITY
    limited = getattr(resource, kind)
    files = MACHINE | {"proc/self/statm": "100 50 20 1 0 40 0\n"}
    for pages, left in ((taken + 3, 3), (taken - 1, 0)):
        monkeypatch.setattr(
            resource, "getrlimit", lambda k, n=pages * page: (n if k == limited else infinity, infinity)
        )
        room = found(files)[0]
        assert (room.n_bytes, room.counts_mapped) == (left * page, True)
        assert str(room).endswith(f" that `ulimit {option}` leaves")


def test_this_machine_has_room():
    assert all(room.n_bytes >= 0 for room in memory_limits())
