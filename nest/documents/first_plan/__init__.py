"""The first plan: the simplest one hardly slower than the fastest (docs/explanation/first-plan.md)."""

from nest.documents.first_plan.order import LIKELY as LIKELY
from nest.documents.first_plan.order import ORDER as ORDER
from nest.documents.first_plan.order import STRUCTURE as STRUCTURE
from nest.documents.first_plan.order import Plan as Plan
from nest.documents.first_plan.search import COSTS_LITTLE as COSTS_LITTLE
from nest.documents.first_plan.search import with_alternatives as with_alternatives
from nest.documents.first_plan.search import with_first_plan as with_first_plan
