"""For planners that shard operators one by one: the cheapest shardings of a graph, by an integer program."""

from nest_cpsat.sharding import Resharding, cheapest_shardings

__all__ = ["Resharding", "cheapest_shardings"]
