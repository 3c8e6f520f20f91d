package profiler

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseTimehist(t *testing.T) {
	const output = `Samples do not have callchains.
           time    cpu  task name                       wait time  sch delay   run time
                        [tid/pid]                          (msec)     (msec)     (msec)
--------------- ------  ------------------------------  ---------  ---------  ---------
  123456.000001 [0000]  perf[999]                           0.000      0.000      0.000 
  123456.000100 [0001]  worker-0[123/100]                  15.123      0.012      0.345 
  123456.000200 [0000]  C2 CompilerThre[124/100]            1.000      0.250      2.000 
  123456.000300 [0001]  java[100]                           3.000      0.000      0.001 
  123456.000400 [0001]  worker-0[123/100]                  10.000      1.000      0.005 
  123456.000500 [0001]  <idle>                              0.000      0.000      9.000 
`
	got, err := parseTimehist(strings.NewReader(output), 100)
	us := time.Microsecond
	want := []ThreadTime{
		{"worker-0", 123, 100, 25123 * us, 1012 * us, 350 * us},
		{"C2 CompilerThre", 124, 100, 1000 * us, 250 * us, 2000 * us}, {"java", 100, 100, 3000 * us, 0, us},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}
