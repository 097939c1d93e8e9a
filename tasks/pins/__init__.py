"""Version pins: recording them on a machine with network."""
