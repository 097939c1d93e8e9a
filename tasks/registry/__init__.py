"""Container registries: the OCI distribution protocol, OCI layouts, promotion, retention, DockerHub's account API."""
