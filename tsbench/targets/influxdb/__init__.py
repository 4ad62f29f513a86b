"""The InfluxDB targets: 1.x (`v1`) and 2.x (`v2`), over HTTP."""
