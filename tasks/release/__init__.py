"""Channels: what one release command composes from wheels and images."""
