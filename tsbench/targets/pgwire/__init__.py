"""PostgreSQL's protocol by psycopg, for all databases that speak it: connections, log-ins, and the base of sessions."""
