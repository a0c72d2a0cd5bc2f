"""Where a class comes apart: clusters of methods with a narrow interface, tried out and put in order."""
