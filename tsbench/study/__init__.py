"""Which runs to make: the cells of a scenario in one result set, and the findings of a published study."""
