"""Pipelines: which steps CI runs for a change, why, and the file that Buildkite gets."""
