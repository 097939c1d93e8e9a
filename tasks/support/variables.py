"""The one table of every environment variable that is read; settings and documentation are made from it.

HOME and PATH are read too, with the meaning that they have for every program. They are not in the table, because
reports show what is in it, and people's folders are nobody's business.
"""

from __future__ import annotations

from dataclasses import dataclass

PREFIX = "OMNI_CI_"


@dataclass(frozen=True)
class Variable:
    """An environment variable: its name, what it means, and whether its value must never be shown."""

    name: str
    meaning: str
    secret: bool = False

    @property
    def key(self) -> str | None:
        """Return the variable's key in ``[tool.omni-ci]``, or None for an inherited one."""
        if not self.name.startswith(PREFIX):
            return None
        return self.name.removeprefix(PREFIX).lower().replace("_", "-")


OWN = (
    Variable("OMNI_CI_PROFILE", "local (default), ci or production: what a task may change"),
    Variable("OMNI_CI_STORE", "wheel store: file:///folder or s3://bucket/prefix; default: .omni-ci/store here"),
    Variable("OMNI_CI_STAGING", "repository where CI pushes images: registry/name or file:///folder"),
    Variable("OMNI_CI_PUBLIC", "repository where users pull images: registry/name or file:///folder"),
    Variable("OMNI_CI_SOURCE", "checkout of the library that tasks work on"),
    Variable("OMNI_CI_PYTHON", "python that runs the library's tests"),
    Variable("OMNI_CI_PYPI_UPLOAD_URL", "upload address for wheels.publish; default: twine's own"),
    Variable("OMNI_CI_PYPI_INDEX_URL", "simple index that wheels.publish compares with; default: the public one"),
    Variable("OMNI_CI_HUB_URL", "DockerHub's account API, for clean-ups; default: the public one"),
)

INHERITED = (
    Variable("PYPI_TOKEN", "API token for wheels.publish", secret=True),
    Variable("DOCKERHUB_USERNAME", "account that publishes images"),
    Variable("DOCKERHUB_TOKEN", "access token of that account", secret=True),
    Variable("HF_TOKEN", "token for model downloads in tests", secret=True),
    Variable("AWS_ACCESS_KEY_ID", "S3 key, read by boto3", secret=True),
    Variable("AWS_SECRET_ACCESS_KEY", "S3 secret, read by boto3", secret=True),
    Variable("AWS_SESSION_TOKEN", "S3 session token, read by boto3", secret=True),
    Variable("AWS_DEFAULT_REGION", "S3 region, read by boto3"),
    Variable("AWS_PROFILE", "named AWS profile, read by boto3"),
    Variable("AWS_SHARED_CREDENTIALS_FILE", "file of AWS keys, read by boto3; default: ~/.aws/credentials"),
    Variable("AWS_CONFIG_FILE", "file of AWS profiles, read by boto3; default: ~/.aws/config"),
    Variable("AWS_ENDPOINT_URL", "S3-compatible endpoint, read by boto3"),
    Variable("AWS_ENDPOINT_URL_S3", "S3-compatible endpoint, read by boto3; wins over AWS_ENDPOINT_URL"),
    Variable("DOCKER_HOST", "address of the Docker Engine"),
    Variable("DOCKER_CONFIG", "folder of docker's config.json"),
    Variable("DOCKER_CONTEXT", "docker context that names the engine; DOCKER_HOST wins"),
    Variable("DOCKER_TLS_VERIFY", "set: the engine at DOCKER_HOST is spoken to with certificates"),
    Variable("DOCKER_CERT_PATH", "folder of those certificates; default: that of docker's config.json"),
    Variable("BUILDX_CONFIG", "folder of buildx's builders; default: buildx beside docker's config.json"),
    Variable("XDG_RUNTIME_DIR", "this user's folder in memory, where logins are kept while a build runs"),
    Variable("VLLM_VERSION", "vLLM release that the images for XPU are built from; default: docker/pins.yml"),
    Variable("IMAGE_REGISTRY", "registry and namespace of the images for NPU; default: docker/images.yml"),
    Variable("IMAGE_NAME", "name of the images for NPU there; default: docker/images.yml"),
    Variable("BUILDKITD_ADDR", "address of the remote builder; default: docker/images.yml"),
    Variable("NETRC", "file of logins in the form of ~/.netrc, mounted into builds and in no layer"),
    Variable("HTTP_PROXY", "proxy for http, passed on to builds that say so"),
    Variable("HTTPS_PROXY", "proxy for https, passed on to builds that say so"),
    Variable("NO_PROXY", "hosts reached without a proxy, passed on to builds that say so"),
    Variable("REQUESTS_CA_BUNDLE", "file or folder of certificates that https trusts; default: the usual ones"),
    Variable("BUILDKITE", "true on a Buildkite agent"),
    Variable("BUILDKITE_COMMIT", "commit of the build; the default of --commit"),
    Variable("BUILDKITE_BRANCH", "branch of the build"),
    Variable("BUILDKITE_BUILD_NUMBER", "number of the build, recorded with what it publishes"),
    Variable("BUILDKITE_BUILD_URL", "address of the build, recorded with what it publishes"),
    Variable("BUILDKITE_PULL_REQUEST", "pull request number, or false"),
    Variable("NIGHTLY", "exactly 1: this is the nightly schedule"),
)

ALL = OWN + INHERITED
