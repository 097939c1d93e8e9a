module omni-ci/tests/agent-parser

go 1.25.0

require github.com/buildkite/go-pipeline v0.18.1

require (
	github.com/buildkite/interpolate v0.1.5 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/kr/pretty v0.3.1 // indirect
	github.com/oleiade/reflections v1.1.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)
