package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestFindOffCPU(t *testing.T) {
	for _, tt := range []struct {
		trial  OffCPUTrial
		status Status // empty: nothing is reported
		want   string
	}{
		{nil, "", ""},
		{func(context.Context) error { return nil }, OK, "-e offcpu and -e wall work"},
		{func(context.Context) error {
			return errors.Join(errors.New("sched_exit_tp: none"), errors.New("no fentry"))
		}, Limited, "sched_exit_tp: none; no fentry"},
	} {
		env := healthy(t)
		env.OffCPU = tt.trial
		found := findOffCPU(t.Context(), env)
		if tt.status == "" {
			if len(found) != 0 {
				t.Errorf("%+v", found)
			}
			continue
		}
		if len(found) != 1 || found[0].Status != tt.status || found[0].Detail != tt.want {
			t.Errorf("%+v, want %s: %s", found, tt.status, tt.want)
		}
		if tt.status == Limited && !strings.Contains(found[0].Remedy, "Linux 6.15") {
			t.Errorf("the remedy is %q", found[0].Remedy)
		}
	}
}
