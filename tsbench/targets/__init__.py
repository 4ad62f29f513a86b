"""One package or module per database; `registry` lists them."""
