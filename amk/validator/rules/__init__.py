"""The rules, one a module; each opens with its formal statement."""
