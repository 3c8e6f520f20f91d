package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
)

func TestLabel(t *testing.T) {
	var window, got bytes.Buffer
	p := &profile.Profile{SampleType: []*profile.ValueType{{Type: "cpu", Unit: "nanoseconds"}}}
	for pid, service := range []string{1: "shop-cart.service", 2: "shop-cart.service", 3: "cron.service"} {
		p.Sample = append(p.Sample, &profile.Sample{Value: []int64{1},
			NumLabel: map[string][]int64{"pid": {int64(pid)}}, Label: map[string][]string{"service": {service}}})
	}
	if err := p.Write(&window); err != nil {
		t.Fatal(err)
	}
	if err := label(&got, &window, strings.NewReader("checkout ^shop-(cart|pay)\nothers ^shop-\n")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`process_labels{pid="1",team="checkout"} 1`,
		`process_labels{pid="2",team="checkout"} 1`} {
		if !strings.Contains(got.String(), want+"\n") {
			t.Errorf("no %s in %s", want, &got)
		}
	}
	if n := strings.Count(got.String(), "\n"); n != 2 {
		t.Errorf("%d labels, want 2: %s", n, &got)
	}
}
