"""Wheel facts, index state, pages, views and PyPI publishing."""
