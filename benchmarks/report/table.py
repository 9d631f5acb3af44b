"""What was measured, as text; and what is above its limit."""

from collections.abc import Iterator, Sequence

from benchmarks.report.measure import PHONE, Page

LIMIT_BYTES, LIMIT_SECONDS, LIMIT_DEVICES = 3e6, 2.0, 1024
"""A page of at most so many devices is smaller than that and shown within that time."""

HEADINGS = (
    *("plan", "devices", "stages", "micro-batches", "size", "elements", "written", "first paint", "shown"),
    *("all painted", f"shown, {PHONE}x slower"),
)


def cells(page: Page) -> tuple[str, ...]:
    """A row of the table."""
    seconds = (page.writing, page.first_paint, page.shown, page.whole, page.phone)
    counts = (page.devices, page.stages, page.micro_batches)
    return (
        *(page.name, *(f"{count:,}" for count in counts), f"{page.size / 1e3:,.0f} kB", f"{page.elements:,}"),
        *(f"{each:.2f} s" for each in seconds),
    )


def table(pages: Sequence[Page]) -> str:
    """Markdown, with columns that align."""
    rows = [HEADINGS, *map(cells, pages)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]

    def line(row: Sequence[str]) -> str:
        first, *rest = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        return f"| {row[0].ljust(len(first))} | {' | '.join(rest)} |"

    rule = f"|{'-' * (widths[0] + 2)}|{'|'.join('-' * (width + 1) + ':' for width in widths[1:])}|"
    return "\n".join([line(rows[0]), rule, *map(line, rows[1:])])


def broken(page: Page) -> Iterator[str]:
    """The limits that a page does not keep."""
    if page.devices > LIMIT_DEVICES:
        return
    if page.size >= LIMIT_BYTES:
        yield f"{page.name}: {page.size / 1e6:.1f} MB, {LIMIT_BYTES / 1e6:g} MB is the limit"
    for told, seconds in (("shown", page.shown), ("all painted", page.whole)):
        if seconds > LIMIT_SECONDS:
            yield f"{page.name}: {told} after {seconds:.2f} s, {LIMIT_SECONDS:g} s is the limit"
