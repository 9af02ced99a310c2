"""Search over schedules: the space, the cost model, the loop and its journal."""
