"""Local servers on the operating system's side: processes, control groups, users, page cache."""
