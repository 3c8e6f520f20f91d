package proc

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
)

const statusText = "Name:\tevil\\nUid:\\t0\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t4711\nNgid:\t0\nPid:\t4711\n" +
	"PPid:\t1\nTracerPid:\t0\nUid:\t1000\t1001\t1002\t1003\nGid:\t100\t101\t102\t103\nFDSize:\t256\n" +
	"Groups:\t100 1000 " +
	"\nCapEff:\t0000000000000004\nNStgid:\t4711\t12\t1\nNSpid:\t4711\t12\t1\nNSpgid:\t4711\nVmPeak:\t   10000 kB\n"

func TestParseStatus(t *testing.T) {
	plain := Status{TGID: 4711, UID: 1001, GID: 101, Mixed: true, NSpid: []int{4711, 12, 1},
		Groups: []uint32{100, 1000}, ReadsAll: true}
	for _, tt := range []struct {
		name, text string
		want       Status
		err        error
	}{
		{name: "plain", text: statusText, want: plain},
		{name: "uid -1", text: strings.Replace(statusText, "1001", "4294967295", 1),
			want: Status{TGID: 4711, UID: 1<<32 - 1, GID: 101, Mixed: true, NSpid: []int{4711, 12, 1},
				Groups: []uint32{100, 1000}, ReadsAll: true}},
		{name: "one user", text: strings.NewReplacer("1000\t1001\t1002\t1003", "7\t7\t7\t7", "100\t101\t102\t103",
			"8\t8\t8\t8").Replace(statusText),
			want: Status{TGID: 4711, UID: 7, GID: 8, NSpid: []int{4711, 12, 1}, Groups: []uint32{100, 1000},
				ReadsAll: true}},
		{name: "another group", text: strings.Replace(statusText, "1000\t1001\t1002\t1003", "7\t7\t7\t7", 1),
			want: Status{TGID: 4711, UID: 7, GID: 101, Mixed: true, NSpid: []int{4711, 12, 1},
				Groups: []uint32{100, 1000}, ReadsAll: true}},
		{name: "empty", text: "", err: ErrMalformed},
		{name: "cut", text: statusText[:150], err: ErrMalformed},
		{name: "no pids", text: strings.Replace(statusText, "NSpid:\t4711\t12\t1", "NSpid:", 1), err: ErrMalformed},
		{name: "deeper than the kernel nests", text: strings.Replace(statusText, "NSpid:\t4711", "NSpid:"+
			strings.Repeat("\t1", 32), 1), err: ErrMalformed},
		{name: "negative pid", text: strings.Replace(statusText, "NSpid:\t4711", "NSpid:\t-1", 1), err: ErrMalformed},
		{name: "a group that is none", text: strings.Replace(statusText, "100 1000", "100 x", 1), err: ErrMalformed},
		{name: "capabilities that are none", text: strings.Replace(statusText, "0000000000000004", "x", 1),
			err: ErrMalformed},
		{name: "one uid", text: strings.Replace(statusText, "\t1001\t1002\t1003", "", 1), err: ErrMalformed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseStatus([]byte(tt.text))
			if !reflect.DeepEqual(got, tt.want) || !errors.Is(err, tt.err) {
				t.Errorf("parseStatus = %+v, %v; want %+v, %v", got, err, tt.want, tt.err)
			}
		})
	}
	if got := plain.InnermostPID(); got != 1 {
		t.Errorf("InnermostPID = %d, want 1", got)
	}
}

func TestStatusOfThisProcess(t *testing.T) {
	s, err := Root("").Status(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if s.TGID != os.Getpid() || int(s.UID) != os.Geteuid() || int(s.GID) != os.Getegid() ||
		s.InnermostPID() != os.Getpid() {
		t.Errorf("%+v", s)
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add([]byte(statusText))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseStatus(b)
		if err != nil && !reflect.DeepEqual(s, Status{}) {
			t.Errorf("both %+v and %v", s, err)
		}
		if err == nil && s.InnermostPID() < 0 {
			t.Errorf("innermost pid is %d", s.InnermostPID())
		}
	})
}
