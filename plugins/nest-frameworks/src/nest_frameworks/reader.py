"""A built-in plan reader: a module with the function named below, imported when it is asked."""

from importlib import import_module

from attrs import frozen

from nest.deployment import LaunchOptions, Reading
from nest.errors import InputError
from nest.records import Record


@frozen(eq=False, repr=False)
class Reader(Record):
    """A reader of what exporters of its name write, and of what people write for the same framework.

    Attributes:
        name: what people write to choose it.
        summary: one line on what it reads.
        module: name of its module in `nest_frameworks`.
        function: the module's function that reads.
        examples: texts it reads.
        only: the release whose files it reads; None: all that nest knows.
    """

    name: str
    summary: str
    module: str
    function: str
    examples: tuple[str, ...]
    only: str | None = None

    def read(self, text: str, nodes: int | None = None) -> Reading:
        """Read a file."""
        return self.read_launch(text, LaunchOptions(nodes))

    def read_launch(self, text: str, options: LaunchOptions) -> Reading:
        """Read a file, with the user's words on its launch.

        Raises:
            InputError: nest does not read files of the release.
        """
        if options.release is not None:
            from nest_frameworks.releases import releases_of

            if self.only not in (None, releases_of(self.name).named(options.release)):
                raise InputError(f"--for {options.release}: nest reads files of {self.name} {self.only} alone.")
        reading: Reading = getattr(import_module(f"nest_frameworks.{self.module}"), self.function)(text, options)
        return reading
