"""What can be said about a native file without running it: one module for each family of findings."""
