# SPDX-License-Identifier: Apache-2.0
"""Rehearse: predict one training step of a large model on GPUs that you describe. docs/python.md."""
from ._core import version as __version__
from .answers import (Check, Explanation, Plan, Prediction, Schedule, Search, check, explain, plan, schedule, search,
                      simulate)
from .asking import Answer, RehearseError, ask
from .pictures import Svg
from .reports import ExplainReport, FoundPlan, PlanReport, PredictionReport, SearchReport
from .traces import Trace, compare

__all__ = ["Answer", "Check", "ExplainReport", "Explanation", "FoundPlan", "Plan", "PlanReport", "Prediction",
           "PredictionReport", "RehearseError", "Schedule", "Search", "SearchReport", "Svg", "Trace", "__version__",
           "ask", "check", "compare", "explain", "plan", "schedule", "search", "simulate"]
