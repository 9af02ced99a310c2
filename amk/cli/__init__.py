"""The command line: one thin file a subcommand."""
