"""What is left of the monolith, commit by commit: read from git, measured in memory, shown as table and chart."""
