"""What people read: derived figures and tables."""

from nest.report.evaluation import ModelFacts, figures, time_shares
from nest.report.runner_up import describe_runner_up, runner_up_plan
from nest.report.summary import summary
from nest.report.verdict import Verdict, certificate_text, verdict_text

__all__ = [
    "ModelFacts",
    "Verdict",
    "certificate_text",
    "describe_runner_up",
    "figures",
    "runner_up_plan",
    "summary",
    "time_shares",
    "verdict_text",
]
