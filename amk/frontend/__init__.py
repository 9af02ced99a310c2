"""The way in: a checkpoint is found and checked, one decode step of its model is traced, and recognised as a graph."""
