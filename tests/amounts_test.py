"""Amounts as people write them."""

import pytest

from lingvo_gpipe import amounts


@pytest.mark.parametrize('text, value', [
    ('16GB', 16e9), ('16 gb', 16e9), ('16GiB', 16 * 2**30), ('1.5T', 1.5e12), ('12', 12.), ('2e9', 2e9),
    ('1.5e3kB', 1.5e6)])
def testParse(text, value):
  assert amounts.Parse(text, 'B') == value


@pytest.mark.parametrize('text', ['', 'GB', '-1GB', '0', '1XB', '1.2.3GB', '16GW'])
def testWhatIsNoAmount(text):
  with pytest.raises(ValueError, match='is not an amount above zero in B'):
    amounts.Parse(text, 'B')


@pytest.mark.parametrize('value, text', [
    (0, '0 B'), (999, '999 B'), (1000, '1 kB'), (1534e6, '1.53 GB'), (999.6e6, '1000 MB'), (2.5, '2.5 B')])
def testFormat(value, text):
  assert amounts.Format(value, 'B') == text


@pytest.mark.parametrize('value, text', [
    (0, '0 s'), (12.54, '12.5 s'), (0.00321, '3.21 ms'), (2e-5, '20 us')])
def testFormatSeconds(value, text):
  assert amounts.FormatSeconds(value) == text
