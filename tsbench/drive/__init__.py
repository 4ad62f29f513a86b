"""The only package that imports locust or gevent."""
