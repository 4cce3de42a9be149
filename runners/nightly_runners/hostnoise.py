"""What else the machine was doing while a check was measured: load, governor, clocks, temperature.

Linux files only; what isn't there or can't be read (containers, virtual machines, other systems) is None.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# Below these a difference is everyday: not worth a warning.
_LOAD_PER_CPU = 0.25
_CLOCK = 0.10
_DEGREES = 10.0


@dataclass(frozen=True, slots=True)
class HostNoise:
    """The state of the machine at one moment.

    ``load`` is the load average of the last minute, ``cpus`` how many are online. ``governors`` are the
    names in use, sorted. ``clock_mhz`` is the mean of the CPUs' present clocks, ``temperature_c`` the
    highest of the sensors. ``throttled`` counts how often the CPUs slowed down for heat since boot.
    """

    load: float | None = None
    cpus: int | None = None
    governors: tuple[str, ...] | None = None
    clock_mhz: float | None = None
    temperature_c: float | None = None
    throttled: int | None = None


def host_noise(proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> HostNoise:
    """Read the state of the machine now."""
    cpu = sys / "devices/system/cpu"
    cpuinfo = _read(proc / "cpuinfo") or ""
    clocks_mhz = [khz / 1000 for khz in _numbers(cpu.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"))] or [
        clock for line in cpuinfo.splitlines() if line.startswith("cpu MHz") and (clock := _float(line))
    ]
    temperatures = [
        *_numbers(sys.glob("class/thermal/thermal_zone*/temp")),
        *_numbers(sys.glob("class/hwmon/hwmon*/temp*_input")),
    ]
    throttled = _numbers(cpu.glob("cpu[0-9]*/thermal_throttle/core_throttle_count"))
    governors = {_read(path) for path in cpu.glob("cpu[0-9]*/cpufreq/scaling_governor")} - {None}
    words = (_read(proc / "loadavg") or "").split()
    return HostNoise(
        load=_float(words[0]) if words else None,
        cpus=sum(line.startswith("processor") for line in cpuinfo.splitlines()) or None,
        governors=tuple(sorted(str(name) for name in governors)) or None,
        clock_mhz=sum(clocks_mhz) / len(clocks_mhz) if clocks_mhz else None,
        temperature_c=max(temperatures) / 1000 if temperatures else None,
        throttled=int(sum(throttled)) if throttled else None,
    )


def changes_between(before: HostNoise, after: HostNoise) -> list[str]:
    """Say in plain sentences what moved enough to matter for a measurement; what is unknown didn't move."""
    cpus = after.cpus or before.cpus or 1
    changes = []
    if pair := _apart(before.load, after.load, _LOAD_PER_CPU * cpus):
        changes.append(f"The load went from {pair[0]:.1f} to {pair[1]:.1f} on {cpus} CPUs.")
    if pair := _apart(before.cpus, after.cpus, 0):
        changes.append(f"The number of CPUs online went from {pair[0]} to {pair[1]}.")
    if before.governors and after.governors and before.governors != after.governors:
        old, new = (", ".join(names) for names in (before.governors, after.governors))
        changes.append(f"The CPU governor changed from {old} to {new}.")
    if pair := _apart(before.clock_mhz, after.clock_mhz, _CLOCK * (before.clock_mhz or 0)):
        changes.append(f"The CPU clock went from {pair[0]:.0f} to {pair[1]:.0f} MHz.")
    if pair := _apart(before.temperature_c, after.temperature_c, _DEGREES):
        changes.append(f"The temperature went from {pair[0]:.0f} to {pair[1]:.0f} °C.")
    if pair := _apart(before.throttled, after.throttled, 0):
        changes.append(f"The CPUs slowed down for heat (their counts went from {pair[0]} to {pair[1]}).")
    return changes


def _apart(before: float | None, after: float | None, limit: float) -> tuple[float, float] | None:
    """Return both values if they are known and differ by more than ``limit``."""
    if before is None or after is None or abs(after - before) <= limit:
        return None
    return before, after


def _numbers(paths: Iterable[Path]) -> list[float]:
    return [number for path in paths if (number := _float(_read(path) or "")) is not None]


def _float(text: str) -> float | None:
    """Return the number that a file holds, or that follows the colon of a line."""
    try:
        return float(text.rpartition(":")[2])
    except ValueError:
        return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
