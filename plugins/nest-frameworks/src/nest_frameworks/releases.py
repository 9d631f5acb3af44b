"""Releases of frameworks as data: which ones nest writes for and reads, and how they differ (`releases.toml`)."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from attrs import frozen

from nest.errors import InputError


@frozen
class Change:
    """One difference between releases of a framework.

    Attributes:
        since: the first release with it.
        kind: `default`, `added`, `renamed`, `removed`, `refused` or `value`.
        setting: the flag or key.
        before: what counted earlier: a default, a name, or an accepted value.
        after: the default, or the new value, from then on.
        only: where it counts, and who says so.
    """

    since: str
    kind: str
    setting: str
    before: str | None = None
    after: str | None = None
    only: str = ""


@frozen
class Releases:
    """Releases that an exporter writes for and a reader reads.

    Attributes:
        package: the distribution with these releases.
        releases: the newest first.
        tried: the newest whose own parser took the exports; None: none was tried.
        changes: differences between them.
    """

    package: str
    releases: tuple[str, ...]
    tried: str | None = None
    changes: tuple[Change, ...] = ()

    @property
    def newest(self) -> str:
        """The release that counts where nobody names one."""
        return self.releases[0]

    def named(self, release: str | None) -> str:
        """Return a release by the name that a user gives it, such as 0.19 or 0.19.2; None: the newest.

        Raises:
            InputError: nest knows no such release.
        """
        if release is None:
            return self.newest
        found = next((each for each in self.releases if f"{release}.".startswith(f"{each}.")), None)
        if found is None:
            raise InputError(f"--for {release:.40}: nest knows {self.package} {', '.join(self.releases)}.")
        return found

    def has(self, change: Change, release: str) -> bool:
        """Return whether `change` counts in `release`."""
        return _parts(release) >= _parts(change.since)

    def absent(self, release: str) -> frozenset[str]:
        """Return settings that only later releases have."""
        return frozenset(each.setting for each in self.changes if each.kind == "added" and not self.has(each, release))

    def spelled(self, flags: Mapping[str, Any], release: str) -> dict[str, Any]:
        """Return flags as `release` takes them: without later flags, and earlier values in place of later ones."""
        absent = self.absent(release)
        later = {
            (each.setting, each.after): each.before
            for each in self.changes
            if each.kind == "value" and not self.has(each, release)
        }
        return {
            flag: later[flag, value] if isinstance(value, str) and (flag, value) in later else value
            for flag, value in flags.items()
            if flag not in absent
        }

    def refuses(self, setting: str, value: str, release: str) -> bool:
        """Return whether `release` refuses a value that earlier ones took."""
        said = (each for each in self.changes if (each.kind, each.setting, each.before) == ("refused", setting, value))
        return any(self.has(each, release) for each in said)

    def default(self, setting: str, release: str) -> str:
        """Return the meaning in `release` of a setting that is left out.

        Raises:
            KeyError: its default has not changed.
        """
        for change in self.changes:
            if (change.kind, change.setting) == ("default", setting):
                return str(change.after if self.has(change, release) else change.before)
        raise KeyError(setting)

    def since(self, setting: str, kind: str = "default") -> str:
        """Return the release that changed a setting.

        Raises:
            StopIteration: none did.
        """
        return next(each.since for each in self.changes if (each.kind, each.setting) == (kind, setting))


def _parts(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


@cache
def all_releases() -> Mapping[str, Releases]:
    """Releases by the name of the exporter."""
    text = files("nest_frameworks").joinpath("releases.toml").read_text(encoding="utf-8")
    return {
        name: Releases(
            said["package"],
            tuple(said["releases"]),
            said.get("tried"),
            tuple(Change(**change) for change in said.get("changes", ())),
        )
        for name, said in tomllib.loads(text).items()
    }


def releases_of(name: str) -> Releases:
    """Return the releases of the exporter `name`.

    Raises:
        KeyError: it writes for no framework with releases.
    """
    return all_releases()[name]
