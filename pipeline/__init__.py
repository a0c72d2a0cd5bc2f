"""The pull requests of a migration: each phase of each slice on a branch of its own, with its evidence on one page."""
