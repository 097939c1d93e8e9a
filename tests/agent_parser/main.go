// The part of `buildkite-agent pipeline upload --dry-run` that judges a pipeline, on the agent's own library, for tests
// on machines where the agent itself cannot be installed: parse what is on stdin, interpolate, print JSON.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/buildkite/go-pipeline"
	"github.com/buildkite/go-pipeline/warning"
)

type environment map[string]string

func (e environment) Get(name string) (string, bool) {
	if value, ok := e[name]; ok {
		return value, true
	}
	return os.LookupEnv(name)
}

func (e environment) Set(name, value string) { e[name] = value }

func run() error {
	if len(os.Args) < 3 || os.Args[1] != "pipeline" || os.Args[2] != "upload" || !slices.Contains(os.Args, "--dry-run") {
		return fmt.Errorf("this program knows pipeline upload --dry-run only")
	}
	parsed, err := pipeline.Parse(os.Stdin)
	if err != nil {
		if !warning.Is(err) || slices.Contains(os.Args, "--reject-parse-warnings") {
			return err
		}
		fmt.Fprintln(os.Stderr, "warning:", err)
	}
	if !slices.Contains(os.Args, "--no-interpolation") {
		if err := parsed.Interpolate(environment{}, false); err != nil {
			return err
		}
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(parsed)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "fatal:", err)
		os.Exit(1)
	}
}
