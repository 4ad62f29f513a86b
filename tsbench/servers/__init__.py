"""The operating system's side of a local server: process, control group, user, page cache."""
