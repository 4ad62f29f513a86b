"""A lean HTTP/1.1 client on non-blocking sockets; knows neither Locust nor any database."""
