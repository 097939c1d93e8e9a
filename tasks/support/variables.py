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
    Variable("BUILDKITE_PULL_REQUEST_BASE_BRANCH", "branch that the pull request is to be merged into"),
    Variable("BUILDKITE_PULL_REQUEST_REPO", "repository of the pull request; another than BUILDKITE_REPO is a fork"),
    Variable("BUILDKITE_PULL_REQUEST_LABELS", "labels of the pull request, parted by commas"),
    Variable("BUILDKITE_MERGE_QUEUE_BASE_BRANCH", "branch that the merge queue's group is to be merged into"),
    Variable("BUILDKITE_MERGE_QUEUE_BASE_COMMIT", "commit that the merge queue's group is built on"),
    Variable("BUILDKITE_REPO", "address of the repository that is built"),
    Variable("BUILDKITE_PIPELINE_SLUG", "name of the pipeline in addresses; fastcheck runs amdtentative steps"),
    Variable("BUILDKITE_PIPELINE_DEFAULT_BRANCH", "the pipeline's main branch; default: main"),
    Variable("BUILDKITE_STEP_KEY", "key of the step that runs; uploads are annotated under it"),
    Variable("NIGHTLY", "exactly 1: this is the nightly schedule"),
    Variable("WEEKLY", "exactly 1: this is the weekly schedule"),
    Variable("NON_CRITICAL", "exactly 1: this is the weekly schedule of the tests that are not critical"),
    Variable("RUN_ALL", "exactly 1: every step runs, whatever changed"),
    Variable("DOCS_ONLY_DISABLE", "exactly 1: a change of documentation only is built as any other"),
    Variable("FAIL_FAST", "1 or true: a failed step cancels the build's others; 0 or false: they go on"),
    Variable("COV_ENABLED", "exactly 1: steps measure coverage"),
    Variable("MIRROR_HW", "which steps of a file in AMD's form run: those that name this in mirror_hardwares"),
    Variable("AMD_MIRROR_HW", "the same, for ROCm's steps; wins over MIRROR_HW; default: amdproduction"),
    Variable("DEBUG_TEST_YAML", "tiers that pipelines.bootstrap rocm uploads, parted by commas: ready,merge"),
)

ALL = OWN + INHERITED
