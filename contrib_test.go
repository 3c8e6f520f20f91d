package vmprofagent

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The metrics of the rules for Prometheus exist, and the flags that make them are those of the
// documentation. promtool checks the rest.
func TestPrometheusRules(t *testing.T) {
	texts := map[string]string{}
	for _, path := range []string{"contrib/prometheus/rules.yml", "docs/reference/metrics.md", "docs/costs.md"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = string(text)
	}
	rules := texts["contrib/prometheus/rules.yml"]
	// A colon is in the names of recorded series only.
	metrics := regexp.MustCompile(`(?:^|[^:\w])(vmprof_\w+)\b[^:\w]`).FindAllStringSubmatch(rules, -1)
	flags := regexp.MustCompile(`# serve (--.*)`).FindAllStringSubmatch(rules, -1)
	if len(metrics) == 0 || len(flags) == 0 {
		t.Fatalf("metrics %q and flags %q: are they still found?", metrics, flags)
	}
	for _, m := range metrics {
		if !strings.HasPrefix(m[1], "vmprof_custom_") && !strings.Contains(texts["docs/reference/metrics.md"], "`"+m[1]+
			"`") {
			t.Errorf("there is no metric %s", m[1])
		}
	}
	for _, f := range flags {
		if !strings.Contains(texts["docs/costs.md"], "`"+f[1]+"`") {
			t.Errorf("the examples in docs/costs.md lack %s", f[1])
		}
	}
}
