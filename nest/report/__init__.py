"""What people read: derived figures and tables."""

from nest.report.evaluation import ModelFacts, figures, time_shares
from nest.report.runner_up import describe_runner_up
from nest.report.summary import summary

__all__ = ["ModelFacts", "describe_runner_up", "figures", "summary", "time_shares"]
