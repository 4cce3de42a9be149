"""The state of the machine, from files like those of /proc and /sys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nightly_runners.hostnoise import HostNoise, changes_between, host_noise

QUIET = HostNoise(
    load=0.5, cpus=4, governors=("performance",), clock_mhz=3000.0, temperature_c=50.0, throttled=2
)


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_whole_machine_is_read(tmp_path: Path) -> None:
    proc, system = tmp_path / "proc", tmp_path / "sys"
    write(proc, loadavg="1.25 0.50 0.10 2/300 4242\n")
    write(proc, cpuinfo="processor\t: 0\ncpu MHz\t\t: 9.0\n\nprocessor\t: 1\ncpu MHz\t\t: 9.0\n")
    for number, khz in enumerate((2_000_000, 3_000_000)):
        cpu = f"devices/system/cpu/cpu{number}"
        write(system, **{f"{cpu}/cpufreq/scaling_cur_freq": f"{khz}\n"})
        write(system, **{f"{cpu}/cpufreq/scaling_governor": "powersave\n"})
        write(system, **{f"{cpu}/thermal_throttle/core_throttle_count": f"{number}\n"})
    write(system, class__thermal__thermal_zone0__temp="41000\n")
    write(system, class__hwmon__hwmon1__temp1_input="63500\n")
    assert host_noise(proc, system) == HostNoise(
        load=1.25, cpus=2, governors=("powersave",), clock_mhz=2500.0, temperature_c=63.5, throttled=1
    )


def test_clocks_come_from_cpuinfo_where_there_is_no_cpufreq(tmp_path: Path) -> None:
    write(tmp_path, cpuinfo="processor\t: 0\ncpu MHz\t\t: 2400.5\nprocessor\t: 1\ncpu MHz\t\t: 2600.5\n")
    assert host_noise(tmp_path, tmp_path) == HostNoise(cpus=2, clock_mhz=2500.5)


def test_what_is_not_there_is_unknown(tmp_path: Path) -> None:
    assert host_noise(tmp_path, tmp_path) == HostNoise()


def test_what_is_no_number_is_unknown(tmp_path: Path) -> None:
    write(tmp_path, loadavg="busy\n", class__thermal__thermal_zone0__temp="\n", cpuinfo="cpu MHz : ?\n")
    (tmp_path / "class/hwmon/hwmon0/temp1_input").mkdir(parents=True)
    assert host_noise(tmp_path, tmp_path) == HostNoise()


def test_this_machine_is_read_without_errors() -> None:
    noise = host_noise()
    assert noise.load is None or noise.load >= 0


@pytest.mark.parametrize(
    ("moved", "sentence"),
    [
        (replace(QUIET, load=2.5), "The load went from 0.5 to 2.5 on 4 CPUs."),
        (replace(QUIET, cpus=2), "The number of CPUs online went from 4 to 2."),
        (
            replace(QUIET, governors=("performance", "powersave")),
            "The CPU governor changed from performance to performance, powersave.",
        ),
        (replace(QUIET, clock_mhz=2000.0), "The CPU clock went from 3000 to 2000 MHz."),
        (replace(QUIET, temperature_c=85.0), "The temperature went from 50 to 85 °C."),
        (replace(QUIET, throttled=5), "The CPUs slowed down for heat (their counts went from 2 to 5)."),
    ],
)
def test_what_moved_is_said(moved: HostNoise, sentence: str) -> None:
    assert changes_between(QUIET, moved) == [sentence]


def test_everyday_differences_are_not_worth_a_word() -> None:
    near = replace(QUIET, load=1.2, clock_mhz=3200.0, temperature_c=58.0)
    assert changes_between(QUIET, near) == []
    assert changes_between(QUIET, QUIET) == []


def test_what_is_unknown_did_not_move() -> None:
    assert changes_between(QUIET, HostNoise()) == []
    assert changes_between(HostNoise(), QUIET) == []
