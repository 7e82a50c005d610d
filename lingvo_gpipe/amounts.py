"""Amounts as people write them: 16GB, 1.5 TFLOPs, 3.2 ms."""

import re

_DECIMAL = {'': 1, 'k': 10**3, 'm': 10**6, 'g': 10**9, 't': 10**12, 'p': 10**15}
_BINARY = {'ki': 2**10, 'mi': 2**20, 'gi': 2**30, 'ti': 2**40}
_PREFIXES = ('', 'k', 'M', 'G', 'T', 'P', 'E')


def Parse(text, unit):
  """The number that a text means.

  Args:
    text: A number, with a prefix and the unit or without: 16GB, 16GiB, 16e9,
      12.5T. Prefixes are decimal (G is 10^9) unless they say otherwise (Gi is
      2^30).
    unit: What may stand behind it, such as B.

  Returns:
    A float.

  Raises:
    ValueError: the text isn't such a number, or isn't above zero.
  """
  match = re.fullmatch(
      r'([\d.]+(?:e[+-]?\d+)?) *([kmgtp]?i?)(?:%s)?' % re.escape(unit.lower()),
      text.strip().lower())
  scale = {**_DECIMAL, **_BINARY}.get(match.group(2)) if match else None
  try:
    value = float(match.group(1)) * scale
  except (AttributeError, TypeError, ValueError):
    value = 0.
  if not value > 0:
    raise ValueError(
        f'{text!r} is not an amount above zero in {unit}; write it as 16G{unit} '
        f'(10^9 {unit}) or 16Gi{unit} (2^30 {unit}).')
  return value


def Format(value, unit):
  """A number for people: 1.53 GB, 12 B, 0.98 TFLOPs."""
  scaled, prefix = float(value), 0
  while abs(scaled) >= 1000 and prefix < len(_PREFIXES) - 1:
    scaled /= 1000
    prefix += 1
  digits = f'{scaled:.3g}' if prefix or scaled != int(scaled) else f'{scaled:.0f}'
  if 'e' in digits:  # 999.6 rounds up to 1e+03.
    digits = f'{scaled:.0f}'
  return f'{digits} {_PREFIXES[prefix]}{unit}'


def FormatSeconds(seconds):
  """A duration for people: 3.21 ms, 12.5 s."""
  if seconds >= 1 or not seconds:
    return f'{seconds:.3g} s'
  if seconds >= 1e-3:
    return f'{seconds * 1e3:.3g} ms'
  return f'{seconds * 1e6:.3g} us'
