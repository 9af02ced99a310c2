"""What runs in a kernel's process, and what starts it."""
