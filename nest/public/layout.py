"""For what commands print: paragraphs and tables in the width of the terminal."""

from nest.report.text.layout import WIDE, Screen, Tone, figures, opening, paragraph, table

__all__ = ["WIDE", "Screen", "Tone", "figures", "opening", "paragraph", "table"]
