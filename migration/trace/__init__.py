"""What a run of the program shows about types: a probe inside its processes, merged into one JSON file."""
