"""Tables for a terminal."""


def Lines(header, rows, left=()):
  """Returns the lines of a table.

  Args:
    header: the columns' titles, strings.
    rows: a list of rows, each a string for each column.
    left: the titles of columns of text, set to the left; numbers are set to the right.
  """
  widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
  return ['  '.join(
      cell.ljust(width) if title in left else cell.rjust(width)
      for title, cell, width in zip(header, row, widths)).rstrip() for row in [header, *rows]]


def Names(names):
  """Returns how many names there are and which: '5: conv0 ... block3'."""
  if not names:
    return '0'
  return f'{len(names)}: ' + (names[0] if len(names) == 1 else f'{names[0]} ... {names[-1]}')
