# This tool alone, for the other images to copy: the context is a folder that `images.build` makes, dependencies
# included. Nothing here is compiled, so that one folder serves every python and architecture.
FROM scratch
COPY . /opt/omni-ci/
LABEL org.opencontainers.image.title="omni-ci" \
      org.opencontainers.image.licenses="Apache-2.0"
