package main

import "testing"

func TestReadSoon(t *testing.T) {
	output := `=== RUN   TestLiveAccuracy/flat/1x1
    accuracy_test.go:59: flat 1x1: overlap 53.4% (53.4% without weights), cost 0.01% (measured -0.12%), 98 samples, 711 edges, at last 1x1 at 100 Hz
    accuracy_test.go:59: flat 1%: overlap 90.1% (80.2% without weights), cost 0.71% (measured +0.12%), 4000 samples, 711 edges, at last 127x41 at 97 Hz
--- PASS: TestLiveAccuracy (3.35s)
`
	r := soonResult{soonTrial: soonTrial{"flat"}, cells: map[[2]string]soonCell{}}
	if err := r.read("1", []byte(output)); err != nil {
		t.Fatal(err)
	}
	if r.cells[[2]string{"1", soonTimer}] != (soonCell{53.4, 53.4}) ||
		r.cells[[2]string{"1", soonBursts}] != (soonCell{90.1, 80.2}) || r.edges != 711 {
		t.Errorf("%+v", r)
	}
	if err := r.read("1", []byte("PASS\n")); err == nil {
		t.Error("no result was accepted")
	}
}
