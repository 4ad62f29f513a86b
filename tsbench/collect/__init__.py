"""What the host and the server did meanwhile."""
