"""The wild job: public packages on which `migrate` is tried, and what came of it."""
