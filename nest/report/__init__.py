"""What people read: derived figures and tables."""

from nest.report.plan_summary import ModelFacts, figures, time_shares
from nest.report.runner_up import decided_plan, decisions_of, describe_runner_up, label
from nest.report.text.summary import summary
from nest.report.text.verdict import Verdict, certificate_text, verdict_text

__all__ = [
    "ModelFacts",
    "Verdict",
    "certificate_text",
    "decided_plan",
    "decisions_of",
    "describe_runner_up",
    "figures",
    "label",
    "summary",
    "time_shares",
    "verdict_text",
]
