"""Numbers and settings as people read them: ``1.2M tokens``, ``3.4 TFLOP``, ``12 s``."""

from collections.abc import Mapping
from functools import singledispatch


@singledispatch
def html(value: object) -> str | None:
    """What a notebook shows of a value; None: its ``repr``. Registered by :mod:`orchestrator.reporting.notebook`, as
    rooms below that one know nothing of HTML."""
    return None


COUNT_PREFIXES = ("", "k", "M", "B", "T")
FLOP_PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")

UNIT_TITLES = {
    "tokens": "tokens",
    "steps": "steps",
    "flops": "FLOPs",
    "hardware_flops": "hardware FLOPs",
    "device_seconds": "device time",
    "wall_seconds": "time",
    "joules": "energy",
    "usd": "US dollars",
}
"""What a budget unit is called where there is no number beside it."""


def scaled(value: float, prefixes: tuple[str, ...] = COUNT_PREFIXES) -> tuple[str, str]:
    """A number of at most four digits, and its prefix: 1_234_000 is ``("1.2", "M")``."""
    power = 0
    while abs(value) >= 999.5 and power < len(prefixes) - 1:
        value, power = value / 1000, power + 1
    if abs(value) >= 999.5:
        return f"{value * 1000.0**power:.2g}", ""
    if power == 0:
        return f"{value:.3g}", ""
    return f"{value:.{1 if abs(value) < 99.95 else 0}f}", prefixes[power]


def duration(seconds: float) -> str:
    """``12 s``, ``3.4 min``, ``1.2 h`` or ``2.5 d``."""
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"


def quantity(value: float, unit: str) -> str:
    """An amount of a budget unit: ``2.0M tokens``, ``3.4 TFLOP``, ``12 s``."""
    if unit in ("device_seconds", "wall_seconds"):
        return duration(value)
    if unit in ("flops", "hardware_flops", "joules"):
        number, prefix = scaled(value, FLOP_PREFIXES)
        return f"{number} {prefix}{'J' if unit == 'joules' else 'FLOP'}"
    if unit == "usd":
        return f"${value:,.2f}" if value >= 1 else f"${value:.2g}"
    number, prefix = scaled(value)
    return f"{number}{prefix} {unit}"


_LARGE = 1e6


def score(value: float | None) -> str:
    """A yardstick's value, or a dash where there is none yet."""
    if value is None:
        return "–"
    if 0 < abs(value) < 0.0005:
        return f"{value:.1e}"
    return f"{value:.3f}" if abs(value) < _LARGE else f"{value:.3e}"


def difference(value: float | None, interval: tuple[float, float] | None = None, separator: str = " ") -> str:
    """``+0.041 [0.031, 0.052]``, with a digit more where the values are small; a dash where there is none."""
    if value is None:
        return "–"
    low, high = interval or (value, value)
    largest = max(abs(value), abs(low), abs(high))
    form = ".3f" if largest >= 0.01 else ".4f"
    if largest >= _LARGE or 0 < largest < 0.001:
        form = ".1e"
    value += 0.0  # or what is -0.0 would have a sign
    return f"{value:+{form}}" + (f"{separator}[{_bound(low, form)}, {_bound(high, form)}]" if interval else "")


def _bound(value: float, form: str) -> str:
    """Of an interval; on which side of 0 it lies is seen."""
    text = f"{value:{form}}"
    return text if float(text) else f"{value:.0e}" if value else f"{0:{form}}"


def p_value(value: float | None, relation: str = "") -> str:
    """``0.031``, ``0.0498``, ``< 0.001``, or a dash where there is none; before a number the relation."""
    if value is None:
        return "–"
    digits = 3
    while value != 0.05 and float(f"{value:.{digits}f}") == 0.05 and digits < 9:  # on which side of it is seen
        digits += 1
    return "< 0.001" if value < 0.001 else f"{relation}{value:.{digits}f}"


def setting(value: object) -> str:
    """A setting's value, numbers at three digits; null as a study file has it."""
    if value is None:
        return "null"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def exact(value: object) -> str:
    """A setting's value as it can be typed again, with all its digits."""
    return "null" if value is None else str(value)


def settings(configuration: Mapping[str, object], separator: str = " ") -> str:
    """``learning_rate=0.00031 temperature=0.07``; a dash where nothing was searched."""
    return separator.join(f"{name}={setting(value)}" for name, value in configuration.items()) or "–"


def plural(count: int, noun: str) -> str:
    """``1 seed``, ``2 seeds``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def size(num_bytes: float) -> str:
    """``1.2 GB``."""
    number, prefix = scaled(num_bytes, FLOP_PREFIXES)
    return f"{number} {prefix}B"
