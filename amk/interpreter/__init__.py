"""The reference machine: runs any Schedule on the CPU, in any legal order, with torch semantics per task kind."""
