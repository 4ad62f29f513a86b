"""A fast HTTP/1.1 client on non-blocking sockets; it depends neither on Locust nor on any database."""
