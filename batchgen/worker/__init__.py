"""What has been taken out of `BatchGenWorker`, slice by slice, and what was written by hand beside it."""
