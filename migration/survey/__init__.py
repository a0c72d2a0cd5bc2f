"""Looking at a class before anything moves."""
