"""Container images: their catalogue, their builds, the Docker Engine and its disk."""
