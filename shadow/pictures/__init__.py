"""What a run looked like: gathered while it goes on, drawn for the report. Imports neither torch nor batchgen."""
