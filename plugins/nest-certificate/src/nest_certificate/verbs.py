"""Python entry points: `nest.certify` and `nest.compare_certificate`."""

from __future__ import annotations

import gzip
import json
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nest.io import write_text
from nest.public.verbs import INSTALLED, restarted

if TYPE_CHECKING:
    from nest.hooks.registry import Registry
    from nest.public.planning import Source
    from nest.spec import PlanDocument

FURTHER = 1.001
"""Share of the step time up to which candidates are priced: slightly beyond the bound."""


@restarted
def certify(
    plan: Source | PlanDocument,
    *,
    output: str | Path | None = None,
    strict_plugins: bool = False,
    plugins: Registry = INSTALLED,
) -> dict[str, Any]:
    """Prove that no plan of a problem is faster than a plan's lower bound.

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`.
        output: file for the certificate, compressed; None: it is not written.
        strict_plugins: raise on a plug-in error; otherwise its object is disabled with a warning.
        plugins: registered strategies and the like; default: those installed.

    Returns:
        The certificate: `instance`, `plan`, `price` and `lower_bound` (s), `cases`, and `problem`, a digest.

    Raises:
        nest.errors.InputError: the plan cannot be read, or certificates do not cover its problem.
        nest_certificate.proof.NotProved: no rule bounds some case.
    """
    from nest.errors import InputError
    from nest.public.planning import read_plan, solution_of
    from nest.tolerances import AGREEMENT
    from nest_certificate.numbers import decisions_of
    from nest_certificate.proof import NotProved, proof
    from nest_certificate.rules import Refused, Rules

    read = read_plan(plan)
    if read.lower_bound is None or read.batch_time is None:
        raise InputError("the plan has no lower bound; a certificate needs the plan of `nest solve`.")
    claim = read.lower_bound * (1 - AGREEMENT)
    try:
        instance, numbers, digest = formulated(read, plugins)
        decided = decisions_of(instance, solution_of(instance, read))
        price = numbers.price(decided)
        if abs(price - read.batch_time) > AGREEMENT * price:
            raise Refused(f"by the problem's statement the plan takes {price:.6g} s, not {read.batch_time:.6g} s")
        cases = proof(Rules(numbers, claim))
    except (Refused, RecursionError) as error:
        raise NotProved(f"no certificate: {error}.") from error
    certificate = {
        "certificate": 1,
        "problem": digest,
        "lower_bound": claim,
        "price": price,
        "plan": decided,
        "instance": numbers.data,
        "cases": cases,
    }
    if output is not None:
        text = json.dumps(certificate, separators=(",", ":")).encode()
        write_text(Path(output), gzip.compress(text, mtime=0))
    return certificate


@restarted
def compare_certificate(
    plan: Source | PlanDocument,
    certificate: str | Path,
    *,
    strict_plugins: bool = False,
    plugins: Registry = INSTALLED,
) -> list[str]:
    """Compare the instance of a certificate with a fresh formulation of a plan's problem.

    Args:
        plan: a path, a mapping as read from a file, or a `PlanDocument`.
        certificate: file.
        strict_plugins: raise on a plug-in error; otherwise its object is disabled with a warning.
        plugins: registered strategies and the like; default: those installed.

    Returns:
        A sentence for each part that differs; none: the certificate is of this problem.

    Raises:
        nest.errors.InputError: a file cannot be read.
    """
    from nest.errors import InputError
    from nest.public.planning import read_plan
    from nest_certificate.rules import Refused, read

    try:
        written = read(certificate)
        parts, digest = dict(written["instance"]), written["problem"]
    except (OSError, ValueError, KeyError, TypeError, Refused) as error:
        raise InputError(f"{certificate} is no certificate; write one with `nest certify`.") from error
    try:
        _, numbers, fresh = formulated(read_plan(plan), plugins)
    except Refused as error:
        raise InputError(f"this problem has no certificate: {error}.") from error
    # Tables hold what the proof needs, and are made again for that.
    for own, other in zip(numbers.data["schedules"], parts["schedules"], strict=False):
        for key, table in other["tables"].items():
            if key in own["tables"] and table and "order" in table:
                own["tables"][key]["order"]  # Made when asked for.
    costs = numbers.data["collectives"]
    if costs is not None:
        numbers.data["collectives"] = {key: costs[key] for key in parts.get("collectives") or () if key in costs}
    made = json.loads(json.dumps(numbers.data))
    found = [f"the certificate's {name} are not this problem's." for name in made if made[name] != parts.get(name)]
    return [*(["the certificate's digest is of another problem."] if digest != fresh else []), *found]


def formulated(plan: PlanDocument, plugins: Registry) -> tuple[Any, Any, str]:
    """Instance of a plan's problem, its numbers, and the digest of the problem."""
    from nest.public.planning import Wanted, carried_problem, formulate
    from nest_certificate.allowed import allowed_choices
    from nest_certificate.numbers import numbers_of
    from nest_certificate.rules import Instance

    problem = carried_problem(plan, plugins)
    limit = FURTHER * plan.lower_bound if plan.lower_bound is not None else float("inf")
    instance, _ = formulate(problem, plugins, Wanted(step_time_limit=limit))
    numbers = Instance(numbers_of(instance))
    numbers.data["allowed"] = allowed_choices(instance, numbers)
    return instance, numbers, sha256(problem.text.encode()).hexdigest()
